//! TLS to the server: the trusted authorities, and weir's certificate. Their files can be replaced
//! while weir runs.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::settings::XdsSettings;
use crate::time::{Clock, SystemClock};
use crate::tls::{
    CertFiles, PemFile, ReloadOutcome, Reloadable, TlsError, TrustAndIdentity, crypto_provider,
};

/// The configuration of TLS connections.
#[derive(Debug)]
pub(super) struct XdsCredentials {
    files: Reloadable<ClientTls>,
    server_name: ServerName<'static>,
}

/// What the files have.
struct ClientTls {
    config: Arc<ClientConfig>,
    /// When weir's certificate expires, in seconds since 1970; 0 without one.
    ends: u64,
}

impl XdsCredentials {
    /// The configuration for a server at `host`; `None` without `rules.xds.tls`.
    ///
    /// # Errors
    /// Invalid files, and a name that is none.
    pub(super) fn load(
        settings: &XdsSettings,
        host: &str,
        clock: SystemClock,
    ) -> Result<Option<XdsCredentials>, TlsError> {
        let XdsSettings { tls, tls_ca, tls_cert, tls_key, tls_server_name, .. } = settings;
        if !tls {
            return Ok(None);
        }
        // The settings have both or none.
        let identity = tls_cert.as_ref().zip(tls_key.as_ref()).map(|(cert, key)| {
            (PemFile::new("rules.xds.tls_cert", cert), PemFile::new("rules.xds.tls_key", key))
        });
        let authorities = tls_ca.as_ref().map(|path| PemFile::new("rules.xds.tls_ca", path));
        let name = tls_server_name.as_deref().unwrap_or(host).to_owned();
        let server_name = ServerName::try_from(name);
        let server_name = server_name
            .map_err(|error| TlsError::new(format!("rules.xds.tls_server_name: {error}")))?;
        let build = move |files| build(files, clock);
        let files = Reloadable::load(CertFiles { authorities, identity }, build)?;
        Ok(Some(XdsCredentials { files, server_name }))
    }

    /// Reads the files again. Invalid ones change nothing.
    pub(super) fn reload(&self) {
        match self.files.reload() {
            ReloadOutcome::Unchanged => {}
            ReloadOutcome::Reloaded(_) => {
                tracing::info!("certificates for xDS reloaded: new connections use them");
            }
            ReloadOutcome::Failed(error) => {
                tracing::error!(%error, "certificates for xDS not reloaded: old ones stay");
            }
        }
    }

    /// The configuration of the last valid files, and the name of the server.
    pub(super) fn connector(&self) -> (TlsConnector, ServerName<'static>) {
        let config = Arc::clone(&self.files.current().config);
        (TlsConnector::from(config), self.server_name.clone())
    }

    /// When weir's certificate of the last valid files expires, in seconds since 1970; 0 without one.
    pub(super) fn certificate_expiry(&self) -> u64 {
        self.files.current().ends
    }
}

fn build(files: TrustAndIdentity, clock: SystemClock) -> Result<ClientTls, TlsError> {
    let TrustAndIdentity { authorities, identity } = files;
    let mut roots = RootCertStore::empty();
    // Unparsable ones among the hundreds of the system are skipped.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.roots.extend(authorities.into_iter().flat_map(|own| own.roots));
    if roots.is_empty() {
        let text =
            "rules.xds.tls_ca: the system has no certificate authorities; set it to a file of them";
        return Err(TlsError::new(text));
    }
    if let Some(warning) = identity.as_ref().and_then(|own| own.warning(clock.now().0 / 1_000_000))
    {
        tracing::warn!("{warning}");
    }
    let ends = identity.as_ref().map_or(0, |own| own.validity.ends);
    let builder = ClientConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(format!("TLS to the xDS server: {error}")))?
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.key))),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(ClientTls { config: Arc::new(config), ends })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::pair;
    use std::fs;

    #[test]
    fn changed_files_are_used_once_they_are_valid() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        let [(first, first_key), (second, second_key)] = [pair(), pair()];
        write("crt", &first);
        write("key", &first_key);
        let settings = XdsSettings {
            tls: true,
            tls_ca: Some(path("crt")),
            tls_cert: Some(path("crt")),
            tls_key: Some(path("key")),
            ..XdsSettings::default()
        };
        let credentials =
            XdsCredentials::load(&settings, "envoy-gateway", SystemClock::new()).unwrap().unwrap();
        let shown = || {
            credentials.reload();
            // rcgen's certificates expire in the year 4096.
            assert!(credentials.certificate_expiry() > 60_000_000_000);
            let (connector, name) = credentials.connector();
            assert_eq!(name.to_str(), "envoy-gateway");
            let own = connector.config().client_auth_cert_resolver.resolve(&[], &[]);
            own.unwrap().cert[0].to_vec()
        };
        let before = shown();
        write("crt", &second);
        assert_eq!(shown(), before, "the key does not match yet");
        write("key", &second_key);
        assert_ne!(shown(), before);
    }

    #[test]
    fn missing_files_are_errors() {
        let load = |settings: XdsSettings| {
            XdsCredentials::load(&settings, "h", SystemClock::new()).map(|found| found.is_some())
        };
        let default = XdsSettings::default;
        assert_eq!(load(default()), Ok(false));
        let missing = XdsSettings { tls: true, tls_ca: Some("missing".into()), ..default() };
        let error = load(missing).unwrap_err().to_string();
        assert!(error.starts_with("rules.xds.tls_ca: missing: "), "{error}");
    }
}
