//! The socket of a gRPC connection with its limits: time to open, time to write, and bytes per poll.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::read_throttle::ReadThrottle;
use crate::server::metrics::ServerMetrics;

/// Bytes of the preface that opens an HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// The time by which a connection accepted now must be open: TLS finished and the preface received.
pub(super) fn open_by(timeout: Duration) -> Instant {
    Instant::now() + timeout
}

/// A socket that fails when its client is too slow to send the preface, or to read what was written. It
/// reads no more per poll than its [`ReadThrottle`] allows.
#[derive(Debug)]
pub(super) struct GuardedIo<S> {
    stream: S,
    preface_left: usize,
    open_by: Pin<Box<Sleep>>,
    /// The timer of the write timeout; present only while a write is pending.
    stalled: Option<Pin<Box<Sleep>>>,
    write_timeout: Duration,
    throttle: ReadThrottle,
    metrics: Arc<ServerMetrics>,
}

impl<S> GuardedIo<S> {
    /// A socket whose client must send the preface before `open_by`.
    pub(super) fn new(
        stream: S,
        open_by: Instant,
        write_timeout: Duration,
        throttle: ReadThrottle,
        metrics: Arc<ServerMetrics>,
    ) -> GuardedIo<S> {
        GuardedIo {
            stream,
            preface_left: PREFACE_BYTES,
            open_by: Box::pin(sleep_until(open_by)),
            stalled: None,
            write_timeout,
            throttle,
            metrics,
        }
    }

    /// The result of a read without data: pending, or an error after the preface's deadline.
    fn check_preface_deadline(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.preface_left > 0 && self.open_by.as_mut().poll(context).is_ready() {
            self.metrics.handshake_timeout.add();
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }

    /// Charges the bytes of one read to the budget.
    fn record_read(&mut self, bytes: usize) {
        self.preface_left = self.preface_left.saturating_sub(bytes);
        self.throttle.spend(bytes);
    }

    /// The result of a write, or an error once it has been pending for the write timeout.
    fn check_write<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.stalled.take().is_some() {
                self.throttle.set_write_stalled(false);
            }
            return written;
        }
        self.throttle.set_write_stalled(true);
        let timeout = self.write_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        if stalled.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.metrics.write_timeout.add();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.throttle.is_spent() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Pending => this.check_preface_deadline(context),
            Poll::Ready(Ok(())) => {
                this.record_read(buffer.filled().len() - before);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GuardedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_write(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.check_write(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.check_write(context, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check_write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::poll_fn;

    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    fn guarded(stream: DuplexStream, throttle: &ReadThrottle) -> GuardedIo<DuplexStream> {
        let (open_by, hour) = (open_by(Duration::from_secs(60)), Duration::from_secs(3600));
        GuardedIo::new(stream, open_by, hour, throttle.clone(), Arc::default())
    }

    #[tokio::test]
    async fn a_write_that_waits_is_reported() {
        let (mut client, server) = duplex(64);
        let throttle = ReadThrottle::default();
        let mut socket = guarded(server, &throttle);
        assert!(socket.write_all(&[0; 100]).now_or_never().is_none(), "64 bytes fit");
        assert!(throttle.is_write_stalled());
        client.read_exact(&mut [0; 64]).await.unwrap();
        assert!(throttle.is_write_stalled(), "the write has not continued");
        poll_fn(|context| Pin::new(&mut socket).poll_write(context, &[0; 10])).await.unwrap();
        assert!(!throttle.is_write_stalled());
    }

    #[tokio::test]
    async fn a_poll_reads_a_bounded_number_of_bytes() {
        let (mut client, server) = duplex(1 << 20);
        let throttle = ReadThrottle::default();
        let mut socket = guarded(server, &throttle);
        client.write_all(&[7; 100_000]).await.unwrap();
        for _ in 0..3 {
            let reads = throttle.poll_with_budget(async {
                socket
                    .read_exact(&mut [0; 16 * 1024])
                    .now_or_never()
                    .expect("it is there")
                    .unwrap();
                assert!(socket.read_u8().now_or_never().is_none(), "the next poll reads the rest");
            });
            reads.await;
        }
    }
}
