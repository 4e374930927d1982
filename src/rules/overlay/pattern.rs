//! Patterns that select rules by their domain and their path in the tree.
//!
//! A pattern is written like the selector of a rule: `key=value,key=value`, one item per level. `*`
//! stands for any text within one key or value, and the item `**` for any number of levels, also
//! none. A key alone accepts every value. A backslash escapes commas, equals signs and backslashes.

use std::sync::Arc;

use crate::rules::file::model::RawDescriptor;
use crate::rules::file::reader::Text;
use crate::rules::lookup::matcher::{EntryValue, Matcher};

/// Most items of a pattern.
const ITEMS_MAX: usize = 64;

/// A pattern of texts; `*` stands for any text.
#[derive(Debug)]
pub(super) struct TextPattern(Matcher);

/// An item of a pattern.
#[derive(Debug)]
pub(super) enum PatternItem {
    /// One level.
    Level {
        key: TextPattern,
        /// `None` accepts every value.
        value: Option<TextPattern>,
    },
    /// `**`: any number of levels.
    AnyLevels,
}

impl TextPattern {
    pub(super) fn new(text: Arc<str>) -> TextPattern {
        TextPattern(Matcher::value(text))
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        self.0.matches(&EntryValue::new(text))
    }
}

impl PatternItem {
    /// Whether the item accepts this descriptor as its level.
    pub(super) fn matches(&self, descriptor: &RawDescriptor) -> bool {
        let PatternItem::Level { key, value } = self else { return true };
        let own = descriptor.key.as_ref().and_then(|key| key.value.as_deref());
        own.is_some_and(|own| key.matches(own))
            && value.as_ref().is_none_or(|value| value.matches(&value_text(descriptor)))
    }
}

/// The value of a descriptor as selectors write it.
fn value_text(descriptor: &RawDescriptor) -> String {
    let written = |field: &Option<Text>| field.as_ref().and_then(|field| field.value.clone());
    let fields = [
        ("", written(&descriptor.value)),
        ("template:", written(&descriptor.value_template)),
        ("regex:", written(&descriptor.value_regex)),
        ("cidr:", written(&descriptor.value_cidr)),
    ];
    let mut texts = fields.into_iter().filter_map(|(word, text)| Some((word, text?)));
    texts.next().map(|(word, text)| format!("{word}{text}")).unwrap_or_default()
}

/// Parses a pattern. The error is the problem and the fix.
pub(super) fn parse(text: &str) -> Result<Vec<PatternItem>, (String, &'static str)> {
    let mut items = Vec::new();
    for [key, value] in parts(text) {
        if key == "**" && value.is_empty() {
            items.push(PatternItem::AnyLevels);
            continue;
        }
        if key.is_empty() {
            let hint = "write `key=value,key=value`, one item per level; `*` is any text";
            return Err(("`rule` has a level without a key".to_owned(), hint));
        }
        let value = (!value.is_empty()).then(|| TextPattern::new(value.into()));
        items.push(PatternItem::Level { key: TextPattern::new(key.into()), value });
    }
    if items.len() > ITEMS_MAX {
        let hint = "write `**` for several levels";
        return Err((format!("`rule` has more than {ITEMS_MAX} levels"), hint));
    }
    Ok(items)
}

/// The keys and values between commas, split at the first equals sign. Values may be empty.
fn parts(text: &str) -> Vec<[String; 2]> {
    let mut parts = vec![[String::new(), String::new()]];
    let mut side = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let last = parts.last_mut().expect("there is always a part");
        match c {
            '\\' => last[side].push(chars.next().unwrap_or('\\')),
            ',' => {
                parts.push([String::new(), String::new()]);
                side = 0;
            }
            '=' if side == 0 => side = 1,
            _ => last[side].push(c),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_split_at_commas_and_first_equals_signs() {
        for (text, expected) in [
            ("a=b,c", vec![["a", "b"], ["c", ""]]),
            (r"a\,b=c\=d=e,**", vec![["a,b", "c=d=e"], ["**", ""]]),
            (r"a\=b=c\\", vec![["a=b", r"c\"]]),
            ("", vec![["", ""]]),
            ("a,", vec![["a", ""], ["", ""]]),
            (r"a\", vec![[r"a\", ""]]),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn patterns_without_a_key_or_too_long_are_errors() {
        let long = vec!["a"; ITEMS_MAX + 1].join(",");
        for text in ["", "a,", ",a", "=b", long.as_str()] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&vec!["a"; ITEMS_MAX].join(",")).is_ok());
    }
}
