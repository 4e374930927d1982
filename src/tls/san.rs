//! Subject alternative names (SANs): comparison of configured names with the names in a
//! certificate.
//!
//! rustls compares names too, but rejects a wildcard before a single label
//! (`*.envoy-gateway-system`). Envoy Gateway issues such certificates, because Kubernetes
//! namespaces are single labels.

use rustls::pki_types::DnsName;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// A configured name. Compare it only with certificates that rustls has verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SanName {
    /// A DNS name without a wildcard.
    Dns(String),
    /// A URI such as `spiffe://cluster.local/ns/a/sa/b`.
    Uri(String),
}

impl SanName {
    /// Parses a configured name; `None` if it is neither a DNS name nor a URI.
    pub fn parse(text: &str) -> Option<SanName> {
        if text.contains("://") {
            return Some(SanName::Uri(text.to_owned()));
        }
        DnsName::try_from(text).ok().map(|_| SanName::Dns(text.to_owned()))
    }

    /// The name as configured.
    pub fn text(&self) -> &str {
        match self {
            SanName::Dns(text) | SanName::Uri(text) => text,
        }
    }

    /// Whether `certificate`, in DER, has one of `names`.
    pub fn any_in(names: &[SanName], certificate: &[u8]) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        let Ok(Some(extension)) = certificate.subject_alternative_name() else { return false };
        let presented = &extension.value.general_names;
        presented.iter().any(|presented| names.iter().any(|name| name.matches(presented)))
    }

    /// Whether a certificate's name matches. URIs match exactly. DNS names match in any case, and
    /// the certificate's first label may be a wildcard (`*`).
    fn matches(&self, presented: &GeneralName<'_>) -> bool {
        match (self, presented) {
            (SanName::Uri(wanted), GeneralName::URI(presented)) => presented == wanted,
            (SanName::Dns(wanted), GeneralName::DNSName(presented)) => {
                match (presented.strip_prefix("*."), wanted.split_once('.')) {
                    (Some(presented), Some((_, wanted))) => presented.eq_ignore_ascii_case(wanted),
                    _ => presented.eq_ignore_ascii_case(wanted),
                }
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    #[test]
    fn a_wildcard_matches_exactly_one_label() {
        let dns = |presented, wanted: &str, expected| {
            (GeneralName::DNSName(presented), wanted.to_owned(), expected)
        };
        let uri = |presented, wanted: &str, expected| {
            (GeneralName::URI(presented), wanted.to_owned(), expected)
        };
        let table = [
            dns("envoy.example", "envoy.example", true),
            dns("Envoy.Example", "envoy.example", true),
            dns("*.example", "envoy.example", true),
            dns("*.example", "a.envoy.example", false),
            dns("*.example", "example", false),
            dns("*", "example", false),
            dns("*.", "envoy.", true),
            dns("e*.example", "envoy.example", false),
            dns("other.example", "envoy.example", false),
            dns("example", "envoy.example", false),
            dns("spiffe://c/a", "spiffe://c/a", false),
            uri("envoy.example", "envoy.example", false),
            uri("spiffe://c/a", "spiffe://c/a", true),
            uri("spiffe://c/a", "spiffe://c/A", false),
            uri("spiffe://c/*", "spiffe://c/a", false),
        ];
        for (presented, wanted, expected) in table {
            let name = SanName::parse(&wanted).unwrap();
            assert_eq!(name.matches(&presented), expected, "{presented} for {wanted}");
        }
        for text in ["", "*.example", "a b"] {
            assert_eq!(SanName::parse(text), None, "{text}");
        }
    }

    /// Certificates of Envoy Gateway 1.9 have the common name `*`, a wildcard before the namespace,
    /// and no extended key usage.
    #[test]
    fn certificates_of_envoy_gateway_match() {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "*");
        let star = "*.envoy-gateway-system".try_into().unwrap();
        params.subject_alt_names = vec![SanType::DnsName(star)];
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let names = |text: &str| [SanName::parse(text).unwrap()];
        let found = |text: &str| SanName::any_in(&names(text), certificate.der());
        assert!(found("envoy.envoy-gateway-system"));
        assert!(!found("envoy.default") && !found("*/envoy://x"));
        let der = certificate.der();
        for length in 0..der.len() {
            assert!(!SanName::any_in(&names("envoy.envoy-gateway-system"), &der[..length]));
        }
    }

    #[test]
    fn a_certificate_without_names_matches_nothing() {
        let certificate = CertificateParams::default().self_signed(&KeyPair::generate().unwrap());
        let name = SanName::parse("weir").unwrap();
        assert!(!SanName::any_in(&[name], certificate.unwrap().der()));
    }
}
