//! Escapes texts of files and requests for messages: a text cannot add a line to a log or to a
//! terminal, and cannot change the order in which a line is shown.

use std::borrow::Cow;

/// `text` on one line, with special characters escaped as in Rust.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_special) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_special(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// The first `chars` characters of `text` as [`one_line`] writes them, with `...` if there are more.
pub fn excerpt(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}...", one_line(&text[..end])),
        None => one_line(text).into_owned(),
    }
}

/// `json`, the text of a JSON value, with the special characters of its strings written as `\uXXXX`. It has
/// the same meaning. JSON itself only forbids control characters below U+0020 in strings.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    // The control characters of ASCII outside of strings are white space.
    let is_escaped = |c: char| is_special(c) && c >= '\u{7f}';
    if !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        if is_escaped(c) {
            // No special character is over U+FFFF.
            escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Control characters, separators of lines and paragraphs, and characters that change the direction
/// of text (UAX #9: marks, embeddings, overrides, isolates).
fn is_special(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        assert!(matches!(one_line("plain grün \u{1f600}"), Cow::Borrowed(_)));
        for (text, escaped) in [
            ("a\nb\r\t", "a\\nb\\r\\t"),
            ("\u{1b}[31m\0\u{7f}\u{85}", "\\u{1b}[31m\\u{0}\\u{7f}\\u{85}"),
            ("\u{2028}\u{2029}", "\\u{2028}\\u{2029}"),
            ("\u{202a}\u{202e}x\u{2066}", "\\u{202a}\\u{202e}x\\u{2066}"),
            ("\u{200f}grün\u{61c}", "\\u{200f}grün\\u{61c}"),
        ] {
            assert_eq!(one_line(text), escaped);
        }
    }

    #[test]
    fn escaped_json_has_the_same_meaning() {
        let special: String = ('\0'..=char::MAX).filter(|c| is_special(*c)).collect();
        assert!(special.chars().all(|c| u32::from(c) <= 0xffff));
        let special = format!("{special} \\ \" grün \u{1f600} \\\u{202e}");
        let value = serde_json::json!({ special.clone(): [special, 1, null] });
        for json in [value.to_string(), serde_json::to_string_pretty(&value).expect("JSON")] {
            let escaped = escaped_json(&json);
            assert!(!escaped.contains(|c: char| is_special(c) && c != '\n'), "{escaped}");
            let read: serde_json::Value = serde_json::from_str(&escaped).expect("JSON");
            assert_eq!(read, value);
        }
        assert_eq!(escaped_json("\"\u{9b}\u{202e}\""), r#""\u009b\u202e""#);
        assert!(matches!(escaped_json("{\n  \"a\": \"\\u0000 grün\"\n}"), Cow::Borrowed(_)));
    }

    #[test]
    fn an_excerpt_ends_at_a_character() {
        assert_eq!(excerpt("grün", 4), "grün");
        assert_eq!(excerpt("grün", 3), "grü...");
        assert_eq!(excerpt("\n\n", 1), "\\n...");
    }
}
