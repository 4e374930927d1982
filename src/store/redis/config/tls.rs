//! TLS to Redis: whom to trust, and who we are.

use std::sync::Arc;

use fred::rustls::ClientConfig;
use fred::rustls::client::Resumption;
use fred::types::config::{TlsConfig, TlsConnector};

use super::{RedisConfigError, RedisTls};

mod certificates;
mod files;

use files::Files;

/// What fred shakes hands with: by the files as they are at each handshake.
pub(super) fn config(tls: &RedisTls) -> Result<TlsConfig, RedisConfigError> {
    if tls.cert.is_some() != tls.key.is_some() {
        let text = "redis.tls_cert and redis.tls_key go together; set both or none";
        return Err(RedisConfigError::new(text));
    }
    let files = Arc::new(Files::open(tls.clone())?);
    let builder = ClientConfig::builder_with_provider(files.provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| RedisConfigError::new(format!("TLS to Redis: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(files.clone());
    let mut config = match tls.cert {
        None => builder.with_no_client_auth(),
        Some(_) => builder.with_client_cert_resolver(files),
    };
    // Who takes an old session up again shows no certificate and sees none.
    config.resumption = Resumption::disabled();
    Ok(TlsConnector::from(config).into())
}
