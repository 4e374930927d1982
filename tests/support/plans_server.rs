//! An HTTP server with plans, which a test makes slow, wrong or absent.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::certificates::Certificates;

/// What the server does with each request.
#[derive(Clone, Debug)]
pub(crate) enum PlansAnswer {
    /// Sends a body of this type. With an ETag, a request that has it gets 304.
    Body { kind: &'static str, body: String, etag: Option<&'static str> },
    /// Sends these bytes, and keeps the connection open.
    Bytes(Vec<u8>),
    /// Closes the connection.
    Close,
}

impl PlansAnswer {
    /// Sends JSON without an ETag.
    pub(crate) fn json(body: &str) -> PlansAnswer {
        PlansAnswer::Body { kind: "application/json", body: body.to_owned(), etag: None }
    }

    /// Sends a response without a body.
    pub(crate) fn status(line: &str) -> PlansAnswer {
        PlansAnswer::Bytes(format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\n\r\n").into_bytes())
    }
}

/// A running server. On drop it closes its connections and its port.
pub(crate) struct PlansServer {
    address: SocketAddr,
    inner: Arc<Inner>,
    accepting: Option<JoinHandle<()>>,
}

struct Inner {
    answer: Mutex<PlansAnswer>,
    /// The heads of all requests.
    requests: Mutex<Vec<String>>,
    streams: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
    tls: Option<Arc<ServerConfig>>,
}

impl PlansServer {
    /// Listens on a free port of loopback.
    pub(crate) fn start(answer: PlansAnswer) -> PlansServer {
        PlansServer::listen((Ipv4Addr::LOCALHOST, 0).into(), answer, None)
    }

    /// Listens at the address of a server that was dropped.
    pub(crate) fn start_at(address: SocketAddr, answer: PlansAnswer) -> PlansServer {
        PlansServer::listen(address, answer, None)
    }

    /// Listens with TLS, with the files `server.crt` and `server.key`.
    pub(crate) fn start_tls(certificates: &Certificates, answer: PlansAnswer) -> PlansServer {
        let cert = CertificateDer::from_pem_file(certificates.path("server.crt"));
        let key = PrivateKeyDer::from_pem_file(certificates.path("server.key"));
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![cert.expect("a certificate")], key.expect("a key"))
            .expect("a pair");
        PlansServer::listen((Ipv4Addr::LOCALHOST, 0).into(), answer, Some(Arc::new(config)))
    }

    fn listen(
        address: SocketAddr,
        answer: PlansAnswer,
        tls: Option<Arc<ServerConfig>>,
    ) -> PlansServer {
        let listener = TcpListener::bind(address).expect("the port is free");
        let address = listener.local_addr().expect("bound");
        let inner = Arc::new(Inner {
            answer: Mutex::new(answer),
            requests: Mutex::default(),
            streams: Mutex::default(),
            is_over: AtomicBool::new(false),
            tls,
        });
        let shared = Arc::clone(&inner);
        let accepting = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let serving = Arc::clone(&shared);
                thread::spawn(move || serving.serve(stream));
            }
        });
        PlansServer { address, inner, accepting: Some(accepting) }
    }

    /// The address of the server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers like this from now on.
    pub(crate) fn answer(&self, answer: PlansAnswer) {
        *self.inner.answer.lock().expect("no thread panicked") = answer;
    }

    /// The heads of all requests so far, in lower case.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.inner.requests.lock().expect("no thread panicked").clone()
    }
}

impl Drop for PlansServer {
    fn drop(&mut self) {
        self.inner.is_over.store(true, Ordering::Relaxed);
        for stream in self.inner.streams.lock().expect("no thread panicked").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // A connection wakes the accepting thread, which closes the port.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl Inner {
    /// Serves one connection until it ends.
    fn serve(&self, stream: TcpStream) {
        let (Ok(kept), Ok(ended)) = (stream.try_clone(), stream.try_clone()) else { return };
        self.streams.lock().expect("no thread panicked").push(kept);
        match &self.tls {
            None => self.exchange(stream),
            Some(config) => {
                let connection = ServerConnection::new(Arc::clone(config)).expect("a connection");
                self.exchange(StreamOwned::new(connection, stream));
            }
        }
        // Dropping it does not suffice, because `streams` has another handle.
        let _ = ended.shutdown(Shutdown::Both);
    }

    fn exchange(&self, mut stream: impl Read + Write) {
        while let Some(head) = read_head(&mut stream) {
            self.requests.lock().expect("no thread panicked").push(head.clone());
            let answer = self.answer.lock().expect("no thread panicked").clone();
            let bytes = match answer {
                PlansAnswer::Bytes(bytes) => bytes,
                PlansAnswer::Close => return,
                PlansAnswer::Body { kind, body, etag } => {
                    let is_known = etag.is_some_and(|etag| {
                        head.lines().any(|line| line == format!("if-none-match: {etag}"))
                    });
                    let etag = etag.map(|etag| format!("etag: {etag}\r\n")).unwrap_or_default();
                    if is_known {
                        format!("HTTP/1.1 304 Not Modified\r\n{etag}\r\n").into_bytes()
                    } else {
                        let length = body.len();
                        let head = format!(
                            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{etag}content-length: \
                             {length}\r\n\r\n"
                        );
                        (head + &body).into_bytes()
                    }
                }
            };
            // An error is the end of the connection.
            if stream.write_all(&bytes).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    }
}

/// The head of the next request, in lower case; `None` at the end of the connection.
fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.extend(byte);
    }
    Some(String::from_utf8_lossy(&head).to_lowercase())
}
