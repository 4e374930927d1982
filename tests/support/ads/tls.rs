//! TLS as Envoy Gateway's server of rules has it: TLS 1.3 only, with certificates of clients.

use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::support::certificates::Certificates;

/// The server's side of handshakes, with the files `server.crt`, `server.key` and `ca.crt`.
pub(super) fn acceptor(certificates: &Certificates) -> TlsAcceptor {
    let certificate = |name: &str| {
        CertificateDer::from_pem_file(certificates.path(name)).expect("a file with a certificate")
    };
    let key = PrivateKeyDer::from_pem_file(certificates.path("server.key")).expect("a key");
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.crt")).expect("an authority");
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), ring.clone());
    // tonic's own configuration accepts TLS 1.2 too.
    let mut config = ServerConfig::builder_with_provider(ring)
        .with_protocol_versions(&[&TLS13])
        .expect("a version of TLS")
        .with_client_cert_verifier(verifier.build().expect("an authority"))
        .with_single_cert(vec![certificate("server.crt")], key)
        .expect("a pair");
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Sends each connection to `connections` after its handshake.
pub(super) async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    connections: mpsc::Sender<io::Result<TlsStream<TcpStream>>>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, connections) = (acceptor.clone(), connections.clone());
        tokio::spawn(async move {
            // A failed handshake is the client's to report.
            if let Ok(stream) = acceptor.accept(stream).await {
                let _ = connections.send(Ok(stream)).await;
            }
        });
    }
}
