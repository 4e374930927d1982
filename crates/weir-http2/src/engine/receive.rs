//! Applies received frames to the streams and the windows.

use super::{Engine, Shutdown, WINDOW_MAX, opened, wake, wake_sender};
use crate::Reason;
use crate::frame::{self, FrameHeader, flag, kind};
use crate::streams::{SenderWait, Stream, StreamKey};

/// Response to a request with too large headers.
const FIELDS_TOO_LARGE: u16 = 431;

/// What a header block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockTarget {
    /// A new request.
    Request,
    /// The trailers of an open stream.
    Trailers(StreamKey),
    /// A stream whose frames are ignored.
    Ignored,
}

impl Engine {
    /// What a header block of `stream` is for.
    pub(crate) fn target(&mut self, stream: u32) -> Result<BlockTarget, Reason> {
        if stream > self.last_stream {
            self.last_stream = stream;
            return Ok(match self.shutdown {
                Shutdown::Final(_) => BlockTarget::Ignored,
                _ => BlockTarget::Request,
            });
        }
        if let Some(key) = self.streams.find(stream) {
            return Ok(BlockTarget::Trailers(key));
        }
        if self.is_ignored(stream) {
            return Ok(BlockTarget::Ignored);
        }
        Err(Reason::STREAM_CLOSED)
    }

    /// Whether frames of a closed stream are ignored.
    fn is_ignored(&self, stream: u32) -> bool {
        matches!(self.shutdown, Shutdown::Final(last) if stream > last)
            || self.recent_resets.contains(&stream)
    }

    /// Opens the stream of a valid request; `None` if it is refused. Too many refusals are an error of
    /// the connection.
    pub(crate) fn open(
        &mut self,
        stream: u32,
        content_length: Option<u64>,
        ends: bool,
    ) -> Result<Option<StreamKey>, Reason> {
        if self.streams.len() >= self.limits.max_concurrent_streams as usize {
            return self.fail(stream, Reason::REFUSED_STREAM).map(|()| None);
        }
        let mut new = opened(&self.peer, &self.limits);
        new.content_left = content_length;
        new.is_received = ends;
        Ok(Some(self.streams.open(stream, new)))
    }

    /// Responds to a request with too large headers. It is no error of the connection: the requests of all
    /// users of a proxy share one.
    pub(crate) fn refuse_fields(&mut self, stream: u32, ends: bool) {
        let mut new = opened(&self.peer, &self.limits);
        (new.is_received, new.is_accepted) = (ends, true);
        let key = self.streams.open(stream, new);
        self.send_block(key, Some(FIELDS_TOO_LARGE), std::iter::empty(), true);
        self.drop_call(key);
    }

    /// Ends a request with its trailers, which are valid if `is_valid`.
    pub(crate) fn receive_trailers(
        &mut self,
        key: StreamKey,
        is_valid: bool,
        ends: bool,
    ) -> Result<(), Reason> {
        let Some(stream) = self.streams.get(key) else { return Ok(()) };
        if stream.is_received {
            return self.fail(key.id, Reason::STREAM_CLOSED);
        }
        if !is_valid || !ends || stream.content_left.is_some_and(|left| left > 0) {
            return self.fail(key.id, Reason::PROTOCOL_ERROR);
        }
        self.received(key);
        Ok(())
    }

    /// Resets a stream for an error of the client. Too many of them are an error of the connection.
    pub(crate) fn fail(&mut self, stream: u32, reason: Reason) -> Result<(), Reason> {
        self.write_reset(stream, reason);
        if let Some(key) = self.streams.find(stream) {
            self.free(key);
        }
        self.count_error()
    }

    fn count_error(&mut self) -> Result<(), Reason> {
        self.error_resets += 1;
        match self.error_resets > self.limits.max_error_resets {
            true => Err(Reason::ENHANCE_YOUR_CALM),
            false => Ok(()),
        }
    }

