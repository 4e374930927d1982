//! A client of the admin port: one request per connection.
//!
//! It speaks HTTP/1.0, so a response has no chunks and ends with the connection.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::bounded_file;

/// Longest wait for a connection, and for each part of a response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Largest response in bytes.
const RESPONSE_BYTES_MAX: u64 = 16 << 20;

/// All ASCII characters except the unreserved ones of RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The admin port to call: flags of commands that need its token.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// Address of the admin listener of a running service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:6070",
        value_parser = admin_address)]
    addr: String,
    /// File whose first line is the token of the admin listener [default: no token]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl AdminArgs {
    /// Sends a request with the token, with `headers`, and with `body` if there is one.
    ///
    /// # Errors
    ///
    /// A token that cannot be used, or no response with JSON.
    pub(super) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> anyhow::Result<AdminResponse> {
        let mut all = headers.to_vec();
        let authorization = self.authorization()?;
        all.extend(authorization.as_deref().map(|value| ("authorization", value)));
        let body = body.map(Value::to_string).unwrap_or_default();
        send(&self.addr, method, path, &all, &body)
    }

    /// The header with the token; `None` without a file.
    fn authorization(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let failed = || format!("--token-file {}", path.display());
        let line = bounded_file::first_line(path).with_context(failed)?;
        let header = format!("Bearer {}", line.trim());
        HeaderValue::from_str(&header).context("it has no token").with_context(failed)?;
        Ok(Some(header))
    }
}

/// The status and the JSON of a response.
pub(super) struct AdminResponse {
    pub(super) status: u16,
    pub(super) body: Value,
}

/// `text` as `host:port`, without `http://`.
pub(super) fn admin_address(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    match bare.parse::<http::uri::Authority>() {
        Ok(address) if address.port_u16().is_some() && !address.host().is_empty() => {
            Ok(bare.to_owned())
        }
        _ => Err("this is not an address; write one such as http://127.0.0.1:6070".to_owned()),
    }
}

/// `GET path`.
pub(super) fn get(address: &str, path: &str) -> anyhow::Result<AdminResponse> {
    send(address, "GET", path, &[], "")
}

/// `POST path`.
pub(super) fn post(address: &str, path: &str, body: &Value) -> anyhow::Result<AdminResponse> {
    send(address, "POST", path, &[], &body.to_string())
}

fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> anyhow::Result<AdminResponse> {
    let failed =
        || format!("no admin port answers at {address}; name that of `weir serve` (admin.listen)");
    let length = body.len();
    let mut head = format!(
        "{method} {path} HTTP/1.0\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n"
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let request = format!("{head}\r\n{body}");
    let response = exchange(address, request.as_bytes()).with_context(failed)?;
    parse(&response).with_context(failed)
}

/// The bytes of the response.
fn exchange(address: &str, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut last = std::io::Error::other("the name has no address");
    let mut connected = None;
    for one in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&one, TIMEOUT) {
            Ok(stream) => {
                connected = Some(stream);
                break;
            }
            Err(error) => last = error,
        }
    }
    let Some(mut stream) = connected else { return Err(last) };
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(request)?;
    let mut response = Vec::new();
    stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response)?;
    Ok(response)
}

/// `None` if this is no HTTP response with JSON.
fn parse(response: &[u8]) -> Option<AdminResponse> {
    let head_end = response.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&response[..head_end]).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let body = serde_json::from_slice(&response[head_end + 4..]).ok()?;
    Some(AdminResponse { status, body })
}

/// `text` as a value in the query of a URL, or as one segment of its path.
pub(super) fn query_value(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_address_may_have_its_scheme() {
        for text in ["http://127.0.0.1:6070", "http://127.0.0.1:6070/", "127.0.0.1:6070"] {
            assert_eq!(admin_address(text).as_deref(), Ok("127.0.0.1:6070"));
        }
        for text in ["", "127.0.0.1", "https://h:1", "http://:1"] {
            assert!(admin_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_token_is_the_first_line_of_its_file() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let args = |token_file| AdminArgs { addr: String::new(), token_file };
        let of_file = || args(Some(file.path().to_owned())).authorization();
        std::fs::write(file.path(), " s3cret \nmore").expect("it can be written");
        assert_eq!(of_file().expect("a token").as_deref(), Some("Bearer s3cret"));
        std::fs::write(file.path(), "a\rx-y: z").expect("it can be written");
        assert!(of_file().is_err(), "it could add a header");
        assert!(args(Some("/nonexistent".into())).authorization().is_err());
        assert!(args(None).authorization().expect("no token").is_none());
    }

    #[test]
    fn only_json_over_http_is_a_response() {
        let response = parse(b"HTTP/1.0 403 Forbidden\r\na: b\r\n\r\n{\"error\": \"x\"}");
        let response = response.expect("a response");
        assert_eq!((response.status, &response.body["error"]), (403, &Value::from("x")));
        for other in [&b"HTTP/1.1 200 OK\r\n\r\nOK"[..], b"\0\0\x12\x04", b"HTTP/1.1 200 OK\r\n"] {
            assert!(parse(other).is_none());
        }
        assert_eq!(query_value("path=/a b,k=\u{fc}"), "path%3D%2Fa%20b%2Ck%3D%C3%BC");
    }
}
