//! Matches wildcards: literal parts with `*` between, before or after them.

use std::sync::Arc;

/// A value with at least one `*`; each stands for zero or more characters.
#[derive(Clone, Debug)]
pub(in crate::rules) struct Wildcard {
    source: Arc<str>,
    first: Box<str>,
    middle: Box<[Box<str>]>,
    last: Box<str>,
}

impl Wildcard {
    /// Parses a wildcard. `source` must contain a `*`.
    pub(super) fn new(source: Arc<str>) -> Wildcard {
        let mut parts: Vec<Box<str>> = source.split('*').map(Box::from).collect();
        let last = if parts.len() > 1 { parts.pop().unwrap_or_default() } else { Box::default() };
        let first = parts.remove(0);
        let middle = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Wildcard { source, first, middle, last }
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The literal parts: at the start, between stars in this order, and at the end of a value.
    pub(in crate::rules) fn parts(&self) -> (&str, &[Box<str>], &str) {
        (&self.first, &self.middle, &self.last)
    }

    /// Whether the value matches. Takes the leftmost position for each middle part. That leaves the
    /// most room for the next part, so no other choice is needed.
    pub(super) fn matches(&self, value: &str) -> bool {
        let inner =
            value.strip_prefix(&*self.first).and_then(|rest| rest.strip_suffix(&*self.last));
        let Some(mut rest) = inner else { return false };
        for part in &self.middle {
            match rest.find(&**part) {
                Some(start) => rest = &rest[start + part.len()..],
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_star_matches_any_text_at_any_position() {
        for (pattern, yes, no) in [
            ("*", vec!["", "a", "*"], vec![]),
            ("foo*", vec!["foo", "foobar"], vec!["fo", "xfoo", ""]),
            ("*foo", vec!["foo", "xfoo"], vec!["foox"]),
            ("f*o", vec!["fo", "foo", "fxo"], vec!["f", "o", "fox"]),
            ("a*a", vec!["aa", "aba"], vec!["a"]),
            ("a*b*c", vec!["abc", "axbxc", "abbc"], vec!["acb", "ac"]),
            ("*b*b*", vec!["bb", "abab"], vec!["b"]),
            ("a**c", vec!["ac", "abc"], vec!["a"]),
            ("ab*ba", vec!["abba", "abxba"], vec!["aba"]),
            ("é*", vec!["é", "éa"], vec!["e"]),
        ] {
            let wildcard = Wildcard::new(pattern.into());
            for value in yes {
                assert!(wildcard.matches(value), "{pattern} {value}");
            }
            for value in no {
                assert!(!wildcard.matches(value), "{pattern} {value}");
            }
        }
    }

    /// Tries every length for every star.
    fn slow(pattern: &[u8], value: &[u8]) -> bool {
        match pattern.split_first() {
            None => value.is_empty(),
            Some((b'*', rest)) => (0..=value.len()).any(|length| slow(rest, &value[length..])),
            Some((byte, rest)) => value.first() == Some(byte) && slow(rest, &value[1..]),
        }
    }

    proptest! {
        #[test]
        fn wildcards_agree_with_exhaustive_search(
            pattern in "[ab*]{0,4}\\*[ab*]{0,4}", value in "[ab]{0,10}",
        ) {
            let fast = Wildcard::new(pattern.as_str().into()).matches(&value);
            prop_assert_eq!(fast, slow(pattern.as_bytes(), value.as_bytes()));
        }
    }
}
