//! Excerpts of texts from files and requests, for messages: short and on one line.

use crate::escape::excerpt;

/// Longest text in a message, in characters.
const CHARS_MAX: usize = 80;

/// The first characters of a text from a file or a request, on one line, for a message.
pub(super) fn shorten(text: &str) -> String {
    excerpt(text, CHARS_MAX)
}
