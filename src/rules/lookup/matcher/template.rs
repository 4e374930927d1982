//! Matches paths against templates, in which a variable stands for one segment.
//!
//! Lookups find the template of a path with the trie of `index/templates.rs`. [`Template::matches`]
//! tests one template. A property test in `index/tests.rs` compares the two.

use std::sync::Arc;

use super::MatcherError;

/// A path such as `/v1/organizations/{orgId}/product/{id}`.
#[derive(Clone, Debug)]
pub(in crate::rules) struct Template {
    source: Arc<str>,
    segments: Box<[Segment]>,
    count_by: Box<[Arc<str>]>,
}

/// The text between two slashes.
#[derive(Clone, Debug)]
pub(in crate::rules) enum Segment {
    Literal(Box<str>),
    /// One non-empty segment, part of the counter's key if `counted`.
    Variable {
        name: Box<str>,
        counted: bool,
    },
}

/// Most segments of a template.
const SEGMENTS_MAX: usize = 32;

/// A value split at its slashes, without its query string. It is split once for all templates.
#[derive(Debug)]
pub(in crate::rules) struct PathSegments<'a> {
    texts: [&'a str; SEGMENTS_MAX],
    /// The number of segments; `SEGMENTS_MAX + 1` when there are too many for any template.
    count: usize,
}

