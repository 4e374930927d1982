//! Opens connections to the server: name resolution, TCP and TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use self::first_bytes::FirstBytes;
use crate::connect::first_of;

mod first_bytes;

/// Silence on a connection after which the operating system probes the other end. Unlike pings of
/// HTTP/2, the probes do not reach the server's program.
const PROBE_AFTER: Duration = Duration::from_secs(30);

/// Time between two probes. Linux gives up after nine.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// A connection, with or without TLS.
pub(super) trait XdsConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> XdsConnection for T {}

/// Opens connections to one server. It ignores the address that tonic passes to it.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) host: String,
    pub(super) port: u16,
    /// TLS, and the name that the server's certificate must have.
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
    /// The address of the name that is tried first. It wraps around.
    pub(super) first_address: usize,
    /// Timeout of all addresses.
    pub(super) timeout: Duration,
    /// Notified once the server has sent something, apart from the handshake of TLS.
    pub(super) responded: Arc<Notify>,
}

impl Connector {
    async fn connect(self) -> io::Result<TokioIo<Box<dyn XdsConnection>>> {
        let mut addresses: Vec<SocketAddr> =
            lookup_host((self.host.as_str(), self.port)).await?.collect();
        let first = self.first_address.checked_rem(addresses.len()).unwrap_or(0);
        addresses.rotate_left(first);
        let open = |address| self.connect_to(address);
        let connection = first_of(&addresses, self.timeout, open).await?;
        let connection: Box<dyn XdsConnection> =
            Box::new(FirstBytes::new(connection, self.responded.clone()));
        Ok(TokioIo::new(connection))
    }

    async fn connect_to(&self, address: SocketAddr) -> io::Result<Box<dyn XdsConnection>> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let probes = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_INTERVAL);
        SockRef::from(&tcp).set_tcp_keepalive(&probes)?;
        let connection: Box<dyn XdsConnection> = match &self.tls {
            None => Box::new(tcp),
            Some((tls, name)) => Box::new(tls.connect(name.clone(), tcp).await?),
        };
        Ok(connection)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn XdsConnection>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::timeout;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn only_received_bytes_count_as_an_answer() {
        let responded = Arc::new(Notify::new());
        let (near, mut far) = duplex(64);
        let mut near = FirstBytes::new(near, responded.clone());
        near.write_all(b"preface").await.unwrap();
        let silent = timeout(SECOND, near.read_u8()).await;
        assert!(silent.is_err());
        assert!(timeout(SECOND, responded.notified()).await.is_err());
        far.write_u8(7).await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), 7);
        assert!(timeout(SECOND, responded.notified()).await.is_ok());
    }
}
