//! A verifier of client certificates that also requires one of the configured names.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DistinguishedName, Error};

use crate::tls::{SanName, delegate_signatures};

/// A verifier that runs rustls' checks, then compares the certificate's subject alternative names
/// (SANs).
#[derive(Debug)]
pub(super) struct SanVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    names: Vec<SanName>,
}

impl SanVerifier {
    /// Wraps `inner` so that only certificates with one of `names` pass. Returns `inner` itself if
    /// `names` is empty.
    pub(super) fn wrap(
        inner: Arc<dyn ClientCertVerifier>,
        names: &[SanName],
    ) -> Arc<dyn ClientCertVerifier> {
        if names.is_empty() {
            return inner;
        }
        Arc::new(SanVerifier { inner, names: names.to_vec() })
    }

    fn inner(&self) -> &dyn ClientCertVerifier {
        &*self.inner
    }
}

impl ClientCertVerifier for SanVerifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        if SanName::any_in(&self.names, end_entity) {
            return Ok(verified);
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    delegate_signatures!(inner);
}
