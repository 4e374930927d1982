//! Patterns: regular expressions over a whole value, matched in time linear in its length.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::MatcherError;

/// A regular expression that must match from the first character to the last.
#[derive(Clone, Debug)]
pub(in crate::rules) struct AnchoredRegex {
    source: Arc<str>,
    regex: Regex,
    count_by: Box<[Arc<str>]>,
    /// Group numbers of `count_by`.
    groups: Box<[usize]>,
}

/// Largest compiled form, in bytes: room for any sensible pattern, no room for `(a{1000}){1000}`.
const COMPILED_BYTES_MAX: usize = 1 << 20;

impl AnchoredRegex {
    pub(super) fn new(
        source: Arc<str>,
        count_by: &[Arc<str>],
    ) -> Result<AnchoredRegex, MatcherError> {
        // Alone first: `a)|(b` would be valid only inside the group that anchors it.
        compile(&source)?;
        let regex = compile(&format!(r"\A(?:{source})\z"))?;
        let mut groups = Vec::with_capacity(count_by.len());
        for wanted in count_by {
            match regex.capture_names().position(|name| name == Some(&**wanted)) {
                Some(group) => groups.push(group),
                None => {
                    let hint = "name a group with `(?<name>...)`";
                    return Err((format!("it has no group `{wanted}` to count by"), hint));
                }
            }
        }
        Ok(AnchoredRegex { source, regex, count_by: count_by.into(), groups: groups.into() })
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn count_by(&self) -> &[Arc<str>] {
        &self.count_by
    }

    pub(super) fn matches(&self, value: &str) -> bool {
        self.regex.is_match(value)
    }

    /// The counted groups of a value that matches, by name; a group that took no part is empty.
    /// Costs an allocation: the engine notes where each group stands.
    pub(super) fn captured<'a>(&'a self, value: &'a str, mut each: impl FnMut(&'a str, &'a str)) {
        let captures = self.regex.captures(value);
        for (name, group) in self.count_by.iter().zip(&self.groups) {
            let found = captures.as_ref().and_then(|captures| captures.get(*group));
            each(name, found.map_or("", |found| found.as_str()));
        }
    }
}

fn compile(text: &str) -> Result<Regex, MatcherError> {
    let mut builder = RegexBuilder::new(text);
    builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(COMPILED_BYTES_MAX);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            ("it is too large when compiled".to_owned(), "repeat less, or split the rule")
        }
        error => {
            // The engine draws a picture of several lines; its last line says what is wrong.
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            let why = last.trim_start_matches("error: ").to_owned();
            (
                why,
                "the syntax is that of docs.rs/regex; it has no look-around and no back-references",
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_the_whole_value() {
        for (pattern, yes, no) in [
            ("a|b", vec!["a", "b"], vec!["ab", "xa", "bx", ""]),
            ("a.*", vec!["a", "abc"], vec!["ba", "a\n"]),
            ("(?m)^a$", vec!["a"], vec!["a\nb", "b\na"]),
            ("(?i)get|post", vec!["GET", "Post"], vec!["put"]),
            ("[0-9]{3}", vec!["123"], vec!["1234", "12"]),
        ] {
            let matcher = AnchoredRegex::new(pattern.into(), &[]).expect(pattern);
            for value in yes {
                assert!(matcher.matches(value), "{pattern} {value:?}");
            }
            for value in no {
                assert!(!matcher.matches(value), "{pattern} {value:?}");
            }
        }
    }

    #[test]
    fn a_pattern_captures_the_groups_it_counts_by() {
        let count_by: [Arc<str>; 2] = ["b".into(), "a".into()];
        let pattern = AnchoredRegex::new("(?<a>.)(?<b>x)?(.)".into(), &count_by).expect("valid");
        let mut parts = Vec::new();
        pattern.captured("12", |name, part| parts.push((name, part)));
        assert_eq!(parts, [("b", ""), ("a", "1")]);
    }

    #[test]
    fn bad_patterns_are_refused_in_one_line() {
        for bad in ["(", "a)|(b", "(?=a)", r"\1", "(a{1000}){1000}", "(?x) a # comment"] {
            let (why, hint) = AnchoredRegex::new(bad.into(), &[]).expect_err(bad);
            assert!(!why.is_empty() && !why.contains('\n') && !hint.is_empty(), "{bad}: {why}");
        }
        assert!(AnchoredRegex::new("(?<a>.)".into(), &["b".into()]).is_err());
    }
}
