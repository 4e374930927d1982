//! The state of a connection that its calls share: streams, windows, settings, and the output.
//!
//! Everything that is sent is encoded at once into one output buffer. So nothing is queued for a
//! stream: DATA is encoded as far as the windows of the client have room, and its sender waits with
//! the rest.

use std::task::{Context, Waker};

use crate::frame;
use crate::hpack::ResponseEncoder;
use crate::settings::{self, PeerSettings};
use crate::streams::{SenderWait, Stream, StreamKey, StreamTable};
use crate::{Error, Limits, Reason};

mod body;
mod receive;
mod send;
mod shutdown;

pub(crate) use receive::BlockTarget;
use shutdown::{KeepalivePing, Shutdown};

/// The largest flow-control window (RFC 9113, section 6.9.1).
const WINDOW_MAX: i64 = (1 << 31) - 1;

/// The window of a connection at its start (RFC 9113, section 6.9.2).
const CONNECTION_WINDOW: u32 = 65_535;

/// The output buffer keeps at most this many bytes between writes.
const OUTPUT_KEPT: usize = 8 * 1024;

/// Streams reset by this server whose late frames are ignored.
const RECENT_RESETS: usize = 32;

/// The state of a connection that its calls share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) limits: Limits,
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
    /// Bytes of DATA that may still come on recently reset streams.
    late_data: u64,
    shutdown: Shutdown,
    ping: KeepalivePing,
    pinger: Option<Waker>,
    /// Some sender waits for the connection.
    has_blocked: bool,
    /// The task of the connection, and whether output must wake it.
    task: Option<Waker>,
    wakes: bool,
    /// Present when the connection has ended for its calls.
    ended: Option<Error>,
}

impl Engine {
    /// A connection that has just opened. The output begins with the settings of the server.
    pub(crate) fn new(limits: Limits) -> Engine {
        let mut output = Vec::with_capacity(64);
        settings::write(&mut output, &limits);
        let more = limits.window.saturating_sub(CONNECTION_WINDOW);
        if more > 0 {
            frame::write_window_update(&mut output, 0, more);
        }
        Engine {
            limits,
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
            late_data: 0,
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

    /// Bytes of the bodies that were received and not read.
    #[cfg(test)]
    pub(crate) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// The output that was not written.
    pub(crate) fn output(&self) -> &[u8] {
        &self.output[self.written..]
    }

    /// Whether the output has less than its maximum, so that a call may begin.
    pub(crate) fn has_output_room(&self) -> bool {
        self.output().len() < self.limits.output_bytes
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

    /// Wakes the senders that wait for the connection, if its window has room. Those that wait for
    /// their own window stay asleep, or a client could wake many with each frame.
    fn wake_blocked(&mut self) {
        if !self.has_blocked || self.send_window <= 0 {
            return;
        }
        self.has_blocked = false;
        let blocked = |stream: &&mut Stream| stream.sender_wait == SenderWait::Connection;
        for stream in self.streams.iter_mut().filter(blocked) {
            wake_sender(stream);
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

    /// Sends RST_STREAM. Late frames of the stream are ignored: as much DATA as its window had room for.
    fn write_reset(&mut self, stream: u32, reason: Reason) {
        frame::write_reset(&mut self.output, stream, reason);
        let known = self.streams.find(stream).and_then(|key| self.streams.get(key));
        let window = known.map_or(self.limits.window, |stream| stream.receive_window);
        let max = RECENT_RESETS as u64 * u64::from(self.limits.window);
        self.late_data = (self.late_data + u64::from(window)).min(max);
        self.recent_resets[self.next_recent] = stream;
        self.next_recent = (self.next_recent + 1) % RECENT_RESETS;
        self.wake_task();
    }

    /// Why a stream is gone.
    fn gone(&self) -> Error {
        let reset = || Error::reset_by_client(Reason::CANCEL);
        self.ended.clone().unwrap_or_else(reset)
    }
}

/// Opens a stream with the windows of the connection's settings.
fn opened(peer: &PeerSettings, limits: &Limits) -> Stream {
    let mut stream = Stream::default();
    stream.send_window = i64::from(peer.initial_window);
    stream.receive_window = limits.window;
    stream
}

fn wake_sender(stream: &mut Stream) {
    stream.sender_wait = SenderWait::Reset;
    wake(&mut stream.sender);
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
