//! Certificate files of a TLS endpoint: reading, parsing, checks and reloads. The gRPC server,
//! the Redis client and the xDS client share this code.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

mod cert_files;
mod reload;
mod san;
mod signatures;
mod validity;

pub use cert_files::{CertFiles, Identity, PemFile, TrustAndIdentity};
pub use reload::{ReloadOutcome, Reloadable};
pub use san::SanName;
pub(crate) use signatures::delegate_signatures;
pub use validity::Validity;

/// Why TLS cannot be set up: the setting, the file and the problem. The text never contains file
/// content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

impl TlsError {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> TlsError {
        TlsError(text.into())
    }
}

/// The cryptography provider of all TLS connections: ring.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{CertificateParams, KeyPair};

    /// A self-signed certificate and its key, in PEM.
    pub(crate) fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["weir".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }
}
