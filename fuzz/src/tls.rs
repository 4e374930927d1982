//! Sends any bytes as the client of a TLS handshake.

use std::io;
use std::path::Path;
use std::sync::Arc;

use weir::server::tls_fuzz_harness::{Handshake, TlsPort};
use weir::server::{ServerMetrics, TlsAcceptor, TlsConfig};
use weir::tls::SanName;

/// More bytes than the server needs for its flight, also after a HelloRetryRequest.
const SENT_MAX: usize = 16 * 1024;

/// Bytes of an alert with its record header, the only reply that is not a handshake message.
const ALERT: usize = 7;

/// Bytes of a short read, fewer than two record headers.
const SHORT: usize = 7;

/// The name that client certificates must have. Seeds have a certificate with it.
const NAME: &str = "spiffe://cluster.local/ns/gw/sa/envoy";

/// A port that requires client certificates.
pub struct Port(TlsPort);

impl Port {
    /// A port with the certificates in `folder`.
    pub fn new(folder: &Path) -> Port {
        let config = TlsConfig {
            cert: folder.join("server.pem"),
            key: folder.join("server.pem"),
            client_ca: Some(folder.join("client_ca.pem")),
            client_optional: false,
            client_san: vec![SanName::Uri(NAME.to_owned())],
        };
        let loaded = TlsAcceptor::load(config, 0, Arc::new(ServerMetrics::default()));
        let (acceptor, _) = loaded.unwrap_or_else(|error| panic!("{error}"));
        Port(TlsPort::new(acceptor).expect("the runtime starts"))
    }

    /// Serves a client that sends `bytes`. The handshake must fail, because the bytes cannot depend on
    /// the random numbers of the server. It must fail in the same way however the bytes are split into
    /// reads. Returns whether the server has answered the client's hello.
    pub fn hello(&self, bytes: &[u8]) -> bool {
        let [whole, short] = [usize::MAX, SHORT].map(|read_max| self.0.accept(bytes, read_max));
        let [first, second] = [&whole, &short].map(reason);
        assert_eq!(first, second, "the size of a read changes the result");
        assert!(whole.sent.max(short.sent) <= SENT_MAX, "{whole:?} {short:?}");
        whole.sent > ALERT
    }
}

/// The kind and the text of the error, without the numbers in it: they may be times.
fn reason(handshake: &Handshake) -> (io::ErrorKind, String) {
    let Some(error) = &handshake.error else { panic!("a handshake without keys was completed") };
    let text: String = error.to_string().chars().filter(|c| !c.is_ascii_digit()).collect();
    assert!(!text.is_empty(), "refused without a reason");
    (error.kind(), text)
}
