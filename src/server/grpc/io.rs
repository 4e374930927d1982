//! One gRPC connection's bytes: bounded in the time to open, in the time to write, and in how much
//! of its core they take in one go.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::control_frames::ControlFrameLimiter;
use super::read_budget::ReadBudget;
use crate::server::metrics::ServerMetrics;

/// Every HTTP/2 connection opens with as many bytes (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// When a connection that comes now must have opened.
pub(super) fn open_by(timeout: Duration) -> Instant {
    Instant::now() + timeout
}

/// A stream that fails once its client is too slow, whatever that does: first to say the opening
/// bytes, then to read what it is sent. It hands out what its [`ReadBudget`] has.
#[derive(Debug)]
pub(super) struct GuardedIo<S> {
    stream: S,
    preface_left: usize,
    open_by: Pin<Box<Sleep>>,
    /// When the client has read too little for too long; there while it does not read at all.
    stalled: Option<Pin<Box<Sleep>>>,
    write_timeout: Duration,
    budget: ReadBudget,
    control_frames: ControlFrameLimiter,
    metrics: Arc<ServerMetrics>,
}

impl<S> GuardedIo<S> {
    /// A stream that must say its opening bytes before `open_by`.
    pub(super) fn new(
        stream: S,
        open_by: Instant,
        write_timeout: Duration,
        control_frames: ControlFrameLimiter,
        budget: ReadBudget,
        metrics: Arc<ServerMetrics>,
    ) -> GuardedIo<S> {
        GuardedIo {
            stream,
            preface_left: PREFACE_BYTES,
            open_by: Box::pin(sleep_until(open_by)),
            stalled: None,
            write_timeout,
            budget,
            control_frames,
            metrics,
        }
    }

    /// What a read that finds nothing means: wait, or give up a client that does not open.
    fn check_preface_deadline(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.preface_left > 0 && self.open_by.as_mut().poll(context).is_ready() {
            self.metrics.hello_timeout.add();
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }

    /// Takes note of what was read.
    fn record_read(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (preface, control_frames) = bytes.split_at(self.preface_left.min(bytes.len()));
        self.preface_left -= preface.len();
        self.budget.spend(bytes.len());
        if self.control_frames.read(control_frames, Instant::now) {
            return Ok(());
        }
        self.metrics.flood.add();
        Err(io::Error::other("more control control_frames than any client needs"))
    }

    /// What became of a write, with an end to writes that cannot go on.
    fn check_write<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
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
        if this.budget.is_spent() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Pending => this.check_preface_deadline(context),
            Poll::Ready(Ok(())) => Poll::Ready(this.record_read(&buffer.filled()[before..])),
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
