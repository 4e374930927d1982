//! Certificates, and a client that trusts them.

use tonic::transport::{Certificate, ClientTlsConfig};

#[allow(dead_code, reason = "each test binary uses its part")]
#[path = "../../bed/certificates.rs"]
mod certificates;

pub(crate) use certificates::Certificates;

/// A client's side of TLS that trusts `authority`.
pub(crate) fn trusting(authority: &Certificates) -> ClientTlsConfig {
    let ca = std::fs::read_to_string(authority.path("ca.crt")).expect("a certificate");
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name("localhost")
}
