//! The socket of an HTTP/1 connection with its limits: bytes per read, and the progress of a
//! response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};
use tokio::time::{Sleep, sleep};

use crate::server::metrics::ServerMetrics;

/// Most bytes of one read. hyper's read buffer has 8 KiB, and grows after a read of as many bytes.
const READ_MAX: u64 = (8 << 10) - 1;

/// Bytes of a response that the client must accept within the timeout, unless fewer are left.
pub(super) const PROGRESS_MIN: usize = 16 << 10;

/// Time in which the client of a [`LongResponse`] must accept bytes that wait.
const LONG_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a connection has a response that goes on until its client or the server ends it. The maximum age
/// of connections does not apply to it, and it must progress by a byte in each [`LONG_TIMEOUT`].
#[derive(Clone, Debug, Default)]
pub(super) struct LongResponse(Arc<AtomicBool>);

impl LongResponse {
    /// Records that the response is a long one. It must be the last one of its connection.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the connection has such a response.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A socket that fails when its client accepts less than [`PROGRESS_MIN`] bytes of a response within
/// the timeout.
#[derive(Debug)]
pub(super) struct ProgressIo<S> {
    stream: Take<S>,
    timeout: Duration,
    long: LongResponse,
    /// The timer of the timeout. It starts when a write has to wait.
    timer: Option<Pin<Box<Sleep>>>,
    /// Bytes that the client has accepted since the timer was removed last.
    accepted: usize,
    metrics: Arc<ServerMetrics>,
}

impl<S: AsyncRead> ProgressIo<S> {
    /// The socket `stream`.
    pub(super) fn new(stream: S, timeout: Duration, metrics: Arc<ServerMetrics>) -> ProgressIo<S> {
        let stream = stream.take(READ_MAX);
        let long = LongResponse::default();
        ProgressIo { stream, timeout, long, timer: None, accepted: 0, metrics }
    }

    /// The socket of a connection whose response may be a long one.
    pub(super) fn with_long(self, long: LongResponse) -> ProgressIo<S> {
        ProgressIo { long, ..self }
    }

    /// Removes the timer: the client has made progress, or nothing is left to write.
    fn restart(&mut self) {
        self.timer = None;
        self.accepted = 0;
    }

    /// The result of a write, or an error at the timeout.
    fn check_write(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.accepted += bytes;
            let least = if self.long.is_set() { 1 } else { PROGRESS_MIN };
            if self.accepted >= least {
                self.restart();
            }
        }
        if written.is_ready() {
            return written;
        }
        let timeout = if self.long.is_set() { LONG_TIMEOUT } else { self.timeout };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(timer.as_mut().poll(context));
        self.metrics.http_timeout.add();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ProgressIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.set_limit(READ_MAX);
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ProgressIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.stream.get_mut()).poll_write(context, bytes);
        self.check_write(context, written)
    }

    /// hyper flushes when it has written everything.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.restart();
        Pin::new(self.stream.get_mut()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.stream.get_mut()).poll_write_vectored(context, slices);
        self.check_write(context, written)
    }

    /// Without it, hyper would copy each response into a buffer.
    fn is_write_vectored(&self) -> bool {
        self.stream.get_ref().is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::time::Instant;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Writes a response of `size` bytes to a client that reads `step` bytes every nine seconds.
    /// Returns the result of the write, its duration, and the number of timeouts.
    async fn write_to(step: usize, size: usize) -> (bool, Duration, u64) {
        let (mut client, server) = duplex(PROGRESS_MIN);
        let metrics = Arc::<ServerMetrics>::default();
        let mut io = ProgressIo::new(server, TIMEOUT, Arc::clone(&metrics));
        let reads = async {
            let (mut part, pause) = (vec![0; step], TIMEOUT - Duration::from_secs(1));
            sleep(pause).await;
            while client.read_exact(&mut part).await.is_ok() {
                sleep(pause).await;
            }
        };
        let began = Instant::now();
        let response = vec![0; size];
        let is_written = tokio::select! {
            written = io.write_all(&response) => written.is_ok(),
            () = reads => unreachable!("it reads to the end of the test"),
        };
        (is_written, began.elapsed(), metrics.http_timeout.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_makes_progress_is_not_cut() {
        let nine = |times: u64| Duration::from_secs(9 * times);
        let sizes = [1, PROGRESS_MIN, 4 * PROGRESS_MIN, 5 * PROGRESS_MIN - 1];
        for (size, times) in sizes.into_iter().zip([0, 0, 3, 4]) {
            assert_eq!(write_to(PROGRESS_MIN, size).await, (true, nine(times), 0), "{size}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_without_progress_is_cut() {
        assert_eq!(write_to(1, 4 * PROGRESS_MIN).await, (false, TIMEOUT, 1));
        assert_eq!(write_to(PROGRESS_MIN - 1, 4 * PROGRESS_MIN).await, (false, TIMEOUT, 1));
    }

    /// Writes a long response to a client that reads one byte, and then nothing.
    #[tokio::test(start_paused = true)]
    async fn a_long_response_must_progress_by_a_byte() {
        let (mut client, server) = duplex(1);
        let long = LongResponse::default();
        long.set();
        let io = ProgressIo::new(server, TIMEOUT, Arc::default());
        let mut io = io.with_long(long);
        let began = Instant::now();
        let reads = async {
            sleep(LONG_TIMEOUT - Duration::from_secs(1)).await;
            client.read_exact(&mut [0; 1]).await.unwrap();
            std::future::pending::<()>().await;
        };
        let is_written = tokio::select! {
            written = io.write_all(b"123") => written.is_ok(),
            () = reads => unreachable!("it waits to the end of the test"),
        };
        let expected = LONG_TIMEOUT + LONG_TIMEOUT - Duration::from_secs(1);
        assert_eq!((is_written, began.elapsed()), (false, expected));
    }

    #[tokio::test]
    async fn a_read_does_not_make_the_buffer_grow() {
        let (mut client, server) = duplex(1 << 16);
        client.write_all(&[0; 1 << 15]).await.unwrap();
        let mut io = ProgressIo::new(server, TIMEOUT, Arc::default());
        for _ in 0..4 {
            assert_eq!(io.read(&mut [0; 1 << 15]).await.unwrap(), 8191);
        }
    }
}
