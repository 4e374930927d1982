//! TLS to Redis: the trusted authorities and weir's certificate, which are read for every
//! handshake.
//!
//! Files can therefore be replaced while weir runs. Invalid files change nothing: the last valid
//! ones stay in use.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, SignatureScheme};

use super::RedisConfigError;
use crate::settings::RedisSettings;
use crate::time::{Clock, SystemClock};
use crate::tls::{
    CertFiles, Identity, PemFile, ReloadOutcome, Reloadable, TlsError, TrustAndIdentity,
    crypto_provider, delegate_signatures,
};

/// The configuration of TLS handshakes.
pub(super) fn config(settings: &RedisSettings) -> Result<Arc<ClientConfig>, RedisConfigError> {
    client_config(settings).map_err(|error| RedisConfigError::new(error.to_string()))
}

fn client_config(settings: &RedisSettings) -> Result<Arc<ClientConfig>, TlsError> {
    let certificates = Arc::new(LiveCertificates::load(settings)?);
    let builder = ClientConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(format!("TLS to Redis: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(certificates.clone());
    let mut config = match settings.tls_cert {
        None => builder.with_no_client_auth(),
        Some(_) => builder.with_client_cert_resolver(certificates),
    };
    // A resumed session would skip the exchange of certificates, and with it new files.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The certificates of one handshake.
struct Certificates {
    /// Verifies the server's certificate.
    verifier: Arc<WebPkiServerVerifier>,
    /// weir's certificate, if one is set.
    identity: Option<Identity>,
}

/// The certificates in the files, or the last valid ones.
struct LiveCertificates {
    files: Reloadable<Certificates>,
    skip_hostname_check: bool,
    clock: SystemClock,
}

impl LiveCertificates {
    fn load(settings: &RedisSettings) -> Result<LiveCertificates, TlsError> {
        // The settings have both or none.
        let identity =
            settings.tls_cert.as_ref().zip(settings.tls_key.as_ref()).map(|(cert, key)| {
                (PemFile::new("redis.tls_cert", cert), PemFile::new("redis.tls_key", key))
            });
        let authorities = settings.tls_ca.as_ref().map(|path| PemFile::new("redis.tls_ca", path));
        let files = Reloadable::load(CertFiles { authorities, identity }, build)?;
        let live = LiveCertificates {
            files,
            skip_hostname_check: settings.tls_skip_hostname_check,
            clock: SystemClock::new(),
        };
        live.warn(&live.files.current());
        Ok(live)
    }

    /// Reads the files again. Returns the new certificates, or the last valid ones.
    fn reloaded(&self) -> Arc<Certificates> {
        match self.files.reload() {
            ReloadOutcome::Unchanged => {}
            ReloadOutcome::Reloaded(certificates) => {
                tracing::info!("certificates for Redis reloaded: new connections use them");
                self.warn(&certificates);
            }
            ReloadOutcome::Failed(error) => {
                tracing::error!(%error, "certificates for Redis not reloaded: old ones stay");
            }
        }
        self.files.current()
    }

    /// The verifier of the last valid files, without a reload.
    fn verifier(&self) -> Arc<WebPkiServerVerifier> {
        Arc::clone(&self.files.current().verifier)
    }

    fn warn(&self, certificates: &Certificates) {
        let now = self.clock.now().0 / 1_000_000;
        if let Some(warning) = certificates.identity.as_ref().and_then(|own| own.warning(now)) {
            tracing::warn!("{warning}");
        }
    }
}

fn build(files: TrustAndIdentity) -> Result<Certificates, TlsError> {
    let TrustAndIdentity { authorities, identity } = files;
    let roots = authorities.unwrap_or_else(system_authorities);
    if roots.is_empty() {
        return Err(TlsError::new(
            "redis.tls_ca: the system has no certificate authorities; set it to a file of them",
        ));
    }
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), crypto_provider()).build();
    let verifier = verifier.map_err(|error| TlsError::new(format!("redis.tls_ca: {error}")))?;
    Ok(Certificates { verifier, identity })
}

/// The authorities of the system. Unparsable ones among the hundreds are skipped.
fn system_authorities() -> RootCertStore {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    store
}

impl fmt::Debug for LiveCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveCertificates").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for LiveCertificates {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verifier = &self.reloaded().verifier;
        match verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        ) {
            // rustls checks the name last, so the chain is valid.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.skip_hostname_check => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    delegate_signatures!(verifier);
}

impl ResolvesClientCert for LiveCertificates {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.reloaded().identity.as_ref().map(|identity| Arc::clone(&identity.key))
    }

    fn has_certs(&self) -> bool {
        self.files.current().identity.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::pair;
    use std::fs;

    #[test]
    fn every_handshake_uses_the_last_valid_pair() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let [(first, first_key), (second, second_key)] = [pair(), pair()];
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        write("crt", &first);
        write("key", &first_key);
        let settings = RedisSettings {
            tls_ca: Some(path("crt")),
            tls_cert: Some(path("crt")),
            tls_key: Some(path("key")),
            ..RedisSettings::default()
        };
        let live = LiveCertificates::load(&settings).unwrap();
        let shown = || live.resolve(&[], &[]).unwrap().cert[0].to_vec();
        let before = shown();
        write("crt", &second);
        assert_eq!(shown(), before, "the key does not match yet");
        write("key", &second_key);
        let after = shown();
        assert_ne!(after, before);
        for bad in ["", "no key"] {
            write("key", bad);
            assert_eq!(shown(), after);
            assert!(LiveCertificates::load(&settings).is_err(), "there was no valid pair before");
        }
        fs::remove_file(path("crt")).unwrap();
        assert_eq!(shown(), after);
        write("crt", &first);
        write("key", &first_key);
        assert_eq!(shown(), before);
        let debug = format!("{live:?}");
        assert!(debug.contains("crt") && !debug.contains("PRIVATE"), "{debug}");
    }
}
