//! Reload of certificate files. Invalid files change nothing: the last valid ones stay in use.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::cert_files::CertBytes;
use super::{CertFiles, TlsError, TrustAndIdentity};

/// A value built from certificate files, for example a rustls configuration.
pub struct Reloadable<T> {
    files: CertFiles,
    build: Builder<T>,
    current: ArcSwap<T>,
    /// The bytes or the error of the last read.
    last_read: Mutex<Result<CertBytes, TlsError>>,
}

type Builder<T> = Box<dyn Fn(TrustAndIdentity) -> Result<T, TlsError> + Send + Sync>;

/// The result of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReloadOutcome<T> {
    /// The files have not changed since the last reload, whether that succeeded or not.
    Unchanged,
    /// The files have changed and are used from now on.
    Reloaded(T),
    /// The files have changed and are invalid. The previous value stays in use.
    Failed(TlsError),
}

impl<T> Reloadable<T> {
    /// Reads `files` and builds the first value.
    ///
    /// # Errors
    ///
    /// Files that cannot be read or parsed, and errors of `build`.
    pub fn load(
        files: CertFiles,
        build: impl Fn(TrustAndIdentity) -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Reloadable<T>, TlsError> {
        let bytes = files.read()?;
        let first = build(files.parse(&bytes)?)?;
        Ok(Reloadable {
            files,
            build: Box::new(build),
            current: ArcSwap::from_pointee(first),
            last_read: Mutex::new(Ok(bytes)),
        })
    }

    /// The value of the last valid files.
    pub fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Reads the files, and builds a new value if their content has changed.
    pub fn reload(&self) -> ReloadOutcome<Arc<T>> {
        // Comparing the content finds every kind of change: a write, a rename, a swapped link.
        let mut last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        let read = self.files.read();
        if *last_read == read {
            return ReloadOutcome::Unchanged;
        }
        let parsed =
            read.as_ref().map_err(TlsError::clone).and_then(|bytes| self.files.parse(bytes));
        *last_read = read;
        match parsed.and_then(|parsed| (self.build)(parsed)) {
            Ok(value) => {
                let value = Arc::new(value);
                self.current.store(Arc::clone(&value));
                ReloadOutcome::Reloaded(value)
            }
            Err(error) => ReloadOutcome::Failed(error),
        }
    }
}

impl<T> fmt::Debug for Reloadable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes contain the private key.
        f.debug_struct("Reloadable").field("files", &self.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::PemFile;
    use crate::tls::tests::pair;
    use std::fs;

    #[test]
    fn invalid_files_leave_the_last_valid_ones_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        let [(first, first_key), (second, second_key)] = [pair(), pair()];
        write("crt", &first);
        write("key", &first_key);
        let files = CertFiles {
            authorities: Some(PemFile::new("a.tls_ca", path("crt"))),
            identity: Some((
                PemFile::new("a.tls_cert", path("crt")),
                PemFile::new("a.tls_key", path("key")),
            )),
        };
        let load = || {
            let certificate = |parsed: TrustAndIdentity| {
                Ok(parsed.identity.map(|identity| identity.key.cert[0].to_vec()))
            };
            Reloadable::load(files.clone(), certificate)
        };
        let reloadable = load().unwrap();
        let before = reloadable.current();
        assert_eq!(reloadable.reload(), ReloadOutcome::Unchanged);
        let failed = |part: &str| {
            let outcome = reloadable.reload();
            let ReloadOutcome::Failed(error) = outcome else { panic!("{part}: {outcome:?}") };
            let error = error.to_string();
            assert!(error.contains(part) && !error.contains("PRIVATE"), "{part}: {error}");
            assert_eq!(reloadable.reload(), ReloadOutcome::Unchanged, "reported once");
        };
        write("crt", &second);
        failed("does not work with");
        assert_eq!(reloadable.current(), before);
        write("key", &second_key);
        assert!(matches!(reloadable.reload(), ReloadOutcome::Reloaded(_)));
        let after = reloadable.current();
        assert_ne!(after, before);
        for (bad, problem) in [
            ("", "holds no private key"),
            (&second_key[..second_key.len() / 2], "is not a private key"),
        ] {
            write("key", bad);
            failed(problem);
            assert!(load().is_err(), "{problem}");
        }
        fs::remove_file(path("key")).unwrap();
        failed("a.tls_key: ");
        write("key", &second_key);
        write("crt", "");
        failed("holds no certificate");
        assert_eq!(reloadable.current(), after);
        write("crt", &first);
        write("key", &first_key);
        assert!(matches!(reloadable.reload(), ReloadOutcome::Reloaded(_)));
        assert_eq!(reloadable.current(), before);
        let debug = format!("{reloadable:?}");
        assert!(debug.contains("crt") && !debug.contains("PRIVATE"), "{debug}");
    }
}
