//! The files of TLS as bytes, so that a change shows whatever made it: a write, a rename, a link
//! that leads elsewhere.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{TlsError, TlsFiles};

/// Nobody's certificates are larger.
const LARGEST: u64 = 1 << 20;

/// What the files hold.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) cert: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_ca: Option<Vec<u8>>,
}

impl Contents {
    /// Reads them.
    pub(super) fn read(files: &TlsFiles) -> Result<Contents, TlsError> {
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
    let mut bytes = Vec::new();
    // One byte more than may be, so that a longer file shows.
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > LARGEST => Err(bad(setting, path, "is larger than 1 MiB")),
        Ok(_) => Ok(bytes),
        Err(error) => Err(bad(setting, path, error)),
    }
}

/// What is wrong with a file.
pub(super) fn bad(setting: &str, path: &Path, reason: impl std::fmt::Display) -> TlsError {
    TlsError(format!("{setting}: {}: {reason}", path.display()))
}
