//! Parses the URL of Redis: `scheme://user:password@host:port/database?node=host:port`.

use percent_encoding::percent_decode_str;

use super::{Credentials, HostPort, Sentinels, Servers, Target};

/// The port of Redis, where the URL has none.
const PORT: u16 = 6379;

/// The port of a sentinel, where the URL has none.
const SENTINEL_PORT: u16 = 26_379;

/// What a URL contains. Its credentials are those of the nodes.
pub(super) struct RedisUrl {
    pub(super) servers: Servers,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<u16>,
    pub(super) tls: bool,
}

/// The kind of server, by the scheme.
#[derive(Clone, Copy)]
enum Kind {
    Single,
    Cluster,
    Sentinel,
    Unix,
}

/// Parses a URL.
///
/// # Errors
/// What is wrong with it, without any part of it, because it may have a password.
pub(super) fn parse(url: &str) -> Result<RedisUrl, &'static str> {
    let no_scheme = "has no scheme; write one such as redis://127.0.0.1:6379";
    let (scheme, rest) = url.split_once("://").ok_or(no_scheme)?;
    let (kind, tls) = match scheme {
        "redis" => (Kind::Single, false),
        "rediss" => (Kind::Single, true),
        "redis-cluster" => (Kind::Cluster, false),
        "rediss-cluster" => (Kind::Cluster, true),
        "redis-sentinel" => (Kind::Sentinel, false),
        "rediss-sentinel" => (Kind::Sentinel, true),
        "redis+unix" => (Kind::Unix, false),
        _ => return Err("has an unknown scheme; docs/redis.md lists them"),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (username, password) = login.split_once(':').unwrap_or((login, ""));
    let (username, password) = (decode(username)?, decode(password)?);
    let own = |default| address(host, default).ok_or("has no host, or an invalid port");
    let servers = match kind {
        Kind::Single => Servers::Node(Target::Tcp(own(PORT)?)),
        Kind::Unix if path.is_empty() => return Err("has no path of a Unix socket"),
        Kind::Unix => Servers::Node(Target::Unix(path.into())),
        Kind::Cluster => Servers::Cluster(nodes(own(PORT)?, query)?),
        Kind::Sentinel => Servers::Node(Target::Sentinel(Sentinels {
            hosts: nodes(own(SENTINEL_PORT)?, query)?,
            service: parameter(query, "sentinelServiceName")?
                .ok_or("has no sentinelServiceName; write the name of the primary")?,
            credentials: Credentials::new(
                parameter(query, "sentinelUsername")?,
                parameter(query, "sentinelPassword")?,
            ),
        })),
    };
    let database = match (kind, path.trim_start_matches('/')) {
        (Kind::Cluster | Kind::Unix, _) | (_, "") => None,
        (_, number) => Some(number.parse().map_err(|_| "has a database that is no number")?),
    };
    Ok(RedisUrl { servers, username, password, database, tls })
}

/// The server `first`, and those of the query's parameters `node`.
fn nodes(first: HostPort, query: &str) -> Result<Vec<HostPort>, &'static str> {
    let mut nodes = vec![first];
    for (name, value) in parameters(query) {
        if name == "node" {
            let value = decode(value)?.unwrap_or_default();
            let (_, port) = value.rsplit_once(':').unwrap_or_default();
            let node = address(&value, PORT).filter(|_| !port.is_empty());
            nodes.push(node.ok_or("has a node that is not host:port")?);
        }
    }
    Ok(nodes)
}

/// `host:port`, with an IPv6 address in brackets, or `host` with the port `default`.
fn address(text: &str, default: u16) -> Option<HostPort> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("")),
        },
    };
    let port = match port? {
        "" => default,
        port => port.parse().ok()?,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// The value of a parameter; `None` if it is missing or empty.
fn parameter(query: &str, name: &str) -> Result<Option<String>, &'static str> {
    match parameters(query).find(|(written, _)| *written == name) {
        // A plus sign in a query is a space.
        Some((_, value)) => decode(&value.replace('+', " ")),
        None => Ok(None),
    }
}

fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Decodes percent-encoded bytes; `None` for an empty text. A percent sign without two hexadecimal
/// digits stays.
fn decode(text: &str) -> Result<Option<String>, &'static str> {
    let text = percent_decode_str(text).decode_utf8();
    let text = text.map_err(|_| "has escaped bytes that are not UTF-8")?;
    Ok(Some(text.into_owned()).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_decoded() {
        let table = [
            ("redis://h:1", None, None),
            ("redis://u:p@h:1", Some("u"), Some("p")),
            ("redis://:p@h:1", None, Some("p")),
            ("redis://u@h:1", Some("u"), None),
            ("redis://me:p%40ss%2F1+%@h:1", Some("me"), Some("p@ss/1+%")),
            ("redis+unix://:p@localhost/r.sock", None, Some("p")),
        ];
        for (url, username, password) in table {
            let parsed = parse(url).unwrap_or_else(|problem| panic!("{url} {problem}"));
            assert_eq!(parsed.username.as_deref(), username, "{url}");
            assert_eq!(parsed.password.as_deref(), password, "{url}");
        }
        assert!(parse("redis://:%ff@h:1").is_err(), "no UTF-8");
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        let of = |text| address(text, 9);
        assert_eq!(of("h:1"), Some(("h".into(), 1)));
        assert_eq!(of("h"), Some(("h".into(), 9)));
        assert_eq!(of("[::1]:2"), Some(("::1".into(), 2)));
        assert_eq!(of("[::1]"), Some(("::1".into(), 9)));
        for text in ["", ":1", "h:x", "h:65536", "[::1", "[::1]x", "[]:1"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn a_sentinel_has_its_credentials_and_port() {
        let url = "rediss-sentinel://me:mine@a?node=b:2\
                   &sentinelServiceName=my%20main&sentinelPassword=s";
        let Ok(RedisUrl { servers, tls: true, .. }) = parse(url) else { panic!("{url}") };
        let Servers::Node(Target::Sentinel(sentinels)) = servers else { panic!("{url}") };
        assert_eq!(sentinels.hosts, [("a".to_owned(), 26_379), ("b".to_owned(), 2)]);
        assert_eq!(sentinels.service, "my main");
        assert_eq!(sentinels.credentials.auth(), Ok(Some(vec!["s".to_owned()])));
    }
}
