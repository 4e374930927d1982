//! A folder that is updated like a mounted Kubernetes secret.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::weir::write;

/// A mounted secret. `tls.crt` links to `..data/tls.crt`, and `..data` links to a folder.
pub(crate) struct Secret {
    folder: TempDir,
    versions: u32,
}

impl Secret {
    /// A secret with a certificate and its key.
    pub(crate) fn new(pair: &(String, String)) -> Secret {
        let mut secret =
            Secret { folder: TempDir::new().expect("a temporary folder"), versions: 0 };
        secret.swap(pair);
        for name in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(name), secret.path(name)).expect("a fresh link");
        }
        secret
    }

    /// Replaces both files atomically.
    pub(crate) fn swap(&mut self, (cert, key): &(String, String)) {
        self.versions += 1;
        let version = format!("..version-{}", self.versions);
        let folder = self.path(&version);
        std::fs::create_dir(&folder).expect("a fresh folder");
        write(&folder.join("tls.crt"), cert);
        write(&folder.join("tls.key"), key);
        symlink(&version, self.path("..data_tmp")).expect("a fresh link");
        std::fs::rename(self.path("..data_tmp"), self.path("..data")).expect("a swap");
    }

    /// The path of one of the secret's files.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
