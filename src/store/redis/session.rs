//! A session: one open connection to a server, with one command at a time. Connections begin as
//! sessions, which log in and find out what they reach.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::command::encode;
use super::config::{HostPort, RedisAccess, RedisCredentials};
use super::error::{ConnectionError, result};
use super::reply::{Reply, ReplyBound, ReplyReader};

/// Timeout for connecting, with the TLS handshake, and for each command of a session. A live server
/// needs far less; operators wait longer after a failover.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The stream of a connection: TCP, TLS or a Unix socket.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An open connection, before its commands are pipelined.
pub(super) struct RedisSession {
    stream: Box<dyn Stream>,
    replies: ReplyReader,
}

impl RedisSession {
    /// A session over an open stream.
    pub(super) fn over(stream: impl Stream + 'static) -> RedisSession {
        RedisSession { stream: Box::new(stream), replies: ReplyReader::default() }
    }

    /// Connects to `address`, without logging in.
    pub(super) async fn connect(
        address: &HostPort,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<RedisSession, ConnectionError> {
        within(async { Ok(connect(address, tls).await?) }).await
    }

    /// Connects to the Unix socket at `path`, without logging in.
    pub(super) async fn connect_unix(path: &Path) -> Result<RedisSession, ConnectionError> {
        let stream = within(async { Ok(UnixStream::connect(path).await?) }).await?;
        Ok(RedisSession::over(stream))
    }

    /// Connects to a node, and logs in.
    pub(super) async fn open(
        address: &HostPort,
        access: &RedisAccess,
    ) -> Result<RedisSession, ConnectionError> {
        let mut session = RedisSession::connect(address, access.tls.as_ref()).await?;
        session.log_in(access).await?;
        Ok(session)
    }

    /// Logs in to a node, selects the database, and checks that the node replies.
    pub(super) async fn log_in(&mut self, access: &RedisAccess) -> Result<(), ConnectionError> {
        self.authenticate(&access.credentials).await?;
        if let Some(database) = access.database {
            self.request(&[b"SELECT", database.to_string().as_bytes()]).await?;
        }
        // Fails without a needed password, and while the node loads its data.
        self.request(&[b"PING"]).await?;
        Ok(())
    }

    /// Sends the credentials, if there are any.
    pub(super) async fn authenticate(
        &mut self,
        credentials: &RedisCredentials,
    ) -> Result<(), ConnectionError> {
        let auth = credentials.auth().map_err(|error| ConnectionError::new(error.to_string()))?;
        if let Some(arguments) = auth {
            let arguments = arguments.iter().map(String::as_bytes);
            let words: Vec<&[u8]> = [&b"AUTH"[..]].into_iter().chain(arguments).collect();
            self.request(&words).await?;
        }
        Ok(())
    }

    /// Sends a command, and returns its reply.
    ///
    /// # Errors
    /// An error reply, a reply over [`ReplyBound::USUAL`], or a connection that fails.
    pub(super) async fn request(&mut self, words: &[&[u8]]) -> Result<Reply, ConnectionError> {
        self.request_within(words, ReplyBound::USUAL).await
    }

    /// Sends a command whose reply is within `bound`, and returns the reply.
    pub(super) async fn request_within(
        &mut self,
        words: &[&[u8]],
        bound: ReplyBound,
    ) -> Result<Reply, ConnectionError> {
        Ok(result(self.exchange(words, bound).await?)?)
    }

    /// Sends a command, and returns its reply, which may be an error reply.
    ///
    /// # Errors
    /// The connection failed. Drop the session: a late reply would answer the next command.
    pub(super) async fn exchange(
        &mut self,
        words: &[&[u8]],
        bound: ReplyBound,
    ) -> Result<Reply, ConnectionError> {
        let command = encode(words);
        within(async {
            self.stream.write_all(&command).await?;
            self.stream.flush().await?;
            loop {
                if let Some(reply) = self.replies.next(bound)? {
                    return Ok(reply);
                }
                if self.stream.read_buf(self.replies.room()).await? == 0 {
                    return Err(ConnectionError::new("the server closed the connection"));
                }
            }
        })
        .await
    }

    /// The stream, and the reader of its replies.
    pub(super) fn into_parts(self) -> (Box<dyn Stream>, ReplyReader) {
        (self.stream, self.replies)
    }
}

async fn connect(
    (host, port): &HostPort,
    tls: Option<&Arc<ClientConfig>>,
) -> io::Result<RedisSession> {
    let stream = TcpStream::connect((host.as_str(), *port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(RedisSession::over(stream)) };
    let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(tls.clone()).connect(name, stream).await?;
    Ok(RedisSession::over(stream))
}

/// Waits for `step` for at most [`TIMEOUT`].
async fn within<T>(
    step: impl Future<Output = Result<T, ConnectionError>>,
) -> Result<T, ConnectionError> {
    let late = || ConnectionError::new(format!("no answer within {} s", TIMEOUT.as_secs()));
    timeout(TIMEOUT, step).await.unwrap_or_else(|_| Err(late()))
}
