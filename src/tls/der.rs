//! The DER fields of an X.509 certificate that rustls does not expose (RFC 5280, section 4.1).
//!
//! Trust never depends on this alone: rustls has verified the certificate before.

const SEQUENCE: u8 = 0x30;
const OCTETS: u8 = 0x04;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// The object identifier of subject alternative names (2.5.29.17), with tag and length.
const ALTERNATIVE_NAMES: [u8; 5] = [0x06, 3, 0x55, 0x1d, 0x11];

/// Tag and content of the first element, and the bytes after it.
pub(super) fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Tag and content of the elements of a sequence; ends at the first malformed element.
pub(super) fn elements(mut content: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, inside, rest) = element(content)?;
        content = rest;
        Some((tag, inside))
    })
}

/// The content of a certificate's validity sequence.
pub(super) fn validity(certificate: &[u8]) -> Option<&[u8]> {
    let fields = elements(signed(certificate)?);
    // The version is optional. Then follow serial number, algorithm, issuer and validity.
    let (tag, content) = fields.skip_while(|(tag, _)| *tag == VERSION).nth(3)?;
    (tag == SEQUENCE).then_some(content)
}

/// The subject alternative names of a certificate: tag and text.
pub(super) fn names(certificate: &[u8]) -> impl Iterator<Item = (u8, &str)> {
    let of_extension = |(_, extension)| {
        let value = <[u8]>::strip_prefix(extension, &ALTERNATIVE_NAMES)?;
        let (_, value) = elements(value).find(|(tag, _)| *tag == OCTETS)?;
        inside(value)
    };
    let names = signed(certificate)
        .and_then(|signed| elements(signed).find(|(tag, _)| *tag == EXTENSIONS))
        .and_then(|(_, extensions)| elements(inside(extensions)?).find_map(of_extension));
    elements(names.unwrap_or_default())
        .filter_map(|(tag, name)| Some((tag, std::str::from_utf8(name).ok()?)))
}

/// The signed part of a certificate.
fn signed(certificate: &[u8]) -> Option<&[u8]> {
    inside(inside(certificate)?)
}

/// The content of the sequence at the start of `der`.
fn inside(der: &[u8]) -> Option<&[u8]> {
    element(der).filter(|(tag, ..)| *tag == SEQUENCE).map(|(_, content, _)| content)
}
