//! Rejection of requests that a web page of another site sends through a browser.
//!
//! Such a page can make a browser send requests to loopback. It can read the responses only if a
//! name of its domain resolves to the loopback address (DNS rebinding); `Host` then has that name.
//! For requests that change something, the browser sends the page's origin.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use super::refusal;
use crate::server::http::host;

/// Rejects requests of foreign web pages with 403.
pub(super) async fn check(State(loopback): State<bool>, request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    match check_headers(request.headers(), loopback, reads) {
        Ok(()) => next.run(request).await,
        Err(reason) => refusal(StatusCode::FORBIDDEN, reason),
    }
}

fn check_headers(headers: &HeaderMap, loopback: bool, reads: bool) -> Result<(), &'static str> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST.as_str());
    if loopback && host.is_some_and(|host| !is_loopback(host)) {
        return Err("Host is not a loopback name; use localhost or 127.0.0.1");
    }
    if reads {
        return Ok(());
    }
    let own = |origin: &str| {
        let bare = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        bare.is_some() && bare == host
    };
    let foreign = text(ORIGIN.as_str()).is_some_and(|origin| !own(origin));
    let sites = ["same-origin", "none"];
    if foreign || text("sec-fetch-site").is_some_and(|site| !sites.contains(&site)) {
        return Err("a web page of another origin may not change anything");
    }
    Ok(())
}

/// Whether the name or address in `host` is loopback.
fn is_loopback(host: &str) -> bool {
    host::name(host).is_some_and(|name| {
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (name.parse().expect("a name"), value.parse().expect("a value"))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_loopback_port_accepts_loopback_names_only() {
        for (host, own) in [
            ("localhost", true),
            ("LOCALHOST:6070", true),
            ("127.0.0.1:6070", true),
            ("127.1.2.3", true),
            ("[::1]:6070", true),
            ("[::1]", true),
            ("attacker.example", false),
            ("attacker.example:6070", false),
            ("localhost.attacker.example", false),
            ("127.0.0.1.attacker.example:6070", false),
            ("10.0.0.1:6070", false),
            ("[::1].attacker.example", false),
            ("[::1]attacker", false),
            ("[::1", false),
            ("", false),
        ] {
            let headers = headers(&[("host", host)]);
            assert_eq!(check_headers(&headers, true, true).is_ok(), own, "{host}");
            assert!(check_headers(&headers, false, true).is_ok(), "other ports have other names");
        }
        assert!(check_headers(&headers(&[]), true, true).is_ok(), "HTTP/1.0 has no Host");
    }

    #[test]
    fn changes_by_a_foreign_page_are_refused() {
        let host = ("host", "localhost:6070");
        for (sent, passes) in [
            (vec![], true),
            (vec![("origin", "http://localhost:6070")], true),
            (vec![("origin", "http://attacker.example")], false),
            (vec![("origin", "http://localhost:8000")], false),
            (vec![("origin", "null")], false),
            (vec![("sec-fetch-site", "cross-site")], false),
            (vec![("sec-fetch-site", "same-site")], false),
            (vec![("sec-fetch-site", "same-origin")], true),
            (vec![("sec-fetch-site", "none")], true),
        ] {
            let sent = headers(&[&[host], &*sent].concat());
            for loopback in [true, false] {
                assert_eq!(check_headers(&sent, loopback, false).is_ok(), passes, "{sent:?}");
                assert!(check_headers(&sent, loopback, true).is_ok(), "a read: {sent:?}");
            }
        }
    }
}
