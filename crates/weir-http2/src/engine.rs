//! The state of a connection that its calls share: streams, windows, settings, and the output.
//!
//! Everything that is sent is encoded at once into one output buffer. So nothing is queued for a
//! stream: DATA is encoded as far as the windows of the client have room, and its sender waits with
//! the rest.

use std::task::{Context, Poll, Waker};

use crate::frame::{self, kind};
use crate::hpack::ResponseEncoder;
use crate::settings::{self, PeerSettings};
use crate::streams::{Stream, StreamKey, StreamTable};
use crate::{Config, Error, Reason};

mod receive;
mod send;

pub(crate) use receive::BlockTarget;

/// The largest flow-control window (RFC 9113, section 6.9.1).
const WINDOW_MAX: i64 = (1 << 31) - 1;

/// The window of a connection at its start (RFC 9113, section 6.9.2).
const CONNECTION_WINDOW: u32 = 65_535;

/// The payload of the ping between the two GOAWAY frames of a graceful shutdown.
const SHUTDOWN_PING: [u8; 8] = *b"goodbye!";

/// The payload of a keepalive ping.
const KEEPALIVE_PING: [u8; 8] = *b"areyouok";

/// The output buffer keeps at most this many bytes between writes.
const OUTPUT_KEPT: usize = 8 * 1024;

/// Streams reset by this server whose late frames are ignored.
const RECENT_RESETS: usize = 32;

/// How far a graceful shutdown has come (RFC 9113, section 6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    None,
    /// GOAWAY without a last stream was sent, and a ping.
    Announced,
    /// The ping was answered, and GOAWAY with this last stream was sent.
    Final(u32),
}

/// The keepalive ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeepalivePing {
    None,
    Sent,
    Answered,
}

/// The state of a connection that its calls share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) streams: StreamTable,
    peer: PeerSettings,
    encoder: ResponseEncoder,
    /// Encoded frames, of which the first `written` bytes were written.
    output: Vec<u8>,
    written: usize,
    /// Bytes that the server may send on all streams.
    send_window: i64,
    /// Bytes that the client may send on all streams.
    receive_window: u32,
    /// Bytes released and not announced by WINDOW_UPDATE.
    unannounced: u32,
    /// Bytes of the bodies that were received and not read.
    body_bytes: usize,
    /// The largest stream that the client has opened.
    last_stream: u32,
    /// Streams that were reset before the application accepted them.
    pub(crate) pending_resets: usize,
    error_resets: u32,
    recent_resets: [u32; RECENT_RESETS],
    next_recent: usize,
    shutdown: Shutdown,
    ping: KeepalivePing,
    pinger: Option<Waker>,
    /// Some sender waits for room.
    has_blocked: bool,
    /// The task of the connection, and whether output must wake it.
    task: Option<Waker>,
    wakes: bool,
    /// Present when the connection has ended for its calls.
    ended: Option<Error>,
}

impl Engine {
    /// A connection that has just opened. The output begins with the settings of the server.
    pub(crate) fn new(config: Config) -> Engine {
        let mut output = Vec::with_capacity(64);
        settings::write(&mut output, &config);
        let more = config.window.saturating_sub(CONNECTION_WINDOW);
        if more > 0 {
            frame::write_window_update(&mut output, 0, more);
        }
        Engine {
            config,
            streams: StreamTable::default(),
            peer: PeerSettings::default(),
            encoder: ResponseEncoder::new(),
            output,
            written: 0,
            send_window: i64::from(CONNECTION_WINDOW),
            receive_window: CONNECTION_WINDOW + more,
            unannounced: 0,
            body_bytes: 0,
            last_stream: 0,
            pending_resets: 0,
            error_resets: 0,
            recent_resets: [0; RECENT_RESETS],
            next_recent: 0,
            shutdown: Shutdown::None,
            ping: KeepalivePing::None,
            pinger: None,
            has_blocked: false,
            task: None,
            wakes: false,
            ended: None,
        }
    }

