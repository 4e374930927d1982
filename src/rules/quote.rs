//! Formats texts from files and requests for messages: short, on one line, quoted.

use std::borrow::Cow;

use super::matcher::Matcher;
use super::rule::PathNode;
use crate::descriptor::Entry;

/// The first 80 characters of a text from a file or a request, on one line, for a message.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", one_line(&text[..end])),
        None => one_line(text).into_owned(),
    }
}

/// The text with control characters escaped, so that a value cannot forge log lines.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    Cow::Owned(text.chars().map(escape).collect())
}

/// The entry as `key=value`.
pub(super) fn entry_text(entry: &Entry<'_>) -> String {
    format!("{}={}", shorten(entry.key), shorten(entry.value))
}

/// The key and the values that a node accepts, in words.
pub(super) fn accepts(node: &PathNode) -> String {
    let key = shorten(&node.key);
    match &node.matcher {
        Matcher::Any => format!("`{key}` with any value"),
        other => format!("`{key}` with {} `{}`", other.noun(), shorten(other.source())),
    }
}
