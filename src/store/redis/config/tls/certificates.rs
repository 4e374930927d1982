//! Certificates for one handshake, made of what is in the files.

use std::path::Path;
use std::sync::Arc;

use fred::rustls::RootCertStore;
use fred::rustls::client::WebPkiServerVerifier;
use fred::rustls::crypto::CryptoProvider;
use fred::rustls::pki_types::pem::PemObject;
use fred::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use fred::rustls::sign::CertifiedKey;

use super::{RedisConfigError, RedisTls};
use crate::secret_file;

/// The files' bytes: authorities, our chain, its key; nothing where no file is named.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Bytes([Option<Vec<u8>>; 3]);

/// Whom to trust, and who we are.
#[derive(Clone)]
pub(super) struct Certificates {
    /// Verifies a server's certificate.
    pub(super) chain: Arc<WebPkiServerVerifier>,
    /// Ours, if there is one.
    pub(super) own: Option<Arc<CertifiedKey>>,
}

impl Bytes {
    /// Those that are in the files now.
    pub(super) fn read(tls: &RedisTls) -> Result<Bytes, RedisConfigError> {
        let read = |setting: &str, path: &Option<std::path::PathBuf>| {
            let path = path.as_deref();
            path.map(|path| secret_file::read(path).map_err(|e| bad(setting, path, &e))).transpose()
        };
        let authorities = read("redis.tls_ca", &tls.ca)?;
        Ok(Bytes([
            authorities,
            read("redis.tls_cert", &tls.cert)?,
            read("redis.tls_key", &tls.key)?,
        ]))
    }
}

impl Certificates {
    /// What these bytes say.
    pub(super) fn of(
        bytes: &Bytes,
        tls: &RedisTls,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Certificates, RedisConfigError> {
        let Bytes([authorities, cert, key]) = bytes;
        let roots = Arc::new(roots(authorities.as_deref().zip(tls.ca.as_deref()))?);
        let chain = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider))
            .build()
            .map_err(|error| RedisConfigError::new(format!("redis.tls_ca: {error}")))?;
        let own = match (cert.as_deref().zip(tls.cert.as_deref()), key.as_deref(), &tls.key) {
            (Some((cert, path)), Some(key), Some(key_path)) => {
                let cert = certificates("redis.tls_cert", path, cert)?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| bad("redis.tls_key", key_path, &error))?;
                let own = CertifiedKey::from_der(cert, key, provider);
                let own = own.map_err(|error| {
                    RedisConfigError::new(format!("redis.tls_cert and redis.tls_key: {error}"))
                })?;
                Some(Arc::new(own))
            }
            _ => None,
        };
        Ok(Certificates { chain, own })
    }
}

fn roots(authorities: Option<(&[u8], &Path)>) -> Result<RootCertStore, RedisConfigError> {
    let mut store = RootCertStore::empty();
    match authorities {
        Some((bytes, path)) => {
            for certificate in certificates("redis.tls_ca", path, bytes)? {
                store.add(certificate).map_err(|error| bad("redis.tls_ca", path, &error))?;
            }
        }
        // One that cannot be read among hundreds is the system's affair.
        None => {
            let found = fred::rustls_native_certs::load_native_certs().certs;
            store.add_parsable_certificates(found);
        }
    }
    if store.is_empty() {
        let text =
            "no certificate authority is trusted; set redis.tls_ca to a file of certificates";
        return Err(RedisConfigError::new(text));
    }
    Ok(store)
}

fn certificates(
    setting: &str,
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, RedisConfigError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let certificates = read.map_err(|error| bad(setting, path, &error))?;
    if certificates.is_empty() {
        return Err(bad(setting, path, &"holds no certificate in PEM form"));
    }
    Ok(certificates)
}

fn bad(setting: &str, path: &Path, reason: &dyn std::fmt::Display) -> RedisConfigError {
    RedisConfigError::new(format!("{setting} {}: {reason}", path.display()))
}
