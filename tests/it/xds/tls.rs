//! TLS to the server, and certificates that change.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use super::{of, one_limit, until_limit};
use crate::support::ads::Ads;
use crate::support::certificates::Certificates;
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir, write};

fn secured(ads: &Ads, certificates: &Certificates) -> Setup {
    let path = |name: &str| certificates.path(name).display().to_string();
    of(ads)
        .env("WEIR__RULES__XDS__TLS", "true")
        .env("WEIR__RULES__XDS__TLS_CA", &path("ca.crt"))
        .env("WEIR__RULES__XDS__TLS_CERT", &path("client.crt"))
        .env("WEIR__RULES__XDS__TLS_KEY", &path("client.key"))
}

#[test]
fn a_new_client_certificate_is_used() {
    let certificates = Certificates::new();
    let ads = Ads::with_tls(&certificates);
    ads.set("1", one_limit(5));
    let mut weir = secured(&ads, &certificates).start();
    let client = weir.client();
    until_limit(&client, 5);
    let first = ads.next_request().certificate.expect("a certificate");
    let (cert, key) = certificates.issue(&["weir"]);
    write(&certificates.path("client.crt"), &cert);
    write(&certificates.path("client.key"), &key);
    ads.set("2", one_limit(6));
    until_limit(&client, 6);
    ads.end_streams(None);
    let second = loop {
        let seen = ads.next_request();
        if seen.stream > 0 {
            break seen.certificate.expect("a certificate");
        }
    };
    assert_ne!(first, second);
    // The certificates of the tests expire in the year 4096.
    let ends = weir.metric("weir_xds_tls_certificate_expiry_timestamp_seconds", &[]);
    assert!(ends > 60_000_000_000, "{ends}");
    weir.process().wait_for("the new files", |line| {
        line.contains("certificates for xDS reloaded").then_some(())
    });
    assert_eq!(weir.metric("weir_xds_stream_ends_total", &[r#"reason="closed""#]), 1);
}

#[test]
fn a_new_authority_is_trusted() {
    let mut certificates = Certificates::new();
    let ads = Ads::with_tls(&certificates);
    ads.set("1", one_limit(5));
    let weir = secured(&ads, &certificates).start();
    let client = weir.client();
    until_limit(&client, 5);
    let address = ads.address;
    drop(ads);
    certificates.renew();
    let ads = Ads::again_with_tls(address, &certificates);
    ads.set("1", one_limit(6));
    until_limit(&client, 6);
}

/// Certificates of Envoy Gateway have no addresses.
#[test]
fn a_server_at_an_address_needs_its_name() {
    let certificates = Certificates::new();
    let (cert, key) = certificates.issue(&["envoy-gateway"]);
    write(&certificates.path("server.crt"), &cert);
    write(&certificates.path("server.key"), &key);
    let ads = Ads::with_tls(&certificates);
    ads.set("1", one_limit(5));
    let weir = secured(&ads, &certificates).start();
    until("the server is refused", || {
        weir.metric("weir_xds_stream_ends_total", &[r#"reason="unreachable""#]) > 1
    });
    let name = "WEIR__RULES__XDS__TLS_SERVER_NAME";
    let weir = secured(&ads, &certificates).env(name, "envoy-gateway").start();
    until_limit(&weir.client(), 5);
}

/// The certificate of the test server has the names `localhost` and 127.0.0.1.
#[test]
fn the_name_of_the_server_is_verified() {
    let certificates = Certificates::new();
    let ads = Ads::with_tls(&certificates);
    ads.set("1", one_limit(5));
    let name = "WEIR__RULES__XDS__TLS_SERVER_NAME";
    let weir = secured(&ads, &certificates).env(name, "localhost").start();
    until_limit(&weir.client(), 5);
    let unverified = |setup: Setup| {
        let weir: Weir = setup.start();
        until("the server is refused", || {
            weir.metric("weir_xds_stream_ends_total", &[r#"reason="unreachable""#]) > 1
        });
        assert_eq!(weir.metric("weir_xds_updates_total", &[]), 0);
    };
    unverified(secured(&ads, &certificates).env(name, "other"));
    // Another authority.
    let other = Certificates::new();
    let ca = other.path("ca.crt").display().to_string();
    unverified(secured(&ads, &certificates).env("WEIR__RULES__XDS__TLS_CA", &ca));
}

#[test]
fn a_client_without_a_certificate_gets_nothing() {
    let certificates = Certificates::new();
    let ads = Ads::with_tls(&certificates);
    ads.set("1", one_limit(5));
    let ca = certificates.path("ca.crt").display().to_string();
    let weir =
        of(&ads).env("WEIR__RULES__XDS__TLS", "true").env("WEIR__RULES__XDS__TLS_CA", &ca).start();
    until("the stream is refused", || weir.metric("weir_xds_stream_ends_total", &[]) > 1);
    assert_eq!(weir.metric("weir_xds_updates_total", &[]), 0);
}

/// The handshake of a client with a valid certificate and only this version of TLS.
fn handshake(
    ads: &Ads,
    certificates: &Certificates,
    version: &'static SupportedProtocolVersion,
) -> io::Result<()> {
    let certificate = |name: &str| {
        CertificateDer::from_pem_file(certificates.path(name)).expect("a file with a certificate")
    };
    let key = PrivateKeyDer::from_pem_file(certificates.path("client.key")).expect("a key");
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.crt")).expect("an authority");
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(ring)
        .with_protocol_versions(&[version])
        .expect("a version of TLS")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate("client.crt")], key)
        .expect("a pair");
    let name = "localhost".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = TcpStream::connect(ads.address)?;
    while client.is_handshaking() {
        client.complete_io(&mut stream)?;
    }
    Ok(())
}

/// As Envoy Gateway, which requires a certificate too.
#[test]
fn a_server_may_accept_tls_1_3_only() {
    let certificates = Certificates::new();
    let ads = Ads::with_tls(&certificates);
    handshake(&ads, &certificates, &TLS13).expect("TLS 1.3 is accepted");
    handshake(&ads, &certificates, &TLS12).expect_err("TLS 1.2 is refused");
    ads.set("1", one_limit(5));
    let weir = secured(&ads, &certificates).start();
    until_limit(&weir.client(), 5);
    let sent = ads.next_request().certificate.expect("a certificate");
    let own = CertificateDer::from_pem_file(certificates.path("client.crt")).expect("a file");
    assert_eq!(sent, own.to_vec());
}
