//! The part of curl that the pages use.

use std::net::SocketAddr;

use crate::support::http::{Response, send};

/// A request as curl's arguments describe it.
pub(super) struct Curl {
    pub(super) port: u16,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Curl {
    /// Reads the arguments of curl. Panics on those that no page uses yet.
    pub(super) fn parse(args: &[String]) -> Curl {
        let (mut method, mut url, mut body) = (None, None, None);
        let mut headers = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().expect("a value after the flag").clone();
            match arg.as_str() {
                "-i" | "-s" => {}
                "-X" => method = Some(value()),
                "-d" => body = Some(value()),
                "-H" => {
                    let header = value();
                    let (name, text) = header.split_once(':').expect("a name and a value");
                    headers.push((name.to_ascii_lowercase(), text.trim().to_owned()));
                }
                other if other.starts_with('-') => panic!("curl.rs does not know {other}"),
                _ => url = Some(arg.trim_start_matches("http://")),
            }
        }
        // The type that curl sends with `-d`.
        if body.is_some() {
            let form = "application/x-www-form-urlencoded";
            headers.push(("content-type".to_owned(), form.to_owned()));
        }
        let default = if body.is_some() { "POST" } else { "GET" };
        let url = url.expect("an address");
        let (host, path) = url.split_once('/').unwrap_or((url, ""));
        let (_, port) = host.rsplit_once(':').expect("a port");
        Curl {
            port: port.parse().expect("a number"),
            method: method.unwrap_or_else(|| default.to_owned()),
            path: format!("/{path}"),
            headers,
            body: body.unwrap_or_default(),
        }
    }

    /// Sends the request to the service at `to`.
    pub(super) fn send(&self, to: SocketAddr) -> Response {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        send(to, &self.method, &self.path, &headers, self.body.as_bytes())
    }
}

#[test]
fn arguments_of_curl_are_read() {
    let parse = |text: &str| Curl::parse(&super::text::words(text));
    let get = parse("-i -H 'X-User: alice' http://127.0.0.1:10000/");
    assert_eq!((get.port, get.method.as_str(), get.path.as_str()), (10000, "GET", "/"));
    assert_eq!(get.headers, [("x-user".to_owned(), "alice".to_owned())]);
    let post = parse("localhost:8080/json -d '{}'");
    assert_eq!((post.port, post.method.as_str(), post.path.as_str()), (8080, "POST", "/json"));
    assert_eq!(post.body, "{}");
    let delete = parse("-X DELETE 'localhost:6070/counters?domain=d&descriptor=a=b'");
    assert_eq!(delete.method, "DELETE");
    assert_eq!(delete.path, "/counters?domain=d&descriptor=a=b");
}
