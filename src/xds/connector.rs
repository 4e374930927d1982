//! Opens connections to the server: name resolution, TCP and TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

/// Silence on a connection after which the operating system probes the other end. Unlike pings of
/// HTTP/2, the probes do not reach the server's program.
const PROBE_AFTER: Duration = Duration::from_secs(30);

/// Time between two probes. Linux gives up after nine.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// A connection, with or without TLS.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Opens connections to one server. It ignores the address that tonic passes to it.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) host: String,
    pub(super) port: u16,
    /// TLS, and the name that the server's certificate must have.
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Connector {
    async fn connect(self) -> io::Result<TokioIo<Box<dyn Connection>>> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
        tcp.set_nodelay(true)?;
        let probes = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_INTERVAL);
        SockRef::from(&tcp).set_tcp_keepalive(&probes)?;
        let connection: Box<dyn Connection> = match self.tls {
            None => Box::new(tcp),
            Some((tls, name)) => Box::new(tls.connect(name, tcp).await?),
        };
        Ok(TokioIo::new(connection))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Connection>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}
