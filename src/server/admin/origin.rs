//! The origin of a request: what a web page in somebody's browser may not do here.
//!
//! A page from elsewhere can have a browser send requests to loopback. It cannot read the answers,
//! unless it names the loopback address by a name of its own (DNS rebinding), which shows in `Host`;
//! and where it changes something, the browser says where it comes from.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use super::refusal;

/// Refuses what only a web page from elsewhere would send.
pub(super) async fn check(State(loopback): State<bool>, request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    match judge(request.headers(), loopback, reads) {
        Ok(()) => next.run(request).await,
        Err(reason) => refusal(StatusCode::FORBIDDEN, reason),
    }
}

fn judge(headers: &HeaderMap, loopback: bool, reads: bool) -> Result<(), &'static str> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST.as_str());
    if loopback && host.is_some_and(|host| !is_loopback(host)) {
        return Err("this port is for this machine alone: ask it as localhost or 127.0.0.1");
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
        return Err("web pages from elsewhere may not change anything here");
    }
    Ok(())
}

/// The name or address in a `Host` is this machine's own.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(address, _)| address),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
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
    fn a_loopback_port_is_asked_by_its_own_names_alone() {
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
            ("", false),
        ] {
            let asked = headers(&[("host", host)]);
            assert_eq!(judge(&asked, true, true).is_ok(), own, "{host}");
            assert!(judge(&asked, false, true).is_ok(), "other ports have names of their own");
        }
        assert!(judge(&headers(&[]), true, true).is_ok(), "HTTP/1.0 names nobody");
    }

    #[test]
    fn a_page_from_elsewhere_changes_nothing() {
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
                assert_eq!(judge(&sent, loopback, false).is_ok(), passes, "{sent:?}");
                assert!(judge(&sent, loopback, true).is_ok(), "looking is free: {sent:?}");
            }
        }
    }
}
