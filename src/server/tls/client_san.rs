//! Clients by name: a trusted certificate that must also be made out to one of some names.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, DnsName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::{TlsError, der};

/// Trust that depends on a name as well.
#[derive(Debug)]
pub(super) struct SanVerifier {
    trust: Arc<dyn ClientCertVerifier>,
    /// The kind of each, and the name.
    names: Vec<(u8, String)>,
}

/// The kinds of names that are compared, as certificates number them.
const DNS: u8 = 0x82;
const URI: u8 = 0x86;

impl SanVerifier {
    /// `trust`, for the bearers of one of `names`; for all, if there are none.
    pub(super) fn wrap(
        trust: Arc<dyn ClientCertVerifier>,
        names: &[String],
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        if names.is_empty() {
            return Ok(trust);
        }
        let names = names.iter().map(|name| kind(name)).collect::<Result<_, _>>()?;
        Ok(Arc::new(SanVerifier { trust, names }))
    }
}

/// What kind of name is meant by `text`.
fn kind(text: &str) -> Result<(u8, String), TlsError> {
    if text.contains("://") {
        return Ok((URI, text.to_owned()));
    }
    match DnsName::try_from(text) {
        Ok(_) => Ok((DNS, text.to_owned())),
        Err(_) => Err(TlsError(format!(
            "grpc.tls_client_san: \"{text}\" is neither a DNS name nor a URI such as spiffe://.."
        ))),
    }
}

/// Whether the name in a certificate stands for `wanted`: letter by letter, but for the case of DNS
/// names, and for their first label, which may be `*`. Namespaces make names such as
/// `*.envoy-gateway-system`, so the star may stand before a single label.
fn fits(kind: u8, presented: &str, wanted: &str) -> bool {
    if kind == URI {
        return presented == wanted;
    }
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    match (presented.strip_prefix("*."), wanted.split_once('.')) {
        (Some(presented), Some((_, wanted))) => same(presented, wanted),
        _ => same(presented, wanted),
    }
}

impl ClientCertVerifier for SanVerifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.trust.verify_client_cert(end_entity, intermediates, now)?;
        let is_wanted = |(kind, presented): (u8, &str)| {
            self.names.iter().any(|(k, wanted)| *k == kind && fits(kind, presented, wanted))
        };
        if der::names(end_entity).any(is_wanted) {
            return Ok(verified);
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn offer_client_auth(&self) -> bool {
        self.trust.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.trust.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.trust.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_label_and_nothing_else_for_another() {
        let table = [
            (DNS, "envoy.example", "envoy.example", true),
            (DNS, "Envoy.Example", "envoy.example", true),
            (DNS, "*.example", "envoy.example", true),
            (DNS, "*.example", "a.envoy.example", false),
            (DNS, "*.example", "example", false),
            (DNS, "*", "example", false),
            (DNS, "*.", "envoy.", true),
            (DNS, "e*.example", "envoy.example", false),
            (DNS, "other.example", "envoy.example", false),
            (DNS, "example", "envoy.example", false),
            (URI, "spiffe://c/a", "spiffe://c/a", true),
            (URI, "spiffe://c/a", "spiffe://c/A", false),
            (URI, "spiffe://c/*", "spiffe://c/a", false),
        ];
        for (number, presented, wanted, expected) in table {
            assert_eq!(fits(number, presented, wanted), expected, "{presented} for {wanted}");
        }
        for wanted in ["", "*.example", "a b", "envoy.example."] {
            assert!(kind(wanted).is_err() || wanted.ends_with('.'), "{wanted}");
        }
    }
}
