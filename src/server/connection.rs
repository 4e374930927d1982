//! One gRPC connection on its core: the socket, its place in the count, and its deadline.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tonic::transport::server::Connected;

use super::deal::{Dealt, Seat};

/// Every HTTP/2 connection opens with as many bytes (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// A socket that fails once its time is over, whatever the client does: first the time to say the
/// opening bytes, then, if there is one, the longest life of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    preface_left: usize,
    deadline: Pin<Box<Sleep>>,
    end: Option<Instant>,
    _seat: Seat,
}

/// How long a connection may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// For the opening bytes.
    pub(super) handshake: Duration,
    /// Altogether.
    pub(super) life: Option<Duration>,
}

impl Connection {
    /// Registers `dealt` with the runtime of the core that calls.
    pub(super) fn open(dealt: Dealt, times: Times) -> io::Result<Connection> {
        let now = Instant::now();
        Ok(Connection {
            stream: TcpStream::from_std(dealt.stream)?,
            preface_left: PREFACE_BYTES,
            deadline: Box::pin(tokio::time::sleep_until(now + times.handshake)),
            end: times.life.and_then(|life| now.checked_add(life)),
            _seat: dealt.seat,
        })
    }

    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let timed = self.preface_left > 0 || self.end.is_some();
        timed && self.deadline.as_mut().poll(context).is_ready()
    }

    fn heard(&mut self, bytes: usize) {
        if self.preface_left == 0 {
            return;
        }
        self.preface_left = self.preface_left.saturating_sub(bytes);
        if let (0, Some(end)) = (self.preface_left, self.end) {
            self.deadline.as_mut().reset(end);
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            // Only a connection with nothing to read needs the timer; a busy one gets here soon.
            Poll::Pending if self.is_over(context) => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
            Poll::Ready(result) => {
                self.heard(buffer.filled().len() - before);
                Poll::Ready(result)
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Connected for Connection {
    type ConnectInfo = <TcpStream as Connected>::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}
