//! Writes selectors: the path of a rule in its domain as one unique text.
//!
//! The format is that of descriptors on the command line: `key=value,key=value`, or a key alone for
//! any value. Other matchers have a prefix: `path=template:/v1/{id}`. A backslash escapes
//! characters with a meaning.

use std::sync::Arc;

use crate::descriptor::Entry;
use crate::rules::lookup::matcher::Matcher;
use crate::rules::lookup::rule::{EntryMatcher, Rule};

/// Characters with a meaning in a key.
const KEY_SPECIAL: [char; 3] = [',', '=', '\\'];

/// The prefixes of templates, regular expressions and networks.
const WORDS: [&str; 3] = ["template:", "regex:", "cidr:"];

impl Rule {
    /// The selector of the rule, unique in its domain.
    pub fn selector(&self) -> String {
        selector(&self.path)
    }

    /// The selector with `..` in place of each pattern whose key `is_hidden`.
    pub fn selector_hiding(&self, is_hidden: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        for node in self.path.iter() {
            push_key(&mut text, &node.key);
            match node.matcher {
                Matcher::Any => {}
                _ if is_hidden(&node.key) => text.push_str("=.."),
                _ => push_pattern(&mut text, node),
            }
        }
        text
    }

    /// The selector, if the rule name is another text.
    pub fn other_selector(&self) -> Option<String> {
        // Without `name`, the rule name is the selector.
        self.name.as_ref()?;
        Some(self.selector()).filter(|selector| **selector != *self.display_name)
    }

    /// The selector with request values at the levels with `detailed_metric` or `value_to_metric`;
    /// `None` without them.
    pub fn detailed_selector(&self, entries: &[Entry<'_>]) -> Option<String> {
        if !self.is_detailed() {
            return None;
        }
        let mut text = String::new();
        for (node, entry) in self.path.iter().zip(entries) {
            push_key(&mut text, &node.key);
            if self.shows_value(node) {
                push_value(&mut text, entry.value);
            } else {
                push_pattern(&mut text, node);
            }
        }
        Some(text)
    }
}

/// A descriptor as a selector.
pub fn descriptor_selector(entries: &[Entry<'_>]) -> String {
    let mut text = String::new();
    for entry in entries {
        push_key(&mut text, entry.key);
        push_value(&mut text, entry.value);
    }
    text
}

/// The selector of the rule at `path`. A rule for any value of one key shares the text of the key: so do
/// nearly all rules of some files with many.
pub(in crate::rules) fn path_selector(path: &[Arc<EntryMatcher>]) -> Arc<str> {
    match path {
        [only] if matches!(only.matcher, Matcher::Any) && !only.key.contains(KEY_SPECIAL) => {
            Arc::clone(&only.key)
        }
        path => selector(path).into(),
    }
}

fn selector(path: &[Arc<EntryMatcher>]) -> String {
    let mut text = String::new();
    for node in path {
        push_key(&mut text, &node.key);
        push_pattern(&mut text, node);
    }
    text
}

/// Starts the next part of a selector with its key.
fn push_key(text: &mut String, key: &str) {
    if !text.is_empty() {
        text.push(',');
    }
    escape(text, key, &KEY_SPECIAL);
}

/// Adds the pattern of a node, as the file has it.
fn push_pattern(text: &mut String, node: &EntryMatcher) {
    let word = match &node.matcher {
        Matcher::Any => return,
        Matcher::Exact(_) | Matcher::Wildcard(_) => return push_value(text, node.matcher.source()),
        Matcher::Template(_) => WORDS[0],
        Matcher::Regex(_) => WORDS[1],
        Matcher::Cidr(_) => WORDS[2],
    };
    text.push('=');
    text.push_str(word);
    escape(text, node.matcher.source(), &[',', '\\']);
}

/// Adds a value of a request.
fn push_value(text: &mut String, value: &str) {
    text.push('=');
    if WORDS.iter().any(|word| value.starts_with(word)) {
        text.push('\\');
    }
    escape(text, value, &[',', '\\']);
}

/// Adds `part`, with a backslash before each special character.
fn escape(text: &mut String, part: &str, special: &[char]) {
    for c in part.chars() {
        if special.contains(&c) {
            text.push('\\');
        }
        text.push(c);
    }
}
