//! Turns the settings of Redis into what its connections need: the servers and the access to them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;

mod credentials;
mod tls;

pub(super) use credentials::RedisCredentials;

pub(super) use crate::settings::HostPort;
use crate::settings::{FunctionChoice, RedisServers, RedisSettings};

/// The error for settings with which no connection is possible. The text names the setting to
/// correct and never contains the password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RedisConfigError(String);

impl RedisConfigError {
    fn new(text: impl Into<String>) -> RedisConfigError {
        RedisConfigError(text.into())
    }
}

impl From<io::Error> for RedisConfigError {
    fn from(error: io::Error) -> RedisConfigError {
        RedisConfigError::new(format!("could not start the Redis discovery thread: {error}"))
    }
}

/// The servers, and the access to them.
#[derive(Clone, Debug)]
pub(super) struct RedisConfig {
    pub(super) servers: Servers,
    pub(super) access: Arc<RedisAccess>,
}

/// The servers that the URL names.
#[derive(Clone, Debug)]
pub(super) enum Servers {
    /// One node.
    Node(Target),
    /// Nodes of a Cluster, through which the others are found.
    Cluster(Vec<HostPort>),
}

/// How a node is found.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// Its address.
    Tcp(HostPort),
    /// Its Unix socket.
    Unix(PathBuf),
    /// Sentinels that name it.
    Sentinel(Sentinels),
}

/// Sentinels, and the primary that they watch.
#[derive(Clone, Debug)]
pub(super) struct Sentinels {
    pub(super) hosts: Vec<HostPort>,
    /// The name of the primary in the sentinels.
    pub(super) service: String,
    pub(super) credentials: RedisCredentials,
}

/// The access to every node.
#[derive(Debug, Default)]
pub(super) struct RedisAccess {
    pub(super) credentials: RedisCredentials,
    /// The database to select; `None` for the default one.
    pub(super) database: Option<u16>,
    /// `None` without TLS. Sentinels have the same.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// Whether functions may be loaded and called.
    pub(super) functions: bool,
}

/// How one node is reached.
#[derive(Clone, Debug)]
pub(super) struct NodeConfig {
    pub(super) target: Target,
    pub(super) access: Arc<RedisAccess>,
}

impl From<&RedisServers> for Servers {
    fn from(servers: &RedisServers) -> Servers {
        match servers {
            RedisServers::Node(address) => Servers::Node(Target::Tcp(address.clone())),
            RedisServers::Unix(path) => Servers::Node(Target::Unix(path.clone())),
            RedisServers::Cluster(seeds) => Servers::Cluster(seeds.clone()),
            RedisServers::Sentinels { hosts, service, username, password } => {
                let credentials = RedisCredentials::new(username.clone(), password.clone());
                let (hosts, service) = (hosts.clone(), service.clone());
                Servers::Node(Target::Sentinel(Sentinels { hosts, service, credentials }))
            }
        }
    }
}

impl RedisConfig {
    /// The configuration that the settings describe. The password file must be readable.
    pub(super) fn new(settings: &RedisSettings) -> Result<RedisConfig, RedisConfigError> {
        let url = &settings.url;
        let username = settings.username.as_ref().or(url.username.as_ref()).cloned();
        let credentials = match &settings.password_file {
            Some(path) => RedisCredentials::from_file(username, path.clone())?,
            None => RedisCredentials::new(username, url.password.clone()),
        };
        let tls = if url.tls { Some(tls::config(settings)?) } else { None };
        let (database, functions) = (url.database, settings.functions == FunctionChoice::Auto);
        let access = Arc::new(RedisAccess { credentials, database, tls, functions });
        Ok(RedisConfig { servers: Servers::from(&url.servers), access })
    }

    /// The configuration of the node at `target`.
    pub(super) fn node(&self, target: Target) -> NodeConfig {
        NodeConfig { target, access: self.access.clone() }
    }

    /// The address of the servers, for logs and metrics.
    pub(super) fn address(&self) -> String {
        match &self.servers {
            Servers::Node(Target::Tcp(address)) => address_text(address),
            Servers::Node(Target::Unix(path)) => path.display().to_string(),
            Servers::Node(Target::Sentinel(sentinels)) => {
                format!("primary of {}", sentinels.service)
            }
            Servers::Cluster(seeds) => {
                let seeds: Vec<String> = seeds.iter().map(address_text).collect();
                format!("cluster at {}", seeds.join(", "))
            }
        }
    }
}

/// The text of an address, for logs and metrics.
pub(super) fn address_text((host, port): &HostPort) -> String {
    format!("{host}:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::RedisUrl;

    fn config(url: &str) -> RedisConfig {
        let url = RedisUrl::parse(url).unwrap();
        RedisConfig::new(&RedisSettings { url, ..RedisSettings::default() }).unwrap()
    }

    #[test]
    fn every_form_of_url_leads_to_its_kind_of_server() {
        let table = [
            ("redis://u:p@h:1/2", "h:1"),
            ("redis://h", "h:6379"),
            ("redis://[::1]:7", "::1:7"),
            ("redis-cluster://a:1?node=b:2&node=c:3", "cluster at a:1, b:2, c:3"),
            ("redis-sentinel://a:1?node=b:2&sentinelServiceName=main", "primary of main"),
            ("redis+unix:///run/redis.sock", "/run/redis.sock"),
        ];
        for (url, address) in table {
            assert_eq!(config(url).address(), address, "{url}");
        }
        assert_eq!(config("redis://h:1/2").access.database, Some(2));
    }

    #[test]
    fn no_debug_text_has_a_password() {
        let url = "redis-sentinel://u:hunter2@h:1?sentinelServiceName=m&sentinelPassword=hunter3";
        let shown = format!("{:?}", config(url));
        assert!(!shown.contains("hunter2") && !shown.contains("hunter3"), "{shown}");
    }
}
