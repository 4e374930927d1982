//! Values of settings for both OTLP exports: protocol, headers, and address.

use std::fmt;

use percent_encoding::percent_decode_str;
use serde::{Serialize, Serializer};

use super::scalar::is_server_name;
use super::secret::SecretUrl;

/// The protocol of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// Protocol Buffers over HTTP/1.1.
    Http,
    /// gRPC.
    Grpc,
}

impl OtlpProtocol {
    /// Every protocol with its name in settings.
    pub(super) const NAMES: [(&'static str, OtlpProtocol); 2] =
        [("http", OtlpProtocol::Http), ("grpc", OtlpProtocol::Grpc)];
}

/// Names and values of the headers for a collector. Values are never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OtlpHeaders(Vec<(String, String)>);

impl OtlpHeaders {
    /// The headers with their values.
    pub fn reveal(&self) -> &[(String, String)] {
        &self.0
    }

    /// Parses `name=value,name=value`. Values may be percent-encoded.
    pub(super) fn parse(text: &str) -> Result<OtlpHeaders, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let headers = parts.map(|part| {
            let (name, value) = part.split_once('=')?;
            let (name, value) = (name.trim(), decoded(value.trim())?);
            http::HeaderName::try_from(name).ok()?;
            http::HeaderValue::try_from(&value).ok()?;
            Some((name.to_owned(), value))
        });
        let wrong = "are not headers; write `name=value,name=value`, with %2C for a comma";
        headers.collect::<Option<_>>().map(OtlpHeaders).ok_or_else(|| wrong.to_owned())
    }
}

impl fmt::Display for OtlpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(|(name, _)| format!("{name}=hidden")).collect();
        f.write_str(&names.join(","))
    }
}

impl fmt::Debug for OtlpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for OtlpHeaders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `text` with its percent-encoding (`%20`) decoded; `None` for a `%` without two hexadecimal digits.
fn decoded(text: &str) -> Option<String> {
    let has_digits = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    text.split('%').skip(1).all(has_digits).then(|| decoded.into_owned())
}

/// The address of a collector.
pub(super) fn collector(text: &str) -> Result<SecretUrl, String> {
    let what = "is not the address of a collector; write `http://` or `https://`, a host and a \
                port, and put a password into the headers";
    let uri = text.parse::<http::Uri>().map_err(|_| what.to_owned())?;
    let known = match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(_)) => true,
        (Some("https"), Some(host)) => is_server_name(host),
        _ => false,
    };
    // The text before an `@` is masked. In a path or a query it would hide the host in `/settings`.
    if known && !text.contains('@') { Ok(SecretUrl::new(text)) } else { Err(what.to_owned()) }
}
