//! Parses descriptors written as `key=value,key=value`, for the command line and URLs.

use std::fmt;
use std::str::FromStr;

use super::Entry;
use crate::escape::excerpt;

/// Longest part of a descriptor in an error, in characters.
const CHARS_MAX: usize = 80;

/// The entries of a descriptor that was parsed from text, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedDescriptor(
    /// The keys and values.
    pub Vec<(String, String)>,
);

impl ParsedDescriptor {
    /// The entries, borrowed.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        self.0.iter().map(|(key, value)| Entry { key, value }).collect()
    }
}

impl FromStr for ParsedDescriptor {
    type Err = String;

    fn from_str(text: &str) -> Result<ParsedDescriptor, String> {
        let mut entries = Vec::new();
        if text.is_empty() {
            return Err("it is empty; write key=value,key=value".to_owned());
        }
        for part in split_at_commas(text) {
            if part.is_empty() {
                let text = excerpt(text, CHARS_MAX);
                return Err(format!("`{text}` has a comma too many; write key=value,key=value"));
            }
            let Some((key, value)) = part.split_once('=') else {
                let part = excerpt(&part, CHARS_MAX);
                return Err(format!("`{part}` has no value; write `{part}=` for an empty one"));
            };
            if key.is_empty() {
                let part = excerpt(&part, CHARS_MAX);
                return Err(format!("`{part}` has no key; write key=value,key=value"));
            }
            entries.push((key.to_owned(), value.to_owned()));
        }
        Ok(ParsedDescriptor(entries))
    }
}

impl fmt::Display for ParsedDescriptor {
    /// As it is parsed: `key=value,key=value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = |text: &str| text.replace('\\', r"\\").replace(',', r"\,");
        for (index, (key, value)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{}={}", escaped(key), escaped(value))?;
        }
        Ok(())
    }
}

/// The parts between commas. A backslash escapes the next character.
fn split_at_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let last = parts.last_mut().expect("there is always a part");
        match c {
            '\\' => last.push(chars.next().unwrap_or('\\')),
            ',' => parts.push(String::new()),
            _ => last.push(c),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_split_at_commas_and_equals_signs() {
        let parse = |text: &str| text.parse::<ParsedDescriptor>().map(|arg| arg.0);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(parse("a=b"), Ok(vec![pair("a", "b")]));
        assert_eq!(parse("a=b=c,d="), Ok(vec![pair("a", "b=c"), pair("d", "")]));
        assert!(parse("a").is_err_and(|error| error.contains("`a=`")));
        assert_eq!(parse(r"a=b\,c\\,d=e"), Ok(vec![pair("a", r"b,c\"), pair("d", "e")]));
        assert!(parse("=b").is_err_and(|error| error.contains("no key")));
        assert!(parse("").is_err_and(|error| error.starts_with("it is empty; write key=value")));
        for text in ["a=b,,c=d", "a=b,", ",a=b", ","] {
            let error = format!("`{text}` has a comma too many; write key=value,key=value");
            assert_eq!(parse(text), Err(error));
        }
    }
}
