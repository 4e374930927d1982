//! The Redis password from a file, read for every connection, so that it can be changed while weir
//! runs.

use std::path::PathBuf;

use fred::error::{Error, ErrorKind};
use fred::types::config::{Config, CredentialProvider, Server, ServerConfig};

use super::RedisConfigError;
use crate::bounded_file;

/// A password in a file.
pub(super) struct PasswordFile {
    path: PathBuf,
    username: Option<String>,
    /// Sentinels have their own credentials, which come from the URL.
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

    /// Reads the password: the first line of the file.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, is not UTF-8 or has an empty first line.
    pub(super) fn read(&self) -> Result<String, RedisConfigError> {
        let path = self.path.display();
        let line = bounded_file::first_line(&self.path).map_err(|error| {
            RedisConfigError::new(format!("redis.password_file: {path}: {error}"))
        })?;
        if line.is_empty() {
            return Err(RedisConfigError::new(format!(
                "redis.password_file: {path} is empty; write the password into its first line"
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

/// Written without `async fn`, because the trait is declared for the macro of `async-trait`.
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
        let credentials = if sentinel {
            Ok(self.sentinel.clone())
        } else {
            let read = self.read().map_err(|error| Error::new(ErrorKind::Auth, error.to_string()));
            read.map(|password| (self.username.clone(), Some(password)))
        };
        Box::pin(std::future::ready(credentials))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn the_password_is_read_for_every_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let url = "redis-sentinel://who@s:1?sentinelServiceName=main&sentinelPassword=theirs";
        let config = Config::from_url(url).unwrap();
        let file = PasswordFile::new(path.clone(), &config);
        assert!(file.read().is_err(), "the file is missing");
        fs::write(&path, "one\n").unwrap();
        let node = Server::new("n", 2);
        let name = Some("who".to_owned());
        assert_eq!(file.fetch(Some(&node)).await, Ok((name.clone(), Some("one".into()))));
        fs::write(&path, "two\nignored").unwrap();
        assert_eq!(file.fetch(None).await, Ok((name, Some("two".into()))));
        let sentinel = Server::new("s", 1);
        assert_eq!(file.fetch(Some(&sentinel)).await, Ok((None, Some("theirs".into()))));
        fs::write(&path, "\n").unwrap();
        assert!(file.fetch(None).await.is_err(), "the file is empty");
        assert!(!format!("{file:?}").contains("theirs"));
    }
}
