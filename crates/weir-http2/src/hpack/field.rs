//! What a request field is, and whether it is valid (RFC 9113, sections 8.2 and 8.3).

/// What a field means to HTTP/2. It is computed once for each entry of the header table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// `:method`, except for `CONNECT`.
    Method,
    /// `:method: CONNECT`, which has no path.
    Connect,
    /// `:scheme`.
    Scheme,
    /// `:authority`.
    Authority,
    /// `:path`, which is not empty.
    Path,
    /// `content-length`.
    ContentLength,
    /// A field without a meaning to HTTP/2.
    Plain,
    /// A field that no request may have. It makes the request malformed.
    Malformed,
}

/// What a field name means to HTTP/2. It is computed once for each entry of the header table, because a
/// client may refer to a name of four thousand bytes with two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    Method,
    Scheme,
    Authority,
    Path,
    ContentLength,
    Te,
    Plain,
    Malformed,
}

impl NameKind {
    /// The kind of `name`.
    pub(super) fn of(name: &[u8]) -> NameKind {
        match name {
            b":method" => NameKind::Method,
            b":scheme" => NameKind::Scheme,
            b":authority" => NameKind::Authority,
            b":path" => NameKind::Path,
            b"content-length" => NameKind::ContentLength,
            b"te" => NameKind::Te,
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => NameKind::Malformed,
            name if !name.is_empty() && name.iter().all(|&byte| is_name_byte(byte)) => {
                NameKind::Plain
            }
            _ => NameKind::Malformed,
        }
    }

    /// The kind of a field with this name and `value`.
    pub(super) fn with_value(self, value: &[u8]) -> FieldKind {
        if !value.iter().all(|&byte| is_value_byte(byte)) {
            return FieldKind::Malformed;
        }
        match self {
            NameKind::Method if value == b"CONNECT" => FieldKind::Connect,
            NameKind::Method => FieldKind::Method,
            NameKind::Scheme => FieldKind::Scheme,
            NameKind::Authority => FieldKind::Authority,
            NameKind::Path if !value.is_empty() => FieldKind::Path,
            NameKind::ContentLength => FieldKind::ContentLength,
            NameKind::Te if value == b"trailers" => FieldKind::Plain,
            NameKind::Plain => FieldKind::Plain,
            NameKind::Path | NameKind::Te | NameKind::Malformed => FieldKind::Malformed,
        }
    }
}

#[cfg(test)]
impl FieldKind {
    /// The kind of the field `name: value`.
    pub(crate) fn of(name: &[u8], value: &[u8]) -> FieldKind {
        NameKind::of(name).with_value(value)
    }
}

/// Whether a field name may have `byte`: a token without capital letters (RFC 9110, section 5.6.2).
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a field value may have `byte`: no control character except a tab.
fn is_value_byte(byte: u8) -> bool {
    (byte >= b' ' && byte != 0x7f) || byte == b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_kind() {
        use FieldKind::*;
        let table: [(&[u8], &[u8], FieldKind); 24] = [
            (b":method", b"POST", Method),
            (b":method", b"CONNECT", Connect),
            (b":scheme", b"", Scheme),
            (b":authority", b"", Authority),
            (b":path", b"/", Path),
            (b":path", b"", Malformed),
            (b":status", b"200", Malformed),
            (b":protocol", b"websocket", Malformed),
            (b"", b"", Malformed),
            (b"content-length", b"x", ContentLength),
            (b"te", b"trailers", Plain),
            (b"te", b"gzip", Malformed),
            (b"connection", b"close", Malformed),
            (b"keep-alive", b"", Malformed),
            (b"proxy-connection", b"", Malformed),
            (b"transfer-encoding", b"chunked", Malformed),
            (b"upgrade", b"h2c", Malformed),
            (b"grpc-timeout", b"1S", Plain),
            (b"x_y.z", b"\t \xff", Plain),
            (b"X", b"", Malformed),
            (b"a b", b"", Malformed),
            (b"x", b"\n", Malformed),
            (b"x", b"\0", Malformed),
            (b"x", b"\x7f", Malformed),
        ];
        for (name, value, kind) in table {
            assert_eq!(FieldKind::of(name, value), kind, "{name:?}: {value:?}");
        }
    }
}
