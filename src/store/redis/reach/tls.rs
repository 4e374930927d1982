//! TLS to Redis: whom to trust, and who we are.

use std::path::Path;
use std::sync::Arc;

use fred::rustls::client::WebPkiServerVerifier;
use fred::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use fred::rustls::crypto::ring;
use fred::rustls::pki_types::pem::PemObject;
use fred::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use fred::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use fred::types::config::{TlsConfig, TlsConnector};

use super::{ReachError, Tls};

/// What fred shakes hands with.
pub(super) fn config(tls: &Tls) -> Result<TlsConfig, ReachError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| ReachError::new(format!("TLS to Redis: {error}")))?;
    let roots = Arc::new(roots(tls)?);
    let builder = if tls.skip_hostname_check {
        let chain = WebPkiServerVerifier::builder_with_provider(roots, provider)
            .build()
            .map_err(|error| ReachError::new(format!("redis.tls_ca: {error}")))?;
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName { chain }))
    } else {
        builder.with_root_certificates(roots)
    };
    let config = match (&tls.cert, &tls.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let chain = certificates("redis.tls_cert", cert)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| {
                ReachError::new(format!("redis.tls_key {}: {error}", key.display()))
            })?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| ReachError::new(format!("redis.tls_cert and key: {error}")))?
        }
        _ => {
            let text = "redis.tls_cert and redis.tls_key go together; set both or none";
            return Err(ReachError::new(text));
        }
    };
    Ok(TlsConnector::from(config).into())
}

fn roots(tls: &Tls) -> Result<RootCertStore, ReachError> {
    let mut store = RootCertStore::empty();
    match &tls.ca {
        Some(path) => {
            for certificate in certificates("redis.tls_ca", path)? {
                store.add(certificate).map_err(|error| {
                    ReachError::new(format!("redis.tls_ca {}: {error}", path.display()))
                })?;
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
        return Err(ReachError::new(text));
    }
    Ok(store)
}

fn certificates(setting: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, ReachError> {
    let bad = |reason: String| ReachError::new(format!("{setting} {}: {reason}", path.display()));
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|error| bad(error.to_string()))?;
    if certificates.is_empty() {
        return Err(bad("holds no certificate in PEM form".to_owned()));
    }
    Ok(certificates)
}

/// Verifies the chain, its dates and the signatures, but not the name.
#[derive(Debug)]
struct AnyName {
    chain: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is the last thing that is looked at, so all else was in order.
        match self.chain.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        ) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
