//! Forms the URL of Redis from addresses: plain ones, and envoyproxy/ratelimit's lists together with its
//! other variables of Redis.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

/// The problem of a text that is neither a URL nor addresses.
pub(super) const NOT_A_URL: &str = "is not a URL of Redis; write one such as \
                                    `redis://127.0.0.1:6379` or \
                                    `redis-cluster://a:7000?node=b:7000`";

/// All ASCII characters except the unreserved ones of RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The kind of server behind an address without a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedisKind {
    Single,
    Cluster,
    Sentinel,
}

/// The variables of envoyproxy/ratelimit that complete its `REDIS_URL`.
#[derive(Debug, Default)]
pub(super) struct RedisEnv<'a> {
    /// Credentials of Redis: `password` or `user:password`.
    pub(super) auth: Option<&'a str>,
    /// Credentials of sentinels: `password` or `user:password`.
    pub(super) sentinel_auth: Option<&'a str>,
    /// Whether to connect with TLS.
    pub(super) tls: bool,
}

/// The URL that `text` means: a URL, which is not checked, `/a/path`, `host:port`, several addresses (a
/// Cluster), or a name and several addresses (sentinels).
pub(super) fn url(text: &str) -> Result<String, String> {
    if let Some((scheme, rest)) = text.split_once("://") {
        let scheme = if scheme == "unix" { "redis+unix" } else { scheme };
        return Ok(format!("{scheme}://{rest}"));
    }
    let first = text.split(',').next().unwrap_or_default();
    let kind = match text.contains(',') {
        true if first.contains(':') => RedisKind::Cluster,
        true => RedisKind::Sentinel,
        false => RedisKind::Single,
    };
    list(text, kind, &RedisEnv::default()).map_err(|_| NOT_A_URL.to_owned())
}

/// The URL that envoyproxy/ratelimit's `REDIS_URL` means, completed by `env`.
pub(super) fn list(text: &str, kind: RedisKind, env: &RedisEnv<'_>) -> Result<String, String> {
    let scheme = |scheme: &str| {
        let tls = if env.tls { "rediss" } else { "redis" };
        scheme.replacen("redis", tls, 1)
    };
    if text.contains("://") {
        return with_credentials(text, env);
    }
    // Credentials in the list apply to all its addresses.
    let (written, hosts) = match text.rsplit_once('@') {
        Some((written, hosts)) => (format!("{written}@"), hosts),
        None => (credentials(env.auth), text),
    };
    if kind == RedisKind::Single && hosts.starts_with('/') {
        // The host has no meaning, but a URL with credentials has one.
        let host = if written.is_empty() { "" } else { "localhost" };
        return Ok(format!("redis+unix://{written}{host}{hosts}"));
    }
    let mut parts: Vec<&str> = hosts.split(',').map(str::trim).collect();
    let master = if kind == RedisKind::Sentinel { parts.remove(0) } else { "" };
    let is_address = |part: &&str| {
        let (host, port) = part.rsplit_once(':').unwrap_or_default();
        !host.is_empty() && port.parse::<u16>().is_ok()
    };
    if parts.is_empty() || !parts.iter().all(is_address) {
        return Err("is not a list of addresses; write `host:port` of each".to_owned());
    }
    let nodes = || parts[1..].iter().map(|node| format!("node={node}")).collect::<Vec<_>>();
    let (scheme, query) = match kind {
        RedisKind::Single if parts.len() > 1 => {
            return Err("are several addresses; set REDIS_TYPE=CLUSTER or SENTINEL".to_owned());
        }
        RedisKind::Single => (scheme("redis"), Vec::new()),
        RedisKind::Cluster => (scheme("redis-cluster"), nodes()),
        RedisKind::Sentinel if master.is_empty() || master.contains(':') => {
            return Err("does not begin with the master's name".to_owned());
        }
        RedisKind::Sentinel => {
            let mut query = nodes();
            query.push(format!("sentinelServiceName={}", escape(master)));
            query.extend(sentinel_credentials(env.sentinel_auth));
            (scheme("redis-sentinel"), query)
        }
    };
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    Ok(format!("{scheme}://{written}{}{query}", parts[0]))
}

