//! From files to what rustls serves with: the pair, the trust, the protocols.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::client_san::SanVerifier;
use super::files::{Contents, bad};
use super::validity::Validity;
use super::{TlsConfig, TlsError};

/// What a certificate must still have left, in seconds, for nobody to be told: two weeks.
const SOON: u64 = 14 * 24 * 3600;

/// What files make.
#[derive(Debug)]
pub(super) struct BuiltConfig {
    pub(super) rustls: Arc<ServerConfig>,
    begins: u64,
    /// When the certificate ends, in seconds since 1970.
    pub(super) ends: u64,
}

/// What `contents` make.
pub(super) fn build(files: &TlsConfig, contents: &Contents) -> Result<BuiltConfig, TlsError> {
    let chain = certificates(&contents.cert).map_err(|e| bad("grpc.tls_cert", &files.cert, e))?;
    let validity = Validity::of(&chain[0])
        .ok_or_else(|| bad("grpc.tls_cert", &files.cert, "is not an X.509 certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|error| {
        let error = match error {
            pem::Error::NoItemsFound => {
                "holds no private key in PEM form (PKCS#8, PKCS#1 or SEC1)".to_owned()
            }
            // Other errors of the parser may show a line, which would be of the key.
            _ => "is not a private key in PEM form".to_owned(),
        };
        bad("grpc.tls_key", &files.key, error)
    })?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError(format!("TLS: {error}")))?;
    let builder = match (&files.client_ca, &contents.client_ca) {
        (Some(path), Some(pem)) => {
            let wrong = |error: String| bad("grpc.tls_client_ca", path, error);
            let mut roots = RootCertStore::empty();
            for certificate in certificates(pem).map_err(wrong)? {
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
            let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let clients =
                if files.client_optional { clients.allow_unauthenticated() } else { clients };
            let clients = clients.build().map_err(|error| wrong(error.to_string()))?;
            builder.with_client_cert_verifier(SanVerifier::wrap(clients, &files.client_san)?)
        }
        _ => builder.with_no_client_auth(),
    };
    let mut rustls = builder.with_single_cert(chain, key).map_err(|error| {
        let pair = format!("grpc.tls_cert {} and grpc.tls_key", files.cert.display());
        TlsError(format!("{pair} {} do not go together: {error}", files.key.display()))
    })?;
    rustls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(BuiltConfig { rustls: Arc::new(rustls), begins: validity.begins, ends: validity.ends })
}

impl BuiltConfig {
    /// What the operator should know at `now`, in seconds since 1970. The pair is used all the same:
    /// the clients decide whom they trust, and some look at no dates.
    pub(super) fn warnings(&self, files: &TlsConfig, now: u64) -> Vec<String> {
        let cert = files.cert.display();
        let what = if now < self.begins {
            "is not valid yet; is this machine's clock right?".to_owned()
        } else if now >= self.ends {
            "has expired; clients will refuse it".to_owned()
        } else if self.ends - now < SOON {
            format!("expires in {} days", (self.ends - now) / (24 * 3600))
        } else {
            return Vec::new();
        };
        vec![format!("grpc.tls_cert {cert}: the certificate {what}")]
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match read {
        Ok(read) if read.is_empty() => Err("holds no certificate in PEM form".to_owned()),
        Ok(read) => Ok(read),
        Err(error) => Err(error.to_string()),
    }
}
