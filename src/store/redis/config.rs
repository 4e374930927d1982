//! Turns the settings of Redis into the configuration of its client library.

use fred::types::config::{Config, ServerConfig};

mod credentials;
mod tls;

use credentials::PasswordFile;

use crate::settings::RedisSettings;

/// The error for settings with which no connection is possible. The text names the setting to
/// correct and never contains the password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RedisConfigError(String);

impl RedisConfigError {
    pub(super) fn new(text: impl Into<String>) -> RedisConfigError {
        RedisConfigError(text.into())
    }
}

/// The configuration of the client library fred.
pub(super) fn fred_config(settings: &RedisSettings) -> Result<Config, RedisConfigError> {
    let url = settings.url.reveal();
    let (scheme, rest) = url.split_once("://").ok_or_else(|| {
        RedisConfigError::new("redis.url has no scheme; write one such as redis://127.0.0.1:6379")
    })?;
    let with_tls = scheme.starts_with("rediss");
    // fred would load the system's certificates here, and again below.
    let plain = if with_tls { scheme.replacen("rediss", "redis", 1) } else { scheme.to_owned() };
    let mut config = Config::from_url(&format!("{plain}://{rest}")).map_err(|error| {
        RedisConfigError::new(format!("redis.url cannot be read: {}", error.details()))
    })?;
    unbracket(&mut config.server);
    if with_tls {
        config.tls = Some(tls::config(settings)?);
    }
    if let Some(username) = &settings.username {
        config.username = Some(username.clone());
    }
    if let Some(path) = &settings.password_file {
        let file = PasswordFile::new(path.clone(), &config);
        file.read()?;
        config.credential_provider = Some(std::sync::Arc::new(file));
    }
    // fred connects at once and reports a failed attempt. connection.rs makes the later attempts.
    config.fail_fast = true;
    Ok(config)
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
    use crate::settings::SecretUrl;

    fn server(url: &str) -> Result<ServerConfig, RedisConfigError> {
        let settings = RedisSettings { url: SecretUrl::new(url), ..RedisSettings::default() };
        fred_config(&settings).map(|config| config.server)
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
    fn unreadable_urls_are_reported_without_password() {
        for url in ["h:1", "redis://", "redis-sentinel://u:hunter2@h:1", "redis://u:hunter2@h:x"] {
            let error = server(url).unwrap_err().to_string();
            assert!(error.starts_with("redis.url") && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
