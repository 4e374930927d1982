//! Drives a connection: writes its output, reads its input, and hands out its calls.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::shared::SharedEngine;
use super::{PingPong, RequestBody, Responder};
use crate::engine::Engine;
use crate::receiver::Receiver;
use crate::{Error, Limits, Reason, RequestHead};

/// Bytes of one read. The buffer is on the stack, so no connection keeps it.
const READ_BYTES: usize = 16 * 1024;

/// A call that has arrived.
#[derive(Debug)]
pub struct Call<H> {
    /// The fields of the request.
    pub head: H,
    /// The body of the request.
    pub body: RequestBody,
    /// Sends the response.
    pub responder: Responder,
}

/// A connection whose client speaks HTTP/2 over `S`, such as a socket or a TLS session.
///
/// Nothing is read while output waits for the client, and no call begins while the output has
/// [`Limits::output_bytes`]. So the output is bounded by that, one response, and those of the calls that were
/// open when the client stopped reading.
#[derive(Debug)]
pub struct Connection<S, H: RequestHead> {
    socket: S,
    engine: SharedEngine,
    receiver: Receiver<H>,
    /// The socket has output that it was not asked to flush.
    must_flush: bool,
    /// Present when the connection ends once the output is written: why.
    closing: Option<Result<(), Error>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin, H: RequestHead> Connection<S, H> {
    /// The server of a new connection on `socket`. The head of each request begins as a clone of `empty`.
    pub fn new(socket: S, limits: Limits, empty: H) -> Connection<S, H> {
        let engine = SharedEngine::new(Engine::new(limits));
        Connection {
            socket,
            engine,
            receiver: Receiver::new(limits, empty),
            must_flush: false,
            closing: None,
        }
    }

    /// Returns when the client has sent the preface. Fails if it sends anything else, or if the socket
    /// fails.
    pub fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while !self.receiver.is_open() {
            match ready!(self.poll_progress(context)) {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Err(Error::closed())),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Returns true when calls have arrived, and false when the connection has ended in order. Writes
    /// the output first, and reads nothing before all of it is written. An error has ended the
    /// connection.
    pub fn poll_calls(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Error>> {
        loop {
            if self.receiver.has_arrived() && self.closing.is_none() {
                if self.engine.lock().has_output_room() {
                    return Poll::Ready(Ok(true));
                }
                if let Err(error) = ready!(self.poll_write(context)) {
                    return Poll::Ready(Err(error));
                }
                continue;
            }
            match ready!(self.poll_progress(context)) {
                Ok(true) => {}
                end => return Poll::Ready(end),
            }
        }
    }

    /// The number of calls to accept.
    pub fn arrived(&self) -> usize {
        self.receiver.arrived()
    }

    /// The next call that has arrived. `None` also while the output is too large: then
    /// [`poll_calls`](Self::poll_calls) writes it, and returns true again.
    pub fn next_call(&mut self) -> Option<Call<H>> {
        loop {
            let mut engine = self.engine.lock();
            if !engine.has_output_room() {
                return None;
            }
            let (key, head) = self.receiver.next_arrived()?;
            let accepted = engine.accept(key);
            if !self.receiver.record(accepted.is_none()) {
                engine.abort(Reason::ENHANCE_YOUR_CALM);
            }
            let Some((data, is_all)) = accepted else {
                engine.pending_resets = engine.pending_resets.saturating_sub(1);
                continue;
            };
            drop(engine);
            let body = match is_all {
                true => RequestBody::received(data),
                false => RequestBody::arriving(self.engine.clone(), key),
            };
            return Some(Call { head, body, responder: Responder::new(self.engine.clone(), key) });
        }
    }

    /// A handle for keepalive pings.
    pub fn ping_pong(&self) -> PingPong {
        PingPong(self.engine.clone())
    }

    /// Begins a graceful shutdown (RFC 9113, section 6.8). The connection ends with its last call.
    pub fn graceful_shutdown(&mut self) {
        self.engine.lock().begin_shutdown();
    }

    /// Sends GOAWAY with `reason`, and ends all calls.
    pub fn abrupt_shutdown(&mut self, reason: Reason) {
        self.engine.lock().abort(reason);
    }

    /// Writes the output of a connection that was shut down, and closes it.
    pub fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.closing.get_or_insert(Ok(()));
        loop {
            match ready!(self.poll_progress(context)) {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// The socket.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// Bytes that the connection holds in memory, with its streams, their bodies, and the output.
    pub fn memory(&self) -> usize {
        size_of::<S>() + self.receiver.memory() + self.engine.lock().memory()
    }

    /// The stream whose header block is incomplete, if that has more than one frame.
    pub fn incomplete_headers(&self) -> Option<u32> {
        self.receiver.incomplete_block()
    }

    /// Writes all output.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut engine = self.engine.lock();
        engine.stop_waking();
        let written = write_output(&mut self.socket, &mut engine, &mut self.must_flush, context);
        match &written {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => engine.end(error.clone()),
            Poll::Pending => engine.wake_on_output(context),
        }
        written
    }

    /// Writes all output, and then reads once. Returns false when the connection has ended in order.
    fn poll_progress(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Error>> {
        let progress = self.poll_write_and_read(context);
        if progress.is_pending() {
            self.engine.lock().wake_on_output(context);
        }
        progress
    }

    fn poll_write_and_read(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Error>> {
        let mut engine = self.engine.lock();
        engine.stop_waking();
        let flushed = write_output(&mut self.socket, &mut engine, &mut self.must_flush, context);
        if let Err(error) = ready!(flushed) {
            engine.end(error.clone());
            return Poll::Ready(Err(error));
        }
        if self.closing.is_none() {
            if let Some(error) = engine.ended() {
                self.closing = Some(Err(error.clone()));
            } else if engine.is_final() && engine.is_idle() {
                self.closing = Some(Ok(()));
            }
        }
        if let Some(end) = &self.closing {
            // The client gets all of the output whether or not the shutdown succeeds.
            let _ = ready!(Pin::new(&mut self.socket).poll_shutdown(context));
            let end = end.clone();
            engine.end(Error::closed());
            return Poll::Ready(end.map(|()| false));
        }
        let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut space);
        if let Err(error) = ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer)) {
            engine.end(error.into());
            return Poll::Ready(engine.ended().map_or(Ok(false), |error| Err(error.clone())));
        }
        if buffer.filled().is_empty() {
            engine.end(Error::closed());
            return Poll::Ready(Ok(false));
        }
        if let Err(error) = self.receiver.receive(buffer.filled(), &mut engine, Instant::now) {
            match error.reason() {
                Some(reason) if !error.is_remote() => engine.abort(reason),
                _ => engine.end(error.clone()),
            }
            self.closing = Some(Err(error));
        }
        Poll::Ready(Ok(true))
    }
}

/// Writes all output to `socket`.
fn write_output<S: AsyncWrite + Unpin>(
    socket: &mut S,
    engine: &mut Engine,
    must_flush: &mut bool,
    context: &mut Context<'_>,
) -> Poll<Result<(), Error>> {
    while !engine.output().is_empty() {
        let written = ready!(Pin::new(&mut *socket).poll_write(context, engine.output()))?;
        if written == 0 {
            return Poll::Ready(Err(std::io::Error::from(std::io::ErrorKind::WriteZero).into()));
        }
        engine.advance_output(written);
        *must_flush = true;
    }
    if *must_flush {
        ready!(Pin::new(socket).poll_flush(context))?;
        *must_flush = false;
    }
    Poll::Ready(Ok(()))
}

/// The calls of a connection end with it.
impl<S, H: RequestHead> Drop for Connection<S, H> {
    fn drop(&mut self) {
        self.engine.lock().end(Error::closed());
    }
}
