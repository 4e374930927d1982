//! The address of the server with the plans, from `plans.url`. Pure.

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Uri};

/// Where and how to ask for plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlansEndpoint {
    /// A name, or an IP address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) is_tls: bool,
    /// The header `host`.
    pub(super) host_header: HeaderValue,
    /// The path and the query.
    pub(super) target: Uri,
}

impl PlansEndpoint {
    /// Parses a URL.
    ///
    /// # Errors
    /// Why it is none of a server with plans. The text does not repeat the URL, which may have secrets.
    pub(super) fn parse(url: &str) -> Result<PlansEndpoint, String> {
        let wrong = |what: &str| {
            format!("plans.url {what}; write one such as https://billing.example/plans")
        };
        let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(wrong("is not an address of http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
        if authority.as_str().contains('@') {
            return Err("plans.url has a user or a password, which weir does not send; set \
                        plans.token_file instead"
                .to_owned());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(wrong("has no host"));
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let host_header = HeaderValue::from_str(authority.as_str());
        let host_header = host_header.map_err(|_| wrong("has an invalid host"))?;
        let target = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let target: Uri = target.parse().map_err(|_| wrong("has an invalid path"))?;
        Ok(PlansEndpoint { host, port, is_tls, host_header, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_and_a_target() {
        let table = [
            ("http://h", "h", 80, false, "h", "/"),
            ("https://h.example/a/b?c=d", "h.example", 443, true, "h.example", "/a/b?c=d"),
            ("https://h:8443/", "h", 8443, true, "h:8443", "/"),
            ("http://[::1]:81/p", "::1", 81, false, "[::1]:81", "/p"),
            ("HTTP://127.0.0.1/p#f", "127.0.0.1", 80, false, "127.0.0.1", "/p"),
        ];
        for (url, host, port, is_tls, header, target) in table {
            let endpoint =
                PlansEndpoint::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!((&*endpoint.host, endpoint.port, endpoint.is_tls), (host, port, is_tls));
            assert_eq!(endpoint.host_header, header, "{url}");
            assert_eq!(endpoint.target.to_string(), target, "{url}");
        }
    }

    #[test]
    fn other_texts_are_refused_without_secrets() {
        let table =
            ["", "h", "h:80", "/plans", "ftp://hunter2/", "http://", "http://:80/", "https://a b/"];
        for url in table {
            let error = PlansEndpoint::parse(url).unwrap_err();
            assert!(error.contains("https://billing.example/plans"), "{url}: {error}");
        }
        let error = PlansEndpoint::parse("https://u:hunter2@h/").unwrap_err();
        assert!(error.contains("plans.token_file") && !error.contains("hunter2"), "{error}");
    }
}
