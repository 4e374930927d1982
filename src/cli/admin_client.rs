//! A client of the admin port: one request per connection.
//!
//! It speaks HTTP/1.0, so a response has no chunks and ends with the connection.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::Context;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// Longest wait for a connection, and for each part of a response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Largest response in bytes.
const RESPONSE_BYTES_MAX: u64 = 16 << 20;

/// All ASCII characters except the unreserved ones of RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

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
    send(address, "GET", path, "")
}

/// `POST path`.
pub(super) fn post(address: &str, path: &str, body: &Value) -> anyhow::Result<AdminResponse> {
    send(address, "POST", path, &body.to_string())
}

fn send(address: &str, method: &str, path: &str, body: &str) -> anyhow::Result<AdminResponse> {
    let failed =
        || format!("no admin port answers at {address}; name that of `weir serve` (admin.listen)");
    let response = exchange(address, method, path, body).with_context(failed)?;
    parse(&response).with_context(failed)
}

/// The bytes of the response.
fn exchange(address: &str, method: &str, path: &str, body: &str) -> std::io::Result<Vec<u8>> {
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
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
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

/// `text` as a value in the query of a URL.
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