    /// Applies a DATA frame (RFC 9113, section 6.1). Returns false if it costs a control frame: it is
    /// empty, or its stream is closed.
    pub(crate) fn receive_data(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<bool, Reason> {
        let FrameHeader { stream: id, .. } = header;
        if id == 0 || id > self.last_stream || id.is_multiple_of(2) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        let data = frame::unpadded(header, payload)?;
        let bytes = payload.len() as u32;
        let window = self.receive_window.checked_sub(bytes);
        self.receive_window = window.ok_or(Reason::FLOW_CONTROL_ERROR)?;
        let Some(key) = self.streams.find(id) else {
            self.release_connection(bytes);
            if self.recent_resets.contains(&id) {
                // No window was opened since, so only what was on its way may come.
                let left = self.late_data.checked_sub(u64::from(bytes));
                self.late_data = left.ok_or(Reason::FLOW_CONTROL_ERROR)?;
            }
            if self.is_ignored(id) {
                return Ok(!data.is_empty());
            }
            frame::write_reset(&mut self.output, id, Reason::STREAM_CLOSED);
            return Ok(false);
        };
        let Some(stream) = self.streams.get(key) else { return Ok(false) };
        // From here on, freeing the stream opens the window of the connection.
        stream.unreleased += bytes;
        if stream.is_received {
            return self.fail(id, Reason::STREAM_CLOSED).map(|()| true);
        }
        let Some(window) = stream.receive_window.checked_sub(bytes) else {
            return self.fail(id, Reason::FLOW_CONTROL_ERROR).map(|()| true);
        };
        stream.receive_window = window;
        let ends = header.has(flag::END_STREAM);
        if let Some(left) = &mut stream.content_left {
            match left.checked_sub(data.len() as u64) {
                Some(rest) if rest == 0 || !ends => *left = rest,
                _ => return self.fail(id, Reason::PROTOCOL_ERROR).map(|()| true),
            }
        }
        let unread = match stream.is_body_dropped {
            true => 0,
            false => data.len() as u32,
        };
        if unread > 0 {
            let before = stream.body.capacity();
            if before == 0 {
                stream.body.reserve_exact(data.len());
            }
            stream.body.extend_from_slice(data);
            self.body_bytes += stream.body.capacity() - before;
            wake(&mut stream.reader);
        }
        if unread < bytes {
            self.release(key, bytes - unread);
        }
        if ends {
            self.received(key);
        }
        Ok(!data.is_empty() || ends)
    }

    /// The client has ended its half of a stream. Frees the stream if the response has ended too.
    fn received(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.is_received = true;
        wake(&mut stream.reader);
        if stream.is_sent {
            self.free(key);
        }
    }

    /// Applies RST_STREAM (RFC 9113, section 6.4).
    pub(crate) fn receive_reset(&mut self, id: u32, payload: &[u8]) -> Result<(), Reason> {
        if id == 0 || id > self.last_stream || id.is_multiple_of(2) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        frame::number(payload)?;
        if let Some(key) = self.streams.find(id) {
            self.free(key);
        }
        if self.pending_resets > self.limits.max_pending_resets {
            return Err(Reason::ENHANCE_YOUR_CALM);
        }
        Ok(())
    }

    /// Applies SETTINGS (RFC 9113, section 6.5).
    pub(crate) fn receive_settings(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<(), Reason> {
        if header.stream != 0 {
            return Err(Reason::PROTOCOL_ERROR);
        }
        if header.has(flag::ACK) {
            return if payload.is_empty() { Ok(()) } else { Err(Reason::FRAME_SIZE_ERROR) };
        }
        let before = i64::from(self.peer.initial_window);
        self.peer.apply(payload)?;
        if let Some(bytes) = self.peer.header_table.take() {
            self.encoder.resize(bytes);
        }
        let more = i64::from(self.peer.initial_window) - before;
        if more != 0 {
            for stream in self.streams.iter_mut() {
                stream.send_window += more;
                if stream.send_window > WINDOW_MAX {
                    return Err(Reason::FLOW_CONTROL_ERROR);
                }
                wake_for_window(stream);
            }
        }
        frame::write(&mut self.output, kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    /// Applies WINDOW_UPDATE (RFC 9113, section 6.9).
    pub(crate) fn receive_window_update(&mut self, id: u32, payload: &[u8]) -> Result<(), Reason> {
        let more = i64::from(frame::number(payload)? & 0x7fff_ffff);
        if id == 0 {
            self.send_window += more;
            match self.send_window {
                _ if more == 0 => return Err(Reason::PROTOCOL_ERROR),
                window if window > WINDOW_MAX => return Err(Reason::FLOW_CONTROL_ERROR),
                _ => self.wake_blocked(),
            }
            return Ok(());
        }
        if id > self.last_stream || id.is_multiple_of(2) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        let Some(key) = self.streams.find(id) else { return Ok(()) };
        let Some(stream) = self.streams.get(key) else { return Ok(()) };
        stream.send_window += more;
        if more == 0 {
            return self.fail(id, Reason::PROTOCOL_ERROR);
        }
        if stream.send_window > WINDOW_MAX {
            return self.fail(id, Reason::FLOW_CONTROL_ERROR);
        }
        wake_for_window(stream);
        Ok(())
    }
}

/// Wakes the sender of a stream that waits for its window, if that has room now.
fn wake_for_window(stream: &mut Stream) {
    if stream.sender_wait == SenderWait::Window && stream.send_window > 0 {
        wake_sender(stream);
    }
}
