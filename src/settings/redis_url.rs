//! The URL of Redis, parsed: `scheme://user:password@host:port/database?node=host:port`.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use serde::{Serialize, Serializer};

use super::redis_address::{self, NOT_A_URL};
use super::secret::{Secret, SecretUrl};

/// The port of Redis, where the URL has none.
const PORT: u16 = 6379;

/// The port of a sentinel, where the URL has none.
const SENTINEL_PORT: u16 = 26_379;

/// Host and port of a server.
pub type HostPort = (String, u16);

/// The URL of Redis. `Debug`, `Display` and JSON mask its passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// The servers.
    pub servers: RedisServers,
    /// The user of the nodes.
    pub username: Option<String>,
    /// The password of the nodes.
    pub password: Option<Secret>,
    /// The database to select; `None` for the default one.
    pub database: Option<u16>,
    /// Whether connections use TLS, also those to sentinels.
    pub tls: bool,
    text: SecretUrl,
}

/// The servers that a URL names. An address is a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisServers {
    /// One node.
    Node(HostPort),
    /// One node, by the path of its Unix socket.
    Unix(PathBuf),
    /// Nodes of a Cluster, through which the others are found.
    Cluster(Vec<HostPort>),
    /// Sentinels.
    Sentinels {
        /// The sentinels' addresses.
        hosts: Vec<HostPort>,
        /// The name of the primary in the sentinels.
        service: String,
        /// The user of the sentinels.
        username: Option<String>,
        /// The password of the sentinels.
        password: Option<Secret>,
    },
}

/// The kind of server, by the scheme.
#[derive(Clone, Copy)]
enum Kind {
    Single,
    Cluster,
    Sentinel,
    Unix,
}

