//! The static table (RFC 7541, appendix A).

use super::FieldKind;

/// A field of the static table.
type StaticField = (FieldKind, &'static [u8], &'static [u8]);

/// The number of entries. Larger indexes are those of the dynamic table.
pub(super) const ENTRIES: usize = FIELDS.len();

/// The field with `index`, which counts from 1.
pub(super) fn get(index: usize) -> Option<StaticField> {
    FIELDS.get(index.checked_sub(1)?).copied()
}

const fn plain(name: &'static [u8]) -> StaticField {
    (FieldKind::Plain, name, b"")
}

const fn malformed(name: &'static [u8], value: &'static [u8]) -> StaticField {
    (FieldKind::Malformed, name, value)
}

#[rustfmt::skip]
const FIELDS: [StaticField; 61] = [
    (FieldKind::Authority, b":authority", b""),
    (FieldKind::Method, b":method", b"GET"),
    (FieldKind::Method, b":method", b"POST"),
    (FieldKind::Path, b":path", b"/"),
    (FieldKind::Path, b":path", b"/index.html"),
    (FieldKind::Scheme, b":scheme", b"http"),
    (FieldKind::Scheme, b":scheme", b"https"),
    malformed(b":status", b"200"),
    malformed(b":status", b"204"),
    malformed(b":status", b"206"),
    malformed(b":status", b"304"),
    malformed(b":status", b"400"),
    malformed(b":status", b"404"),
    malformed(b":status", b"500"),
    plain(b"accept-charset"),
    (FieldKind::Plain, b"accept-encoding", b"gzip, deflate"),
    plain(b"accept-language"), plain(b"accept-ranges"), plain(b"accept"),
    plain(b"access-control-allow-origin"), plain(b"age"), plain(b"allow"), plain(b"authorization"),
    plain(b"cache-control"), plain(b"content-disposition"), plain(b"content-encoding"),
    plain(b"content-language"), (FieldKind::ContentLength, b"content-length", b""),
    plain(b"content-location"), plain(b"content-range"), plain(b"content-type"), plain(b"cookie"),
    plain(b"date"), plain(b"etag"), plain(b"expect"), plain(b"expires"), plain(b"from"),
    plain(b"host"), plain(b"if-match"), plain(b"if-modified-since"), plain(b"if-none-match"),
    plain(b"if-range"), plain(b"if-unmodified-since"), plain(b"last-modified"), plain(b"link"),
    plain(b"location"), plain(b"max-forwards"), plain(b"proxy-authenticate"),
    plain(b"proxy-authorization"), plain(b"range"), plain(b"referer"), plain(b"refresh"),
    plain(b"retry-after"), plain(b"server"), plain(b"set-cookie"),
    plain(b"strict-transport-security"), malformed(b"transfer-encoding", b""),
    plain(b"user-agent"), plain(b"vary"), plain(b"via"), plain(b"www-authenticate"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_count_from_one() {
        let name = |index| get(index).map(|(_, name, _)| name);
        assert_eq!(name(0), None);
        assert_eq!(name(1), Some(&b":authority"[..]));
        assert_eq!(name(31), Some(&b"content-type"[..]));
        assert_eq!(name(61), Some(&b"www-authenticate"[..]));
        assert_eq!(name(62), None);
    }

    #[test]
    fn entries_have_the_kind_of_their_field() {
        for (kind, name, value) in FIELDS {
            assert_eq!(kind, FieldKind::of(name, value), "{name:?}");
        }
    }
}
