//! Writes rules and descriptors for lines of the log, without the values of sensitive keys.

use super::sensitive_keys::is_sensitive;
use crate::escape::excerpt;
use crate::rules::lookup::rule::Rule;

/// Longest name in a line, in characters.
const CHARS_MAX: usize = 200;

/// The names of a rule in a line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownRule {
    /// The rule name, of at most 200 characters.
    pub name: String,
    /// The selector, if the rule name is another text.
    pub selector: Option<String>,
}

impl ShownRule {
    /// The names of `rule`, with `..` for the patterns of sensitive keys in its path.
    pub fn of(rule: &Rule) -> ShownRule {
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

/// `selector`, of a descriptor or of a rule, with `..` for the values of sensitive keys. At most 200
/// characters. A text that is no selector stays as it is.
pub fn shown_selector(selector: &str) -> String {
    let mut shown = String::with_capacity(selector.len());
    let (mut key, mut is_key, mut is_hidden) = (String::new(), true, false);
    let mut chars = selector.chars();
    while let Some(c) = chars.next() {
        match c {
            ',' => {
                (is_key, is_hidden) = (true, false);
                key.clear();
                shown.push(',');
            }
            '=' if is_key => {
                (is_key, is_hidden) = (false, is_sensitive(&key));
                shown.push_str(if is_hidden { "=.." } else { "=" });
            }
            _ => {
                // A backslash escapes the next character.
                let escaped = if c == '\\' { chars.next() } else { None };
                if is_key {
                    key.push(escaped.unwrap_or(c));
                }
                if !is_hidden {
                    shown.push(c);
                    shown.extend(escaped);
                }
            }
        }
    }
    excerpt(&shown, CHARS_MAX)
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
        for rule in rules.rules() {
            let hidden = excerpt(&rule.selector_hiding(is_sensitive), CHARS_MAX);
            assert_eq!(shown_selector(&rule.selector()), hidden);
        }
    }

    #[test]
    fn selectors_have_no_values_of_sensitive_keys() {
        for (selector, shown) in [
            ("api_key=s3,path=/a", "api_key=..,path=/a"),
            (r"api_key=s3\,cret,user=ann", "api_key=..,user=ann"),
            (r"api_key=s3\\,user=a\,b", r"api_key=..,user=a\,b"),
            ("api_key=s3=cret,token=,password", "api_key=..,token=..,password"),
            (r"api\=key=s3", r"api\=key=.."),
            ("user=token=s3", "user=token=s3"),
            ("token=s3\\", "token=.."),
            ("user=\n", r"user=\n"),
            ("per-user", "per-user"),
            ("", ""),
        ] {
            assert_eq!(shown_selector(selector), shown, "{selector}");
        }
        assert_eq!(shown_selector(&"x".repeat(201)), format!("{}...", "x".repeat(200)));
    }
}
