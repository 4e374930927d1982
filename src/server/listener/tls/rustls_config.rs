//! The rustls configuration of the gRPC port, built from its certificate files.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;

use super::TlsConfig;
use super::client_san::SanVerifier;
use crate::tls::{Identity, PemFile, TlsError, TrustAndIdentity, crypto_provider};

/// The TLS configuration of new connections, and the certificate in it.
pub(super) struct ServedConfig {
    pub(super) rustls: Arc<ServerConfig>,
    pub(super) identity: Identity,
}

/// Builds a configuration for TLS 1.2 and 1.3 with HTTP/2 (ALPN `h2`).
pub(super) fn build(config: &TlsConfig, files: TrustAndIdentity) -> Result<ServedConfig, TlsError> {
    let TrustAndIdentity { authorities, identity: Some(identity) } = files else {
        return Err(TlsError::new("grpc.tls_cert and grpc.tls_key: both are required"));
    };
    let builder = ServerConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(format!("TLS: {error}")))?;
    let builder = match (&config.client_ca, authorities) {
        (Some(path), Some(authorities)) => {
            let roots = Arc::new(authorities);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, crypto_provider());
            let verifier =
                if config.client_optional { verifier.allow_unauthenticated() } else { verifier };
            let error = |error| PemFile::new("grpc.tls_client_ca", path).error(error);
            let verifier = verifier.build().map_err(error)?;
            builder.with_client_cert_verifier(SanVerifier::wrap(verifier, &config.client_san))
        }
        _ => builder.with_no_client_auth(),
    };
    let key = SingleCertAndKey::from((*identity.key).clone());
    let mut rustls = builder.with_cert_resolver(Arc::new(key));
    rustls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(ServedConfig { rustls: Arc::new(rustls), identity })
}
