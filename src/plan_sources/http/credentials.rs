//! TLS to the server with the plans. The file of its authorities can be replaced while weir runs.

use std::path::Path;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::tls::{
    CertFiles, PemFile, ReloadOutcome, Reloadable, TlsError, TrustAndIdentity, crypto_provider,
};

/// The configuration of TLS connections.
#[derive(Debug)]
pub(super) struct PlansTls {
    files: Reloadable<ClientConfig>,
    server_name: ServerName<'static>,
}

impl PlansTls {
    /// The configuration for a server at `host`. `authorities` are trusted besides those of the system.
    ///
    /// # Errors
    /// An invalid file, and a host that no certificate can have.
    pub(super) fn load(authorities: Option<&Path>, host: &str) -> Result<PlansTls, TlsError> {
        let server_name = ServerName::try_from(host.to_owned())
            .map_err(|error| TlsError::new(format!("plans.url: the host {host:?}: {error}")))?;
        let authorities = authorities.map(|path| PemFile::new("plans.ca_file", path));
        let files = Reloadable::load(CertFiles { authorities, identity: None }, build)?;
        Ok(PlansTls { files, server_name })
    }

    /// The configuration of the last valid file, which is read again, and the name of the server.
    pub(super) fn connector(&self) -> (TlsConnector, ServerName<'static>) {
        match self.files.reload() {
            ReloadOutcome::Unchanged => {}
            ReloadOutcome::Reloaded(_) => {
                tracing::info!("certificates for plans reloaded: new connections use them");
            }
            ReloadOutcome::Failed(error) => {
                tracing::error!(%error, "certificates for plans not reloaded: old ones stay");
            }
        }
        (TlsConnector::from(self.files.current()), self.server_name.clone())
    }
}

fn build(files: TrustAndIdentity) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    // Unparsable ones among the hundreds of the system are skipped.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.roots.extend(files.authorities.into_iter().flat_map(|own| own.roots));
    if roots.is_empty() {
        let text =
            "plans.ca_file: the system has no certificate authorities; set it to a file of them";
        return Err(TlsError::new(text));
    }
    let mut config = ClientConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(format!("TLS to plans.url: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::pair;
    use std::fs;
    use std::sync::Arc;

    #[test]
    fn a_changed_file_is_used_once_it_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        fs::write(&path, pair().0).unwrap();
        let tls = PlansTls::load(Some(&path), "billing.example").unwrap();
        let config = || Arc::as_ptr(tls.connector().0.config());
        let before = config();
        assert_eq!(config(), before, "nothing changed");
        fs::write(&path, "").unwrap();
        assert_eq!(config(), before, "an invalid file changes nothing");
        fs::write(&path, pair().0).unwrap();
        assert_ne!(config(), before);
    }

    #[test]
    fn a_missing_file_and_a_bad_name_are_errors() {
        let error = PlansTls::load(Some(Path::new("missing")), "h").unwrap_err().to_string();
        assert!(error.starts_with("plans.ca_file: missing: "), "{error}");
        let error = PlansTls::load(None, "a b").unwrap_err().to_string();
        assert!(error.starts_with("plans.url: "), "{error}");
    }
}