impl<'a> PathSegments<'a> {
    pub(super) fn new(value: &'a str) -> PathSegments<'a> {
        let mut path = PathSegments { texts: [""; SEGMENTS_MAX], count: 0 };
        for text in without_query(value).split('/') {
            path.count += 1;
            match path.texts.get_mut(path.count - 1) {
                Some(segment) => *segment = text,
                None => break,
            }
        }
        path
    }

    /// The segments; empty when there are too many. A template has at least one, so none matches.
    pub(in crate::rules) fn segments(&self) -> &[&'a str] {
        self.texts.get(..self.count).unwrap_or_default()
    }
}

impl Segment {
    fn is_variable(&self, wanted: &str) -> bool {
        matches!(self, Segment::Variable { name, .. } if **name == *wanted)
    }
}

const HINT: &str = "a variable is a whole segment, as in `/users/{id}/orders`; for anything else \
                    use `value_regex`";

impl Template {
    pub(super) fn new(source: Arc<str>, count_by: &[Arc<str>]) -> Result<Template, MatcherError> {
        if source.contains('?') {
            let hint = "leave out `?` and what follows: it is not part of the path";
            return Err(("it has a query string".to_owned(), hint));
        }
        let mut segments: Vec<Segment> = Vec::new();
        for text in source.split('/') {
            let segment = segment(text)?;
            if let Segment::Variable { name, .. } = &segment
                && segments.iter().any(|earlier| earlier.is_variable(name))
            {
                let hint = "give each variable its own name";
                return Err((format!("variable `{name}` appears twice"), hint));
            }
            segments.push(segment);
        }
        if segments.len() > SEGMENTS_MAX {
            let hint = "use `value_regex` for paths that long";
            return Err((format!("it has more than {SEGMENTS_MAX} segments"), hint));
        }
        for wanted in count_by {
            let mut names = segments.iter_mut().filter_map(|segment| match segment {
                Segment::Variable { name, counted } => Some((name, counted)),
                Segment::Literal(_) => None,
            });
            match names.find(|(name, _)| name.as_ref() == &**wanted) {
                Some((_, counted)) => *counted = true,
                None => {
                    let hint = "name variables of the template, without braces";
                    return Err((format!("it has no variable `{wanted}` to count by"), hint));
                }
            }
        }
        Ok(Template { source, segments: segments.into(), count_by: count_by.into() })
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    pub(in crate::rules) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub(super) fn count_by(&self) -> &[Arc<str>] {
        &self.count_by
    }

    /// The template without variable names; equal for templates that accept the same values.
    pub(super) fn without_names(&self) -> String {
        let texts = self.segments.iter().map(|segment| match segment {
            Segment::Literal(text) => text,
            Segment::Variable { .. } => "{}",
        });
        texts.collect::<Vec<_>>().join("/")
    }

    pub(super) fn matches(&self, path: &PathSegments<'_>) -> bool {
        let parts = path.segments();
        let accepts = |(segment, part): (&Segment, &&str)| match segment {
            // Segments are short, so a loop over bytes is several times faster than the call of
            // `==`.
            Segment::Literal(text) => text.len() == part.len() && text.bytes().eq(part.bytes()),
            Segment::Variable { .. } => !part.is_empty(),
        };
        self.segments.len() == parts.len() && self.segments.iter().zip(parts).all(accepts)
    }

    /// Calls `each` with the name and text of every counted variable, in the order of the path.
    pub(super) fn captured<'a>(&'a self, value: &'a str, mut each: impl FnMut(&'a str, &'a str)) {
        for (segment, part) in self.segments.iter().zip(without_query(value).split('/')) {
            if let Segment::Variable { name, counted: true } = segment {
                each(name, part);
            }
        }
    }
}

fn segment(text: &str) -> Result<Segment, MatcherError> {
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match inner {
        Some("") => Err(("a variable has no name".to_owned(), HINT)),
        Some(name) if !name.contains(['{', '}']) => {
            Ok(Segment::Variable { name: name.into(), counted: false })
        }
        None if !text.contains(['{', '}']) => Ok(Segment::Literal(text.into())),
        _ => Err((format!("`{text}` mixes braces and text"), HINT)),
    }
}

/// The value without its query string.
fn without_query(value: &str) -> &str {
    value.split_once('?').map_or(value, |(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_one_segment_that_is_not_empty() {
        for (template, yes, no) in [
            (
                "/users/{id}",
                vec!["/users/7", "/users/7?x=/y"],
                vec!["/users/", "/users/7/", "/users"],
            ),
            ("/{a}/b/{c}", vec!["/1/b/2"], vec!["/1/c/2", "//b/2", "/1/b/2/3", "1/b/2"]),
            ("/a", vec!["/a", "/a?", "/a?b"], vec!["/a/", "/A", "a"]),
            ("{all}", vec!["x"], vec!["", "x/y", "/x", "?x"]),
            ("/a/", vec!["/a/"], vec!["/a"]),
        ] {
            let matcher = Template::new(template.into(), &[]).expect(template);
            for value in yes {
                assert!(matcher.matches(&PathSegments::new(value)), "{template} {value}");
            }
            for value in no {
                assert!(!matcher.matches(&PathSegments::new(value)), "{template} {value}");
            }
        }
    }

    #[test]
    fn the_longest_template_matches() {
        let longest = "/x".repeat(SEGMENTS_MAX - 1);
        let template = Template::new(longest.as_str().into(), &[]).expect("valid");
        assert!(template.matches(&PathSegments::new(&longest)));
        assert!(!template.matches(&PathSegments::new(&(longest.clone() + "/x"))));
        assert!(!template.matches(&PathSegments::new(&"/".repeat(60_000))));
    }

    #[test]
    fn only_the_named_variables_are_captured() {
        let count_by: [Arc<str>; 2] = ["c".into(), "a".into()];
        let template = Template::new("/{a}/{b}/{c}".into(), &count_by).expect("valid");
        let mut captured = Vec::new();
        template.captured("/1/2/3?c=4", |name, part| captured.push((name, part)));
        assert_eq!(captured, [("a", "1"), ("c", "3")]);
    }

    #[test]
    fn invalid_templates_are_rejected() {
        for bad in ["/{}", "/{a", "/a}", "/x{a}", "/{a}.json", "/{a}/{a}", "/{{a}}", "/a?b={c}"] {
            assert!(Template::new(bad.into(), &[]).is_err(), "{bad}");
        }
        assert!(Template::new("/{a}".into(), &["b".into()]).is_err());
        assert!(Template::new("/".repeat(SEGMENTS_MAX).into(), &[]).is_err());
    }
}
