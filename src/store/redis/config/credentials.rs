//! The credentials of a server. A password in a file is read for every connection, so that it can
//! change while weir runs.

use std::path::{Path, PathBuf};

use super::RedisConfigError;
use crate::bounded_file;
use crate::settings::Secret;

/// A user name and a password.
#[derive(Clone, Debug, Default)]
pub(in crate::store::redis) struct RedisCredentials {
    username: Option<String>,
    password: Option<Password>,
}

#[derive(Clone, Debug)]
enum Password {
    Text(Secret),
    /// The file whose first line is the password.
    File(PathBuf),
}

impl RedisCredentials {
    /// Credentials with a fixed password.
    pub(super) fn new(username: Option<String>, password: Option<Secret>) -> RedisCredentials {
        RedisCredentials { username, password: password.map(Password::Text) }
    }

    /// Credentials with a password in a file.
    ///
    /// # Errors
    /// A file that cannot be read, is not UTF-8 or has an empty first line.
    pub(super) fn from_file(
        username: Option<String>,
        path: PathBuf,
    ) -> Result<RedisCredentials, RedisConfigError> {
        read(&path)?;
        Ok(RedisCredentials { username, password: Some(Password::File(path)) })
    }

    /// The arguments of `AUTH`; `None` without a password.
    ///
    /// # Errors
    /// A password file that cannot be read.
    pub(in crate::store::redis) fn auth(&self) -> Result<Option<Vec<String>>, RedisConfigError> {
        let password = match &self.password {
            None => return Ok(None),
            Some(Password::Text(password)) => password.reveal().to_owned(),
            Some(Password::File(path)) => read(path)?,
        };
        Ok(Some(self.username.iter().cloned().chain([password]).collect()))
    }
}

/// The password in the first line of the file at `path`.
fn read(path: &Path) -> Result<String, RedisConfigError> {
    let shown = path.display();
    let line = bounded_file::first_line(path)
        .map_err(|error| RedisConfigError::new(format!("redis.password_file: {shown}: {error}")))?;
    if line.is_empty() {
        return Err(RedisConfigError::new(format!(
            "redis.password_file: {shown} is empty; write the password into its first line"
        )));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_password_is_read_for_every_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let named = || RedisCredentials::from_file(Some("who".into()), path.clone());
        assert!(named().is_err(), "the file is missing");
        fs::write(&path, "one\n").unwrap();
        let named = named().unwrap();
        let words = |words: [&str; 2]| Ok(Some(words.map(str::to_owned).to_vec()));
        assert_eq!(named.auth(), words(["who", "one"]));
        fs::write(&path, "two\nignored").unwrap();
        assert_eq!(named.auth(), words(["who", "two"]));
        fs::write(&path, "\n").unwrap();
        assert!(named.auth().is_err(), "the file is empty");
    }

    #[test]
    fn a_fixed_password_needs_no_user() {
        let fixed = |name: Option<&str>, password: Option<&str>| {
            RedisCredentials::new(name.map(str::to_owned), password.map(Secret::new))
        };
        assert_eq!(fixed(None, Some("p")).auth(), Ok(Some(vec!["p".to_owned()])));
        assert_eq!(fixed(Some("u"), None).auth(), Ok(None), "a name alone needs no AUTH");
        assert!(!format!("{:?}", fixed(None, Some("hunter2"))).contains("hunter2"));
    }
}
