//! RedisConfig: how Redis is reached, from what an operator writes to what fred connects with.

use std::path::PathBuf;

use fred::types::config::{Config, ServerConfig};

mod credentials;
mod tls;

use credentials::PasswordFile;

/// How Redis is reached.
#[derive(Clone, Default)]
pub struct RedisConfig {
    /// `redis://`, `redis-cluster://` or `redis-sentinel://` with host, port and credentials,
    /// `rediss...` for TLS, more nodes as `?node=host:port&node=...`, or `redis+unix://` with a
    /// path. Holds a password, perhaps.
    pub url: String,
    /// A name of Redis's access control list; wins over the URL's.
    pub username: Option<String>,
    /// A file whose first line is the password; wins over the URL's. Read for every new connection.
    pub password_file: Option<PathBuf>,
    /// What TLS needs beside the URL.
    pub tls: RedisTls,
    /// Connections per node and core; at least one.
    pub connections: usize,
    /// The most steps that one call carries; 0 and 1 send each alone.
    pub batch: usize,
}

/// What TLS needs beside the URL.
#[derive(Clone, Debug, Default)]
pub struct RedisTls {
    /// Certificates of the authorities that are trusted; the system's when absent.
    pub ca: Option<PathBuf>,
    /// Our certificate chain, for servers that want one.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// The server's certificate need not name the host that was asked. Its chain is still verified.
    pub skip_hostname_check: bool,
}

/// Why Redis cannot be reached, whatever the servers do. Tells what to mend; shows no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RedisConfigError(String);

impl RedisConfigError {
    pub(super) fn new(text: impl Into<String>) -> RedisConfigError {
        RedisConfigError(text.into())
    }
}

impl std::fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        f.debug_struct("RedisConfig")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl RedisConfig {
    /// What fred connects with.
    pub(super) fn fred_config(&self) -> Result<Config, RedisConfigError> {
        let (scheme, rest) = self.url.split_once("://").ok_or_else(|| {
            RedisConfigError::new(
                "redis.url has no scheme; write one such as redis://127.0.0.1:6379",
            )
        })?;
        let with_tls = scheme.starts_with("rediss");
        // fred would load the system's certificates here, and again below.
        let plain =
            if with_tls { scheme.replacen("rediss", "redis", 1) } else { scheme.to_owned() };
        let mut config = Config::from_url(&format!("{plain}://{rest}")).map_err(|error| {
            RedisConfigError::new(format!("redis.url cannot be read: {}", error.details()))
        })?;
        unbracket(&mut config.server);
        if with_tls {
            config.tls = Some(tls::config(&self.tls)?);
        }
        if let Some(username) = &self.username {
            config.username = Some(username.clone());
        }
        if let Some(path) = &self.password_file {
            let file = PasswordFile::new(path.clone(), &config);
            file.read()?;
            config.credential_provider = Some(std::sync::Arc::new(file));
        }
        // The first attempt is made at once; later ones are the connection's business.
        config.fail_fast = true;
        Ok(config)
    }
}

/// Takes the brackets off IPv6 addresses, which belong to URLs only.
fn unbracket(server: &mut ServerConfig) {
    let bare = |server: &mut fred::types::config::Server| {
        let host = server.host.trim_start_matches('[').trim_end_matches(']').to_owned();
        server.host = host.into();
    };
    match server {
        ServerConfig::Centralized { server } => bare(server),
        ServerConfig::Clustered { hosts, .. } | ServerConfig::Sentinel { hosts, .. } => {
            hosts.iter_mut().for_each(bare);
        }
        ServerConfig::Unix { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> Result<ServerConfig, RedisConfigError> {
        let redis = RedisConfig { url: url.to_owned(), ..RedisConfig::default() };
        redis.fred_config().map(|config| config.server)
    }

    #[test]
    fn every_form_of_url_leads_to_its_kind_of_server() {
        let hosts = |server: ServerConfig| {
            let mut hosts: Vec<String> =
                server.hosts().iter().map(|host| format!("{} {}", host.host, host.port)).collect();
            hosts.sort();
            hosts
        };
        let single = server("redis://u:p@h:1/2").unwrap();
        assert!(single.is_centralized());
        assert_eq!(hosts(single), ["h 1"]);
        let cluster = server("redis-cluster://a:1?node=b:2&node=c:3").unwrap();
        assert!(cluster.is_clustered());
        assert_eq!(hosts(cluster), ["a 1", "b 2", "c 3"]);
        let sentinel = server("redis-sentinel://a:1?node=b:2&sentinelServiceName=main").unwrap();
        assert!(sentinel.is_sentinel());
        assert_eq!(hosts(sentinel), ["a 1", "b 2"]);
        let unix = server("redis+unix:///run/redis.sock").unwrap();
        assert_eq!(unix, ServerConfig::Unix { path: "/run/redis.sock".into() });
        assert_eq!(hosts(server("redis://[::1]:6379").unwrap()), ["::1 6379"]);
    }

    #[test]
    fn what_cannot_be_read_is_told_without_its_password() {
        for url in ["h:1", "redis://", "redis-sentinel://u:hunter2@h:1", "redis://u:hunter2@h:x"] {
            let error = server(url).unwrap_err().to_string();
            assert!(error.starts_with("redis.url") && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
