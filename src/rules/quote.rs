//! Formats texts from files and requests for messages: short and on one line.

use std::borrow::Cow;

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
