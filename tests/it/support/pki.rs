//! Certificates, and a folder that changes as a Kubernetes secret does.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tonic::transport::{Certificate, ClientTlsConfig};

#[path = "../../bed/certificates.rs"]
mod certificates;

pub(crate) use certificates::Certificates;

use super::weir::write;

/// A client's side of TLS that trusts `authority`.
pub(crate) fn trusting(authority: &Certificates) -> ClientTlsConfig {
    let ca = std::fs::read_to_string(authority.path("ca.crt")).expect("a certificate");
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name("localhost")
}

/// A mounted secret: `tls.crt` is a link to `..data/tls.crt`, `..data` a link to a folder.
pub(crate) struct Secret {
    folder: TempDir,
    versions: u32,
}

impl Secret {
    /// With a pair in it.
    pub(crate) fn new(pair: &(String, String)) -> Secret {
        let mut secret =
            Secret { folder: TempDir::new().expect("a temporary folder"), versions: 0 };
        secret.swap(pair);
        for name in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(name), secret.path(name)).expect("a fresh link");
        }
        secret
    }

    /// Puts another pair in its place, all at once.
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

    /// Where a file of it is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
