//! Writes the names of a rule for lines, without the values of sensitive keys that its path may have.

use super::sensitive_keys::is_sensitive;
use crate::escape::excerpt;
use crate::rules::Rule;

/// Longest name in a line, in characters.
const CHARS_MAX: usize = 200;

/// The names of a rule in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShownRule {
    pub(super) name: String,
    /// Where it differs from the name.
    pub(super) selector: Option<String>,
}

impl ShownRule {
    pub(super) fn of(rule: &Rule) -> ShownRule {
        let selector = excerpt(&rule.selector_hiding(is_sensitive), CHARS_MAX);
        match rule.other_selector() {
            Some(_) => {
                let name = excerpt(&rule.display_name, CHARS_MAX);
                ShownRule { name, selector: Some(selector) }
            }
            // The name is the selector.
            None => ShownRule { name: selector, selector: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::rules::{Options, SourceFile, compile};

    #[test]
    fn names_have_no_values_of_sensitive_keys() {
        let text = "
domain: d
descriptors:
  - key: api_key
    value: s3,cret
    descriptors:
      - { key: path, value: /a, rate_limit: { unlimited: true } }
      - { key: user, rate_limit: { name: calls, unlimited: true } }
      - key: token
        value: s3
        rate_limit: { name: \"api_key=s3\\\\,cret,token=s3\", unlimited: true }
  - { key: token, value: s3*, rate_limit: { unlimited: true } }
  - { key: cookie, rate_limit: { unlimited: true } }
  - { key: password, value_regex: s3.+, rate_limit: { unlimited: true } }
  - { key: user, value: s3, rate_limit: { unlimited: true } }
";
        let file = SourceFile { name: Arc::from("test.yaml"), text: text.to_owned() };
        let (rules, _) = compile(&[file], &Options::default()).expect("valid rules");
        let shown: Vec<(String, Option<String>)> = rules
            .rules()
            .iter()
            .map(|rule| {
                let ShownRule { name, selector } = ShownRule::of(rule);
                (name, selector)
            })
            .collect();
        let expected = [
            ("api_key=..,path=/a", None),
            ("calls", Some("api_key=..,user")),
            ("api_key=..,token=..", None),
            ("token=..", None),
            ("cookie", None),
            ("password=..", None),
            ("user=s3", None),
        ];
        let expected =
            expected.map(|(name, selector)| (name.to_owned(), selector.map(str::to_owned)));
        assert_eq!(shown, expected);
    }
}
