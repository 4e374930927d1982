//! The files of TLS as bytes, so that a change shows whatever made it: a write, a rename, a link
//! that leads elsewhere.

use std::path::Path;

use super::{TlsConfig, TlsError};
use crate::secret_file;

/// What the files hold.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) cert: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_ca: Option<Vec<u8>>,
}

impl Contents {
    /// Reads them.
    pub(super) fn read(files: &TlsConfig) -> Result<Contents, TlsError> {
        Ok(Contents {
            cert: read("grpc.tls_cert", &files.cert)?,
            key: read("grpc.tls_key", &files.key)?,
            client_ca: match &files.client_ca {
                Some(path) => Some(read("grpc.tls_client_ca", path)?),
                None => None,
            },
        })
    }
}

fn read(setting: &str, path: &Path) -> Result<Vec<u8>, TlsError> {
    secret_file::read(path).map_err(|error| bad(setting, path, error))
}

/// What is wrong with a file.
pub(super) fn bad(setting: &str, path: &Path, reason: impl std::fmt::Display) -> TlsError {
    TlsError(format!("{setting}: {}: {reason}", path.display()))
}
