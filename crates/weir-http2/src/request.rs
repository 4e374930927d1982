//! The head of a request: its fields, and whether they make a valid request (RFC 9113, section 8.3).

use crate::hpack::FieldKind;

/// What an application keeps of the fields of a request. Equal header blocks may share one head, which is
/// cloned.
pub trait RequestHead: Clone {
    /// Takes the next field, in the order in which the client sent them. `name` is in lower case, and
    /// one of `:method`, `:scheme`, `:authority` and `:path` begins with a colon. `value` may have any
    /// bytes except control characters.
    fn field(&mut self, name: &[u8], value: &[u8]);

    /// The bytes that the head holds elsewhere in memory, in addition to its own size.
    fn memory(&self) -> usize;
}

/// What a list of fields counts for each, in addition to its texts (RFC 9113, section 6.5.2).
const FIELD_BYTES: usize = 32;

const METHOD: u8 = 1;
const SCHEME: u8 = 2;
const AUTHORITY: u8 = 4;
const PATH: u8 = 8;

/// Checks the fields of one header block.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldCheck {
    /// The pseudo-header fields that have come.
    seen: u8,
    is_connect: bool,
    has_regular: bool,
    is_malformed: bool,
    /// The size of the list.
    bytes: usize,
    content_length: Option<u64>,
}

impl FieldCheck {
    /// Checks the next field. Returns whether the list is valid so far and has at most `max` bytes. The fields of
    /// a larger list are only counted.
    pub(crate) fn check(&mut self, kind: FieldKind, name: &[u8], value: &[u8], max: usize) -> bool {
        self.bytes += name.len() + value.len() + FIELD_BYTES;
        // A list that is too large is refused, so the rest of it is not looked at.
        if self.bytes > max {
            return false;
        }
        match kind {
            FieldKind::Plain => self.has_regular = true,
            FieldKind::Method => self.pseudo(METHOD),
            FieldKind::Connect => {
                self.pseudo(METHOD);
                self.is_connect = true;
            }
            FieldKind::Scheme => self.pseudo(SCHEME),
            FieldKind::Authority => self.pseudo(AUTHORITY),
            FieldKind::Path => self.pseudo(PATH),
            FieldKind::ContentLength => {
                self.has_regular = true;
                let length = decimal(value);
                let differs = self.content_length.is_some() && self.content_length != length;
                self.is_malformed |= length.is_none() || differs;
                self.content_length = length;
            }
            FieldKind::Malformed => self.is_malformed = true,
        }
        !self.is_malformed
    }

    fn pseudo(&mut self, field: u8) {
        self.is_malformed |= self.has_regular || self.seen & field != 0;
        self.seen |= field;
    }

    /// Whether the list has more than `max` bytes.
    pub(crate) fn is_larger_than(&self, max: usize) -> bool {
        self.bytes > max
    }

    /// Whether the fields make a request.
    pub(crate) fn is_request(&self) -> bool {
        let needed = if self.is_connect { METHOD | AUTHORITY } else { METHOD | SCHEME | PATH };
        let optional = if self.is_connect { 0 } else { AUTHORITY };
        !self.is_malformed && self.seen & !optional == needed
    }

    /// Whether the fields make trailers.
    pub(crate) fn is_trailers(&self) -> bool {
        !self.is_malformed && self.seen == 0
    }

    /// The value of `content-length`.
    pub(crate) fn content_length(&self) -> Option<u64> {
        self.content_length
    }
}

/// The most digits of a `content-length`: those of the largest number. A longer value with zeros in front is
/// malformed too, because two bytes of a header block may stand for a value of four thousand.
const DIGITS_MAX: usize = 20;

/// The number that `text` has as digits alone.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.len() > DIGITS_MAX || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(fields: &[(&str, &str)]) -> FieldCheck {
        let mut check = FieldCheck::default();
        for (name, value) in fields {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            check.check(FieldKind::of(name, value), name, value, usize::MAX);
        }
        check
    }

    const POST: (&str, &str) = (":method", "POST");
    const HTTP: (&str, &str) = (":scheme", "http");
    const SLASH: (&str, &str) = (":path", "/");
    const HOST: (&str, &str) = (":authority", "a");
    const PLAIN: (&str, &str) = ("x", "y");

    #[test]
    fn a_request_has_its_pseudo_header_fields_first() {
        let connect = (":method", "CONNECT");
        let table = [
            (&[POST, HTTP, SLASH][..], true),
            (&[POST, HTTP, SLASH, HOST, PLAIN], true),
            (&[connect, HOST, PLAIN], true),
            (&[connect, HOST, SLASH], false),
            (&[connect], false),
            (&[HTTP, SLASH], false),
            (&[POST, SLASH], false),
            (&[POST, HTTP], false),
            (&[POST, HTTP, SLASH, SLASH], false),
            (&[POST, HTTP, PLAIN, SLASH], false),
            (&[POST, HTTP, SLASH, ("X", "")], false),
            (&[POST, HTTP, SLASH, ("content-length", "1"), ("content-length", "1")], true),
            (&[POST, HTTP, SLASH, ("content-length", "1"), ("content-length", "2")], false),
            (&[POST, HTTP, SLASH, ("content-length", "-1")], false),
            (&[POST, HTTP, SLASH, ("content-length", "")], false),
            (&[POST, HTTP, SLASH, ("content-length", "00000000000000000001")], true),
            (&[POST, HTTP, SLASH, ("content-length", "000000000000000000001")], false),
            (&[POST, HTTP, SLASH, ("content-length", "99999999999999999999")], false),
            (&[], false),
        ];
        for (fields, is_request) in table {
            assert_eq!(checked(fields).is_request(), is_request, "{fields:?}");
        }
    }

    #[test]
    fn trailers_have_no_pseudo_header_fields() {
        assert!(checked(&[]).is_trailers());
        assert!(checked(&[PLAIN]).is_trailers());
        assert!(!checked(&[SLASH]).is_trailers());
        assert!(!checked(&[("te", "x")]).is_trailers());
    }

    #[test]
    fn a_list_has_a_size() {
        let check = checked(&[POST, PLAIN]);
        assert!(check.is_larger_than(7 + 4 + 32 + 2 + 31));
        assert!(!check.is_larger_than(7 + 4 + 32 + 2 + 32));
    }
}