impl RedisUrl {
    /// Parses a URL, a path or addresses (`redis_address`).
    ///
    /// # Errors
    /// What is wrong and what to write, without any part of `text`, because it may have a password.
    pub fn parse(text: &str) -> Result<RedisUrl, String> {
        let url = redis_address::url(text)?;
        parse(&url).map_err(str::to_owned)
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.text, f)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl Serialize for RedisUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

fn parse(url: &str) -> Result<RedisUrl, &'static str> {
    let (scheme, rest) = url.split_once("://").ok_or(NOT_A_URL)?;
    let (kind, tls) = match scheme {
        "redis" => (Kind::Single, false),
        "rediss" => (Kind::Single, true),
        "redis-cluster" => (Kind::Cluster, false),
        "rediss-cluster" => (Kind::Cluster, true),
        "redis-sentinel" => (Kind::Sentinel, false),
        "rediss-sentinel" => (Kind::Sentinel, true),
        "redis+unix" => (Kind::Unix, false),
        _ => return Err(NOT_A_URL),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // All text before the last `@` is masked. After the host it would hide the host.
    if path.contains('@') || query.contains('@') {
        return Err("has an `@` after its host; percent-encode it, and `/` and `?` in a password");
    }
    let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (username, password) = login.split_once(':').unwrap_or((login, ""));
    let (username, password) = (decode(username)?, decode(password)?.map(Secret::new));
    let no_host = "has no host, or an invalid port; write `host:port` after `://`";
    let own = |default| address(host, default).ok_or(no_host);
    let servers = match kind {
        Kind::Single => RedisServers::Node(own(PORT)?),
        Kind::Unix => {
            let no_path = "has no path; write one such as `redis+unix:///run/r.sock`";
            RedisServers::Unix(decode(path)?.ok_or(no_path)?.into())
        }
        Kind::Cluster => RedisServers::Cluster(nodes(own(PORT)?, query)?),
        Kind::Sentinel => RedisServers::Sentinels {
            hosts: nodes(own(SENTINEL_PORT)?, query)?,
            service: parameter(query, "sentinelServiceName")?
                .ok_or("has no sentinelServiceName; write the name of the primary")?,
            username: parameter(query, "sentinelUsername")?,
            password: parameter(query, "sentinelPassword")?.map(Secret::new),
        },
    };
    let no_number = "has a database that is no number; write one such as `redis://host:6379/2`";
    let database = match (kind, path.trim_start_matches('/')) {
        (Kind::Cluster | Kind::Unix, _) | (_, "") => None,
        (_, number) => Some(number.parse().map_err(|_| no_number)?),
    };
    Ok(RedisUrl { servers, username, password, database, tls, text: SecretUrl::new(url) })
}

/// The server `first`, and those of the query's parameters `node`.
fn nodes(first: HostPort, query: &str) -> Result<Vec<HostPort>, &'static str> {
    let mut nodes = vec![first];
    for (name, value) in parameters(query) {
        if name == "node" {
            let value = decode(value)?.unwrap_or_default();
            let (_, port) = value.rsplit_once(':').unwrap_or_default();
            let node = address(&value, PORT).filter(|_| !port.is_empty());
            nodes.push(node.ok_or("has an invalid node; write `node=host:port` for each")?);
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
    let text = text.map_err(|_| "has escaped bytes that are not UTF-8; percent-encode UTF-8")?;
    Ok(Some(text.into_owned()).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> RedisUrl {
        RedisUrl::parse(text).unwrap_or_else(|problem| panic!("{text} {problem}"))
    }

    #[test]
    fn a_url_has_a_database_and_tls() {
        let table = [
            ("redis://h", None, false),
            ("redis://h:1/", None, false),
            ("rediss://h:1/2", Some(2), true),
            ("redis-cluster://a:1/2", None, false),
            ("rediss-sentinel://a:1/2?sentinelServiceName=m", Some(2), true),
            ("/run/r.sock", None, false),
        ];
        for (text, database, tls) in table {
            let url = parsed(text);
            assert_eq!((url.database, url.tls), (database, tls), "{text}");
        }
    }

    #[test]
    fn credentials_are_decoded() {
        let table = [
            ("redis://h:1", None, None),
            ("redis://u:p@h:1", Some("u"), Some("p")),
            ("redis://:p@h:1", None, Some("p")),
            ("redis://u@h:1", Some("u"), None),
            ("redis://me:p%40ss%2F1+%@h:1", Some("me"), Some("p@ss/1+%")),
            ("redis://a@b:p@h:1", Some("a@b"), Some("p")),
            ("redis+unix://:p@localhost/r.sock", None, Some("p")),
        ];
        for (text, username, password) in table {
            let url = parsed(text);
            assert_eq!(url.username.as_deref(), username, "{text}");
            assert_eq!(url.password.as_ref().map(Secret::reveal), password, "{text}");
        }
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
        let expected = RedisServers::Sentinels {
            hosts: vec![("a".to_owned(), 26_379), ("b".to_owned(), 2)],
            service: "my main".to_owned(),
            username: None,
            password: Some(Secret::new("s")),
        };
        assert_eq!(parsed(url).servers, expected);
    }

    #[test]
    fn a_path_of_a_socket_is_decoded() {
        let servers = parsed("unix:///run/a%40b/r.sock").servers;
        assert_eq!(servers, RedisServers::Unix("/run/a@b/r.sock".into()));
    }

    #[test]
    fn every_part_of_a_url_is_checked() {
        let table = [
            ("redis:", "is not a URL of Redis"),
            ("http://u:hunter2@h:1", "is not a URL of Redis"),
            ("redis://", "has no host"),
            ("redis://u:hunter2@", "has no host"),
            ("redis://u:hunter2@h:x", "or an invalid port"),
            ("redis://u:hunter2@h:1/x", "has a database that is no number"),
            ("redis://u:hunter2@h:1/65536", "has a database that is no number"),
            ("redis://u:hunter2%ff@h:1", "not UTF-8"),
            ("redis://u:hunter2/1@h:1", "has an `@` after its host"),
            ("redis://u:1?hunter2@h:1", "has an `@` after its host"),
            ("redis+unix://u:hunter2@h", "has no path"),
            ("redis-sentinel://u:hunter2@h:1", "has no sentinelServiceName"),
            ("redis-cluster://u:hunter2@h:1?node=b", "has an invalid node"),
            ("redis-cluster://u:hunter2@h:1?node=b:x", "has an invalid node"),
        ];
        for (text, part) in table {
            let problem = RedisUrl::parse(text).expect_err(text);
            assert!(problem.contains(part) && problem.contains("; "), "{text} {problem}");
            assert!(!problem.contains("hunter2"), "{text} {problem}");
        }
    }

    /// `/settings` shows a valid settings file.
    #[test]
    fn a_url_is_shown_masked_and_can_be_read_again() {
        let table = [
            ("h:1", "redis://h:1"),
            ("redis://u:hunter2@h:1/2", "redis://u:***@h:1/2"),
            ("redis://u@b:hunter2@h", "redis://u@b:***@h"),
            ("unix://:hunter2@h/run/r.sock", "redis+unix://:***@h/run/r.sock"),
            ("redis-sentinel://h?sentinelServiceName=m&sentinelPassword=hunter2", {
                "redis-sentinel://h?sentinelServiceName=m&sentinelPassword=***"
            }),
        ];
        for (text, masked) in table {
            let url = parsed(text);
            assert_eq!(url.to_string(), masked);
            assert_eq!(format!("{url:?}"), format!("{masked:?}"));
            assert_eq!(serde_json::to_value(&url).expect("a text"), masked);
            assert_eq!(parsed(masked).to_string(), masked);
        }
    }
}
