//! A harness for fuzzing: performs the server's side of TLS handshakes without a socket.
//!
//! Its users are the fuzz target `tls_hello` and `tests/random_inputs`, both by `fuzz/src/tls.rs`. They
//! are other crates, so this module is public, with the feature `fuzz` alone.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use super::TlsAcceptor;
use crate::server::single_threaded_runtime;

/// A gRPC port with TLS and without a socket.
pub struct TlsPort {
    acceptor: TlsAcceptor,
    permits: Arc<Semaphore>,
    runtime: Runtime,
}

/// The result of a handshake.
#[derive(Debug)]
pub struct Handshake {
    /// Bytes that the server sent.
    pub sent: usize,
    /// The error of the handshake; `None` if it was completed.
    pub error: Option<io::Error>,
}

/// A client whose bytes are known before it connects.
struct Client<'a> {
    /// The bytes that the server has not read.
    unread: &'a [u8],
    /// The most bytes of one read.
    read_max: usize,
    /// Bytes that the server sent.
    received: usize,
}

impl TlsPort {
    /// A port with the certificates of `acceptor`.
    ///
    /// # Errors
    ///
    /// The runtime cannot be started.
    pub fn new(acceptor: TlsAcceptor) -> io::Result<TlsPort> {
        let permits = Arc::new(Semaphore::new(1));
        Ok(TlsPort { acceptor, permits, runtime: single_threaded_runtime()? })
    }

    /// Accepts a client that sends `bytes` and then no more. The server reads at most `read_max` of
    /// them at once, at least one.
    pub fn accept(&self, bytes: &[u8], read_max: usize) -> Handshake {
        let mut client = Client { unread: bytes, read_max: read_max.max(1), received: 0 };
        let accepted = self.runtime.block_on(self.acceptor.accept(&mut client, &self.permits));
        let error = accepted.err();
        Handshake { sent: client.received, error }
    }
}

impl AsyncRead for Client<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let unread = self.unread;
        let (read, rest) = unread.split_at(unread.len().min(self.read_max).min(buffer.remaining()));
        buffer.put_slice(read);
        self.unread = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Client<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.received += bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
