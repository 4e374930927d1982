//! A minimal HTTP/1.1 client with one request per connection.

pub(crate) mod stream;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::wait::TIMEOUT;

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names are in lower case, in the order of the response.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    /// The values of a header, joined with `, ` as RFC 9110 allows.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let values = self.headers.iter().filter(|(key, _)| key == name);
        let values: Vec<_> = values.map(|(_, value)| value.as_str()).collect();
        if values.is_empty() { None } else { Some(values.join(", ")) }
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.body))
    }
}

/// `GET path`.
pub(crate) fn get(to: SocketAddr, path: &str) -> Response {
    send(to, "GET", path, &[], b"")
}

/// `GET path` with headers.
pub(crate) fn get_with(to: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Response {
    send(to, "GET", path, headers, b"")
}

/// `POST path`.
pub(crate) fn post(to: SocketAddr, path: &str, body: impl AsRef<[u8]>) -> Response {
    send(to, "POST", path, &[("content-type", "application/json")], body.as_ref())
}

/// Any method on `path`.
pub(crate) fn send(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    // Adds `host` unless the test sets one.
    if headers.iter().all(|(name, _)| *name != "host") {
        request.push_str(&format!("host: {to}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n", body.len()));

    let mut stream = TcpStream::connect(to).unwrap_or_else(|e| panic!("connect to {to}: {e}"));
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout that is not zero");
    stream.write_all(request.as_bytes()).expect("the request's head can be sent");
    // A server may reject a large body without reading it. Then only its response counts.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer);
    parse(&answer).unwrap_or_else(|| {
        panic!("{method} {path} at {to}: {end:?}, got {:?}", String::from_utf8_lossy(&answer))
    })
}

/// Parses a response. Its end may be missing.
pub(super) fn parse(answer: &[u8]) -> Option<Response> {
    let head_end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..head_end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let rest = &answer[head_end + 4..];
    let chunked = headers.iter().any(|header| header.0 == "transfer-encoding");
    let body = if chunked { unchunk(rest)? } else { rest.to_vec() };
    Some(Response { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
}

/// Joins the chunks of a chunked body (RFC 9112, section 7.1).
fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line_end]).ok()?, 16).ok()?;
        rest = &rest[line_end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}
