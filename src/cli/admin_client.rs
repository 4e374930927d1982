//! A client of the admin port: one request per connection.
//!
//! It speaks HTTP/1.0, so a response has no chunks and ends with the connection.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::bounded_file;
use crate::escape::excerpt;

mod exchange;
mod wrong_port;

use exchange::exchange;

/// Most characters of an error response that is no JSON.
const ERROR_CHARS_MAX: usize = 300;

/// All ASCII characters except the unreserved ones of RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The admin port to call: flags of commands that need its token.
#[derive(Clone, Debug, Args)]
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
    /// The port at `addr`, with the token in `token_file`.
    pub(super) fn new(addr: String, token_file: Option<PathBuf>) -> AdminArgs {
        AdminArgs { addr, token_file }
    }

    /// Whether requests have a token.
    pub(super) fn has_token(&self) -> bool {
        self.token_file.is_some()
    }

    /// `GET path` with the token.
    ///
    /// # Errors
    ///
    /// See [`AdminArgs::send`].
    pub(super) fn get(&self, path: &str) -> anyhow::Result<AdminResponse> {
        self.send("GET", path, &[], None)
    }

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

impl AdminResponse {
    /// Why the service refused the request, what to do about the token, and the status.
    pub(super) fn reason(&self) -> String {
        let AdminResponse { status, body } = self;
        let reason = body["error"].as_str().unwrap_or("no reason");
        let token = match status {
            403 if reason.starts_with("no authorization") => {
                "; name the file that has the token with --token-file"
            }
            403 if reason.starts_with("the token is wrong") => {
                "; the file of --token-file has another one"
            }
            _ => "",
        };
        format!("{reason}{token} (HTTP status {status})")
    }
}

/// `text` as `host:port`, without `http://`.
pub(super) fn admin_address(text: &str) -> Result<String, String> {
    if let Some(rest) = text.strip_prefix("https://") {
        let rest = rest.trim_end_matches('/');
        return Err(format!("the admin port has no TLS; write http://{rest}"));
    }
    let bare = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    match bare.parse::<http::uri::Authority>() {
        Ok(address) if address.port_u16().is_some() && !address.host().is_empty() => {
            Ok(bare.to_owned())
        }
        _ => Err("this is not an address; write one such as http://127.0.0.1:6070".to_owned()),
    }
}

fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> anyhow::Result<AdminResponse> {
    let failed = |advice: String| anyhow!("no admin port answers at {address}: {advice}");
    let length = body.len();
    let mut head = format!(
        "{method} {path} HTTP/1.0\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n"
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let request = format!("{head}\r\n{body}");
    let received = exchange(address, request.as_bytes())
        .map_err(|error| failed(wrong_port::advice(&error)))?;
    let (status, body) = parse(&received).ok_or_else(|| failed(wrong_port::not_http(&received)))?;
    let is_error = status >= 400;
    match serde_json::from_slice(body) {
        Ok(body) => Ok(AdminResponse { status, body }),
        // A busy listener refuses in plain text.
        Err(_) if is_error && !body.is_empty() => {
            let text = String::from_utf8_lossy(body);
            let error = excerpt(text.trim(), ERROR_CHARS_MAX);
            Ok(AdminResponse { status, body: json!({ "error": error }) })
        }
        Err(_) => Err(failed(wrong_port::not_json(address, path, status))),
    }
}

/// The status and the body of a response; `None` if this is no response of HTTP/1.
pub(super) fn parse(received: &[u8]) -> Option<(u16, &[u8])> {
    let head_end = received.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&received[..head_end]).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some((status, &received[head_end + 4..]))
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
        for text in ["", "127.0.0.1", "http://:1"] {
            assert!(admin_address(text).is_err(), "{text}");
        }
        let tls = admin_address("https://h:1/").expect_err("the port has no TLS");
        assert!(tls.ends_with("has no TLS; write http://h:1"), "{tls}");
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
    fn the_status_and_the_body_are_found() {
        let response = parse(b"HTTP/1.0 403 Forbidden\r\na: b\r\n\r\n{\"error\": \"x\"}");
        assert_eq!(response, Some((403, &b"{\"error\": \"x\"}"[..])));
        for other in [&b""[..], b"\0\0\x12\x04", b"HTTP/1.1 200 OK\r\n"] {
            assert!(parse(other).is_none());
        }
        assert_eq!(query_value("path=/a b,k=\u{fc}"), "path%3D%2Fa%20b%2Ck%3D%C3%BC");
    }

    /// The reasons are those of `src/server/http/admin/access.rs` and `token.rs`.
    #[test]
    fn a_refused_token_says_what_to_do() {
        for (status, error, fix) in [
            (403, "no authorization; send", "with --token-file (HTTP status 403)"),
            (403, "the token is wrong; send", "has another one (HTTP status 403)"),
            (403, "admin.listen is not", "is not (HTTP status 403)"),
            (404, "no rule", "no rule (HTTP status 404)"),
        ] {
            let reason = AdminResponse { status, body: json!({ "error": error }) }.reason();
            assert!(reason.ends_with(fix), "{reason}");
        }
    }
}