/// Adds credentials and TLS to a URL of envoyproxy/ratelimit, which has no scheme for TLS.
fn with_credentials(text: &str, env: &RedisEnv<'_>) -> Result<String, String> {
    let url = url(text)?;
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let secure = scheme.starts_with("rediss") || !env.tls || scheme.ends_with("unix");
    let scheme = if secure { scheme.to_owned() } else { scheme.replacen("redis", "rediss", 1) };
    let auth = if rest.contains('@') { String::new() } else { credentials(env.auth) };
    Ok(format!("{scheme}://{auth}{rest}"))
}

fn credentials(auth: Option<&str>) -> String {
    match auth.map(|auth| auth.split_once(':').unwrap_or(("", auth))) {
        None => String::new(),
        Some((user, password)) => format!("{}:{}@", escape(user), escape(password)),
    }
}

fn sentinel_credentials(auth: Option<&str>) -> Vec<String> {
    match auth.map(|auth| auth.split_once(':').unwrap_or(("", auth))) {
        None => Vec::new(),
        Some(("", password)) => vec![format!("sentinelPassword={}", escape(password))],
        Some((user, password)) => vec![
            format!("sentinelUsername={}", escape(user)),
            format!("sentinelPassword={}", escape(password)),
        ],
    }
}

fn escape(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_an_address_selects_its_kind() {
        let table = [
            ("redis://h:1", "redis://h:1"),
            ("rediss-cluster://u:p@a:1?node=b:2", "rediss-cluster://u:p@a:1?node=b:2"),
            ("unix:///run/r.sock", "redis+unix:///run/r.sock"),
            ("/run/r.sock", "redis+unix:///run/r.sock"),
            ("h:1", "redis://h:1"),
            ("a:1,b:2, c:3", "redis-cluster://a:1?node=b:2&node=c:3"),
            ("main,a:1,b:2", "redis-sentinel://a:1?node=b:2&sentinelServiceName=main"),
            ("u:p@a:1,b:2", "redis-cluster://u:p@a:1?node=b:2"),
        ];
        for (text, meaning) in table {
            assert_eq!(url(text).as_deref(), Ok(meaning));
        }
        for text in ["", "redis", "h", "h:x", ",", "main,a", "a:1,b"] {
            assert!(url(text).is_err(), "{text:?} was read");
        }
    }

    #[test]
    fn envoy_ratelimit_variables_form_one_url() {
        let plain = RedisEnv::default();
        let full = RedisEnv { auth: Some("me:p@ss/1"), sentinel_auth: Some("s"), tls: true };
        let word = RedisEnv { auth: Some("pw"), ..RedisEnv::default() };
        let table = [
            ("h:1", RedisKind::Single, &plain, "redis://h:1"),
            ("h:1", RedisKind::Single, &word, "redis://:pw@h:1"),
            ("h:1", RedisKind::Single, &full, "rediss://me:p%40ss%2F1@h:1"),
            ("redis://h:1/3", RedisKind::Single, &full, "rediss://me:p%40ss%2F1@h:1/3"),
            ("redis://a:b@h:1", RedisKind::Single, &word, "redis://a:b@h:1"),
            ("/r.sock", RedisKind::Single, &plain, "redis+unix:///r.sock"),
            ("/r.sock", RedisKind::Single, &word, "redis+unix://:pw@localhost/r.sock"),
            ("a:1", RedisKind::Cluster, &plain, "redis-cluster://a:1"),
            ("a:1,b:2", RedisKind::Cluster, &word, "redis-cluster://:pw@a:1?node=b:2"),
            (
                "main,a:1,b:2",
                RedisKind::Sentinel,
                &full,
                "rediss-sentinel://me:p%40ss%2F1@a:1?node=b:2&sentinelServiceName=main\
                 &sentinelPassword=s",
            ),
        ];
        for (text, kind, env, url) in table {
            assert_eq!(list(text, kind, env).as_deref(), Ok(url));
        }
        for (text, kind) in [
            ("a:1,b:2", RedisKind::Single),
            ("a:1,b:2", RedisKind::Sentinel),
            ("main", RedisKind::Sentinel),
            ("a", RedisKind::Cluster),
        ] {
            assert!(list(text, kind, &plain).is_err(), "{text:?} was read as {kind:?}");
        }
    }
}
