//! Credentials from a file, read anew for every connection, so that a password can be changed while
//! weir runs.

use std::path::PathBuf;

use fred::error::{Error, ErrorKind};
use fred::types::config::{Config, CredentialProvider, Server, ServerConfig};

use super::RedisConfigError;
use crate::secret_file;

/// A password in a file.
pub(super) struct PasswordFile {
    path: PathBuf,
    username: Option<String>,
    /// Sentinels have credentials of their own: those of the URL.
    sentinels: Vec<Server>,
    sentinel: (Option<String>, Option<String>),
}

impl PasswordFile {
    pub(super) fn new(path: PathBuf, config: &Config) -> PasswordFile {
        let (sentinels, sentinel) = match &config.server {
            ServerConfig::Sentinel { hosts, username, password, .. } => {
                (hosts.clone(), (username.clone(), password.clone()))
            }
            _ => (Vec::new(), (None, None)),
        };
        PasswordFile { path, username: config.username.clone(), sentinels, sentinel }
    }

    /// The password that is in the file now: its first line.
    pub(super) fn read(&self) -> Result<String, RedisConfigError> {
        let path = self.path.display();
        let line = secret_file::first_line(&self.path).map_err(|error| {
            RedisConfigError::new(format!("redis.password_file {path}: {error}"))
        })?;
        if line.is_empty() {
            return Err(RedisConfigError::new(format!(
                "redis.password_file {path} is empty; write the password into its first line"
            )));
        }
        Ok(line)
    }
}

impl std::fmt::Debug for PasswordFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PasswordFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Spelt out, because the trait was written for a macro that weir does not use.
impl CredentialProvider for PasswordFile {
    fn fetch<'a, 'b, 'f>(
        &'a self,
        server: Option<&'b Server>,
    ) -> std::pin::Pin<
        Box<dyn Future<Output = Result<(Option<String>, Option<String>), Error>> + Send + 'f>,
    >
    where
        'a: 'f,
        'b: 'f,
        Self: 'f,
    {
        let sentinel = server.is_some_and(|server| self.sentinels.contains(server));
        let answer = if sentinel {
            Ok(self.sentinel.clone())
        } else {
            let read = self.read().map_err(|error| Error::new(ErrorKind::Auth, error.to_string()));
            read.map(|password| (self.username.clone(), Some(password)))
        };
        Box::pin(std::future::ready(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn every_connection_gets_the_password_that_is_in_the_file_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let url = "redis-sentinel://who@s:1?sentinelServiceName=main&sentinelPassword=theirs";
        let config = Config::from_url(url).unwrap();
        let file = PasswordFile::new(path.clone(), &config);
        assert!(file.read().is_err(), "there is no file");
        fs::write(&path, "one\n").unwrap();
        let node = Server::new("n", 2);
        let name = Some("who".to_owned());
        assert_eq!(file.fetch(Some(&node)).await, Ok((name.clone(), Some("one".into()))));
        fs::write(&path, "two\nof no meaning").unwrap();
        assert_eq!(file.fetch(None).await, Ok((name, Some("two".into()))));
        let sentinel = Server::new("s", 1);
        assert_eq!(file.fetch(Some(&sentinel)).await, Ok((None, Some("theirs".into()))));
        fs::write(&path, "\n").unwrap();
        assert!(file.fetch(None).await.is_err(), "an empty file is no password");
        assert!(!format!("{file:?}").contains("theirs"));
    }
}
