//! Sends responses: frames are encoded into the output as far as the windows have room.

use std::task::{Context, Poll};

use super::{Engine, register};
use crate::frame::{self, FrameHeader, HEADER_BYTES, PAYLOAD_MAX, flag, kind};
use crate::streams::{SenderWait, StreamKey};
use crate::{Error, Reason};

impl Engine {
    /// The bytes of DATA that may be sent now.
    pub(crate) fn room(&mut self, key: StreamKey) -> usize {
        let output = self.limits.output_bytes.saturating_sub(self.output.len() - self.written);
        let connection = self.send_window;
        let Some(stream) = self.streams.get(key) else { return 0 };
        let window = stream.send_window.min(connection).max(0);
        usize::try_from(window).unwrap_or(usize::MAX).min(output)
    }

    /// The bytes of DATA that may be sent, when there are any. Fails if the stream was reset or the
    /// connection has ended.
    pub(crate) fn poll_room(
        &mut self,
        key: StreamKey,
        context: &Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        let room = self.room(key);
        if room > 0 {
            return Poll::Ready(Ok(room));
        }
        let Some(stream) = self.streams.get(key) else { return Poll::Ready(Err(self.gone())) };
        register(&mut stream.sender, context);
        stream.sender_wait = match stream.send_window > 0 {
            true => SenderWait::Connection,
            false => SenderWait::Window,
        };
        self.has_blocked |= stream.sender_wait == SenderWait::Connection;
        Poll::Pending
    }

    /// Returns the reason once the stream was reset or the connection has ended.
    pub(crate) fn poll_reset(&mut self, key: StreamKey, context: &Context<'_>) -> Poll<Error> {
        let Some(stream) = self.streams.get(key) else { return Poll::Ready(self.gone()) };
        register(&mut stream.sender, context);
        Poll::Pending
    }

    /// Sends response headers with `status` and `fields`. `ends` ends the response.
    pub(crate) fn send_head<'f>(
        &mut self,
        key: StreamKey,
        status: u16,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        ends: bool,
    ) -> Result<(), Error> {
        if self.streams.get(key).is_none() {
            return Err(self.gone());
        }
        self.send_block(key, Some(status), fields, ends);
        Ok(())
    }

    /// Sends trailers, which end the response.
    pub(crate) fn send_trailers<'f>(
        &mut self,
        key: StreamKey,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Result<(), Error> {
        if self.streams.get(key).is_none() {
            return Err(self.gone());
        }
        self.send_block(key, None, fields, true);
        Ok(())
    }

    /// Sends DATA, for which there must be [`room`](Self::room).
    pub(crate) fn send_data(
        &mut self,
        key: StreamKey,
        data: &[u8],
        ends: bool,
    ) -> Result<(), Error> {
        let Some(stream) = self.streams.get(key) else { return Err(self.gone()) };
        stream.send_window -= data.len() as i64;
        self.send_window -= data.len() as i64;
        let mut rest = data;
        loop {
            let (payload, after) = rest.split_at(rest.len().min(PAYLOAD_MAX));
            rest = after;
            let is_last = ends && rest.is_empty();
            let flags = if is_last { flag::END_STREAM } else { 0 };
            frame::write(&mut self.output, kind::DATA, flags, key.id, payload);
            if rest.is_empty() {
                break;
            }
        }
        self.sent(key, ends);
        Ok(())
    }

    /// Sends a complete gRPC response with one message and status OK. `write` appends the `length`
    /// bytes of the message with its prefix. Returns false, and sends nothing, if there is no room for
    /// all of it.
    pub(crate) fn send_message(
        &mut self,
        key: StreamKey,
        length: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<bool, Error> {
        let fits = length <= PAYLOAD_MAX.min(self.room(key));
        let Some(stream) = self.streams.get(key) else { return Err(self.gone()) };
        if !fits {
            return Ok(false);
        }
        let Engine { output, encoder, .. } = self;
        let before = output.len();
        let head = begin(output, kind::HEADERS, flag::END_HEADERS, key.id);
        encoder.status(output, 200);
        encoder.content_type_grpc(output);
        finish(output, head);
        let data = begin(output, kind::DATA, 0, key.id);
        // If it panics, nothing of the response is sent, and other calls go on.
        let mut unfinished = Unfinished { output, before: Some(before) };
        write(unfinished.output);
        unfinished.before = None;
        drop(unfinished);
        stream.send_window -= length as i64;
        self.send_window -= length as i64;
        debug_assert_eq!(output.len() - data, length, "the length of the message");
        finish(output, data);
        let trailers = begin(output, kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, key.id);
        encoder.begin(output);
        encoder.grpc_status_ok(output);
        finish(output, trailers);
        self.sent(key, true);
        Ok(true)
    }

    /// Ends a call that its application has dropped: resets its stream, unless the response is complete
    /// and the request too.
    pub(crate) fn drop_call(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get(key) {
            let reason = if stream.is_sent { Reason::NO_ERROR } else { Reason::CANCEL };
            self.reset(key, reason);
        }
    }

    /// Encodes a header block into a HEADERS frame, and into CONTINUATION frames if it is large.
    pub(super) fn send_block<'f>(
        &mut self,
        key: StreamKey,
        status: Option<u16>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        ends: bool,
    ) {
        let Engine { output, encoder, .. } = self;
        let end = if ends { flag::END_STREAM } else { 0 };
        let from = begin(output, kind::HEADERS, end | flag::END_HEADERS, key.id);
        match status {
            Some(status) => encoder.status(output, status),
            None => encoder.begin(output),
        }
        for (name, value) in fields {
            encoder.field(output, name, value);
        }
        if output.len() - from <= PAYLOAD_MAX {
            finish(output, from);
        } else {
            let block = output.split_off(from);
            output.truncate(from - HEADER_BYTES);
            let mut pieces = block.chunks(PAYLOAD_MAX).peekable();
            let (mut kind, mut flags) = (kind::HEADERS, end);
            while let Some(piece) = pieces.next() {
                if pieces.peek().is_none() {
                    flags |= flag::END_HEADERS;
                }
                frame::write(output, kind, flags, key.id, piece);
                (kind, flags) = (kind::CONTINUATION, 0);
            }
        }
        self.sent(key, ends);
    }

    /// The task must write what was sent on a stream. Frees the stream if that ends it.
    fn sent(&mut self, key: StreamKey, ends: bool) {
        if ends && let Some(stream) = self.streams.get(key) {
            stream.is_sent = true;
            if stream.is_received {
                self.free(key);
            }
        }
        self.wake_task();
    }
}

/// Output that is cut to its length of before when it is dropped, unless that is taken.
struct Unfinished<'o> {
    output: &'o mut Vec<u8>,
    before: Option<usize>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            self.output.truncate(before);
        }
    }
}

/// Appends the header of a frame whose length [`finish`] writes. Returns where its payload begins.
fn begin(output: &mut Vec<u8>, kind: u8, flags: u8, stream: u32) -> usize {
    FrameHeader { length: 0, kind, flags, stream }.write(output);
    output.len()
}

/// Writes the length of the frame whose payload begins at `from` and ends the output.
fn finish(output: &mut [u8], from: usize) {
    let [_, length @ ..] = ((output.len() - from) as u32).to_be_bytes();
    output[from - HEADER_BYTES..][..3].copy_from_slice(&length);
}