    /// Bytes in memory, without what the allocator adds.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Engine>() + self.streams.memory() + self.body_bytes + self.output.capacity()
    }

    /// The output that was not written.
    pub(crate) fn output(&self) -> &[u8] {
        &self.output[self.written..]
    }

    /// Removes `bytes` from the output, which were written. Wakes the senders that wait for room once
    /// all is written.
    pub(crate) fn advance_output(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written < self.output.len() {
            return;
        }
        self.written = 0;
        self.output.clear();
        self.output.shrink_to(OUTPUT_KEPT);
        self.wake_blocked();
    }

    /// Wakes the task when output is added, until [`stop_waking`](Self::stop_waking).
    pub(crate) fn wake_on_output(&mut self, context: &Context<'_>) {
        match &mut self.task {
            Some(task) => task.clone_from(context.waker()),
            None => self.task = Some(context.waker().clone()),
        }
        self.wakes = true;
    }

    /// Output does not wake the task, which is running.
    pub(crate) fn stop_waking(&mut self) {
        self.wakes = false;
    }

    /// The task must write the output.
    fn wake_task(&mut self) {
        if self.wakes {
            self.wakes = false;
            if let Some(task) = &self.task {
                task.wake_by_ref();
            }
        }
    }

    fn wake_blocked(&mut self) {
        if !std::mem::take(&mut self.has_blocked) {
            return;
        }
        for stream in self.streams.iter_mut().filter(|stream| stream.needs_room) {
            stream.needs_room = false;
            wake(&mut stream.sender);
        }
    }

    /// Whether no stream is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.len() == 0
    }

    /// Whether a graceful shutdown waits for open streams only.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.shutdown, Shutdown::Final(_))
    }

    /// Ends the connection for all calls.
    pub(crate) fn end(&mut self, error: Error) {
        if self.ended.is_none() {
            self.ended = Some(error);
        }
        for key in self.streams.keys() {
            self.free(key);
        }
        wake(&mut self.pinger);
    }

    /// Whether the connection has ended for its calls.
    pub(crate) fn ended(&self) -> Option<&Error> {
        self.ended.as_ref()
    }

    /// Begins a graceful shutdown: new streams are accepted for one more round trip.
    pub(crate) fn begin_shutdown(&mut self) {
        if self.shutdown != Shutdown::None || self.ended.is_some() {
            return;
        }
        self.shutdown = Shutdown::Announced;
        self.write_go_away(0x7fff_ffff, Reason::NO_ERROR);
        frame::write(&mut self.output, kind::PING, 0, 0, &SHUTDOWN_PING);
        self.wake_task();
    }

    /// Sends GOAWAY with `reason`, and ends all calls.
    pub(crate) fn abort(&mut self, reason: Reason) {
        if self.ended.is_none() {
            let last = match self.shutdown {
                Shutdown::Final(last) => last,
                _ => self.last_stream,
            };
            self.write_go_away(last, reason);
            self.end(Error::go_away(reason));
            self.wake_task();
        }
    }

    fn write_go_away(&mut self, last: u32, reason: Reason) {
        let payload = u64::from(last) << 32 | u64::from(reason.0);
        frame::write(&mut self.output, kind::GOAWAY, 0, 0, &payload.to_be_bytes());
    }

    /// Sends a keepalive ping. Fails if the connection has ended.
    pub(crate) fn send_ping(&mut self) -> Result<(), Error> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        self.ping = KeepalivePing::Sent;
        frame::write(&mut self.output, kind::PING, 0, 0, &KEEPALIVE_PING);
        self.wake_task();
        Ok(())
    }

    /// Returns when the keepalive ping was answered.
    pub(crate) fn poll_pong(&mut self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        if self.ping == KeepalivePing::Answered {
            self.ping = KeepalivePing::None;
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &self.ended {
            return Poll::Ready(Err(error.clone()));
        }
        self.pinger = Some(context.waker().clone());
        Poll::Pending
    }

    /// Frees a stream, and wakes its call.
    fn free(&mut self, key: StreamKey) {
        let Some(mut stream) = self.streams.close(key) else { return };
        self.body_bytes -= stream.body.capacity();
        self.release_connection(stream.unreleased);
        wake(&mut stream.reader);
        wake(&mut stream.sender);
        if !stream.is_accepted {
            self.pending_resets += 1;
        }
    }

    /// Resets a stream, and frees it.
    pub(crate) fn reset(&mut self, key: StreamKey, reason: Reason) {
        if self.streams.get(key).is_some() {
            self.write_reset(key.id, reason);
            self.free(key);
        }
    }

    /// Sends RST_STREAM. Late frames of the stream are ignored.
    fn write_reset(&mut self, stream: u32, reason: Reason) {
        frame::write_reset(&mut self.output, stream, reason);
        self.recent_resets[self.next_recent] = stream;
        self.next_recent = (self.next_recent + 1) % RECENT_RESETS;
        self.wake_task();
    }

    /// Opens the window of the connection by `bytes`, and announces that when half of it is open.
    fn release_connection(&mut self, bytes: u32) {
        self.unannounced += bytes;
        if self.unannounced >= self.config.window / 2 && self.unannounced > 0 {
            let more = std::mem::take(&mut self.unannounced);
            self.receive_window += more;
            frame::write_window_update(&mut self.output, 0, more);
            self.wake_task();
        }
    }

    /// Opens the windows of the client by `bytes` of a body.
    pub(crate) fn release(&mut self, key: StreamKey, bytes: u32) {
        let window = self.config.window;
        let Some(stream) = self.streams.get(key) else { return };
        let bytes = bytes.min(stream.unreleased);
        stream.unreleased -= bytes;
        stream.unannounced += bytes;
        if !stream.is_received && stream.unannounced >= window / 2 && stream.unannounced > 0 {
            let more = std::mem::take(&mut stream.unannounced);
            stream.receive_window += more;
            frame::write_window_update(&mut self.output, key.id, more);
            self.wake_task();
        }
        self.release_connection(bytes);
    }

    /// Gives a call to the application: its data, and whether that is all. `None` if the stream was
    /// reset before. The windows open again for complete data.
    pub(crate) fn accept(&mut self, key: StreamKey) -> Option<(Vec<u8>, bool)> {
        let stream = self.streams.get(key)?;
        stream.is_accepted = true;
        if !stream.is_received {
            return Some((Vec::new(), false));
        }
        let body = std::mem::take(&mut stream.body);
        let bytes = std::mem::take(&mut stream.unreleased);
        self.body_bytes -= body.capacity();
        self.release_connection(bytes);
        Some((body, true))
    }

    /// The data of a body that was received and not read; `None` after its end. The windows open again
    /// only by [`release`](Self::release).
    pub(crate) fn poll_body(
        &mut self,
        key: StreamKey,
        context: &Context<'_>,
    ) -> Poll<Result<Option<Vec<u8>>, Error>> {
        let Some(stream) = self.streams.get(key) else {
            return Poll::Ready(Err(self.gone()));
        };
        if !stream.body.is_empty() {
            let body = std::mem::take(&mut stream.body);
            self.body_bytes -= body.capacity();
            return Poll::Ready(Ok(Some(body)));
        }
        if stream.is_received {
            return Poll::Ready(Ok(None));
        }
        register(&mut stream.reader, context);
        Poll::Pending
    }

    /// Whether a body has ended and all of it was read.
    pub(crate) fn is_body_read(&mut self, key: StreamKey) -> bool {
        self.streams.get(key).is_some_and(|stream| stream.is_received && stream.body.is_empty())
    }

    /// The application does not read the body any more. What arrives is dropped.
    pub(crate) fn drop_body(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.is_body_dropped = true;
        let (body, bytes) = (std::mem::take(&mut stream.body), stream.unreleased);
        self.body_bytes -= body.capacity();
        self.release(key, bytes);
    }

    /// Why a stream is gone.
    fn gone(&self) -> Error {
        let reset = || Error::reset_by_client(Reason::CANCEL);
        self.ended.clone().unwrap_or_else(reset)
    }
}

/// Opens a stream with the windows of the connection's settings.
fn opened(peer: &PeerSettings, config: &Config) -> Stream {
    let mut stream = Stream::default();
    stream.send_window = i64::from(peer.initial_window);
    stream.receive_window = config.window;
    stream
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

fn register(waker: &mut Option<Waker>, context: &Context<'_>) {
    match waker {
        Some(waker) => waker.clone_from(context.waker()),
        None => *waker = Some(context.waker().clone()),
    }
}
