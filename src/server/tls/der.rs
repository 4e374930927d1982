//! DER: the few fields of an X.509 certificate that rustls keeps to itself (RFC 5280, section 4.1).
//!
//! Nobody is trusted by what is read here alone: rustls has verified the certificate before.

const SEQUENCE: u8 = 0x30;
const OCTETS: u8 = 0x04;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// "Subject alternative name" (2.5.29.17) with its tag and length.
const ALTERNATIVE_NAMES: [u8; 5] = [0x06, 3, 0x55, 0x1d, 0x11];

/// Tag and content of the first element, and what follows it.
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

/// The elements of a sequence's content, as tag and content; they end where the form does.
pub(super) fn elements(mut content: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, inside, rest) = element(content)?;
        content = rest;
        Some((tag, inside))
    })
}

/// The content of a certificate's sequence of begin and end.
pub(super) fn validity(certificate: &[u8]) -> Option<&[u8]> {
    let fields = elements(signed(certificate)?);
    // The version is left out by the oldest. Then: serial number, algorithm, issuer, validity.
    let (tag, content) = fields.skip_while(|(tag, _)| *tag == VERSION).nth(3)?;
    (tag == SEQUENCE).then_some(content)
}

/// A certificate's alternative names, as the tag of their kind and their text.
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

/// What an authority signs of a certificate.
fn signed(certificate: &[u8]) -> Option<&[u8]> {
    inside(inside(certificate)?)
}

/// The content of the sequence that `der` begins with.
fn inside(der: &[u8]) -> Option<&[u8]> {
    element(der).filter(|(tag, ..)| *tag == SEQUENCE).map(|(_, content, _)| content)
}
