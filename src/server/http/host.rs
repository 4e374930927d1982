//! The `Host` of a request (RFC 9112, section 3.2).

use std::net::Ipv6Addr;

use axum::extract::Request;
use axum::http::header::{CONNECTION, HOST};
use axum::http::{HeaderMap, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Rejects a request without exactly one valid `Host` with 400, and closes its connection. HTTP/1.0
/// needs none.
pub(super) async fn check(request: Request, next: Next) -> Response {
    match check_headers(request.headers(), request.version()) {
        Ok(()) => next.run(request).await,
        Err(reason) => (StatusCode::BAD_REQUEST, [(CONNECTION, "close")], reason).into_response(),
    }
}

fn check_headers(headers: &HeaderMap, version: Version) -> Result<(), &'static str> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if version < Version::HTTP_11 => Ok(()),
        (None, _) => Err("the request has no Host header; send one\n"),
        (Some(_), Some(_)) => Err("the request has several Host headers; send one\n"),
        (Some(host), None) => match host.to_str().ok().and_then(name) {
            Some(_) => Ok(()),
            None => Err("the Host header is not a host with an optional port; correct it\n"),
        },
    }
}

/// The name or the address in `host`, without brackets and port. `None` if the whole is not
/// `uri-host [":" port]` (RFC 3986, section 3.2).
pub(super) fn name(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (address, port)
        }
        None => {
            let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
            let fits =
                |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte);
            name.bytes().all(fits).then_some((name, port))?
        }
    };
    let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(digits)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_host_is_accepted_as_a_whole_only() {
        for (host, expected) in [
            ("localhost", Some("localhost")),
            ("localhost:6070", Some("localhost")),
            ("weir_a.ns.svc.cluster.local:8080", Some("weir_a.ns.svc.cluster.local")),
            ("127.0.0.1:6070", Some("127.0.0.1")),
            ("[::1]", Some("::1")),
            ("[::1]:6070", Some("::1")),
            ("[::ffff:10.0.0.1]:80", Some("::ffff:10.0.0.1")),
            // RFC 9110 allows an empty host, and RFC 3986 an empty port.
            ("", Some("")),
            ("localhost:", Some("localhost")),
            ("[::1].attacker.example", None),
            ("[::1]attacker", None),
            ("[::1]:80:80", None),
            ("[::1", None),
            ("[localhost]", None),
            ("::1", None),
            ("localhost:80:80", None),
            ("localhost:http", None),
            ("user@localhost", None),
            ("localhost/path", None),
            ("local host", None),
            ("localhost,attacker.example/", None),
        ] {
            assert_eq!(name(host), expected, "{host}");
        }
    }

    #[test]
    fn http_1_1_needs_exactly_one_host() {
        let of = |hosts: &[&'static str]| {
            let hosts = hosts.iter().map(|&host| (HOST, HeaderValue::from_static(host)));
            hosts.collect::<HeaderMap>()
        };
        let (old, new) = (Version::HTTP_10, Version::HTTP_11);
        assert!(check_headers(&of(&[]), old).is_ok() && check_headers(&of(&[]), new).is_err());
        for version in [old, new] {
            assert!(check_headers(&of(&["a"]), version).is_ok());
            assert!(check_headers(&of(&["a", "a"]), version).is_err());
            assert!(check_headers(&of(&["a", "b"]), version).is_err());
            assert!(check_headers(&of(&["a b"]), version).is_err());
        }
    }
}
