//! Receives bytes: the preface, frames, and header blocks.
//!
//! Complete frames are parsed where they were read. Only an incomplete frame and an incomplete header
//! block are copied.

use std::collections::VecDeque;
use std::time::Instant;

use crate::control_frames::ControlFrameBudget;
use crate::engine::Engine;
use crate::frame::{FrameHeader, HEADER_BYTES, PAYLOAD_MAX, flag, kind};
use crate::hpack::Decoder;
use crate::premature_resets::PrematureResets;
use crate::streams::StreamKey;
use crate::{Error, Limits, Reason, RequestHead};

mod header_block;

use header_block::{HeaderBlock, RepeatedRequest, priority};

/// What a client sends first (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The buffer of an incomplete frame keeps at most this many bytes.
const PARTIAL_KEPT: usize = 256;

/// The queue of calls keeps room for this many when it is empty.
const ARRIVED_KEPT: usize = 32;

/// What the client sends on one connection.
#[derive(Debug)]
pub(crate) struct Receiver<H> {
    /// Bytes of the preface that have come.
    preface: usize,
    has_settings: bool,
    /// An incomplete frame.
    partial: Vec<u8>,
    decoder: Decoder,
    /// A header block without END_HEADERS.
    block: Option<HeaderBlock>,
    budget: ControlFrameBudget,
    resets: PrematureResets,
    /// The last request, whose block the next one may repeat.
    repeated: RepeatedRequest<H>,
    /// The head of a request without fields.
    empty: H,
    /// Calls that the application has not accepted.
    arrived: VecDeque<(StreamKey, H)>,
    /// What their heads hold elsewhere in memory.
    arrived_heads: usize,
    limits: Limits,
}

impl<H: RequestHead> Receiver<H> {
    pub(crate) fn new(limits: Limits, empty: H) -> Receiver<H> {
        let repeated = RepeatedRequest::new(empty.clone());
        Receiver {
            preface: 0,
            has_settings: false,
            partial: Vec::new(),
            decoder: Decoder::new(),
            block: None,
            budget: ControlFrameBudget::new(limits.max_control_frames),
            resets: PrematureResets::new(limits.max_pending_resets),
            repeated,
            empty,
            arrived: VecDeque::new(),
            arrived_heads: 0,
            limits,
        }
    }

    /// Whether the preface has come.
    pub(crate) fn is_open(&self) -> bool {
        self.preface == PREFACE.len()
    }

    /// The stream whose header block is incomplete, if it has more than one frame.
    pub(crate) fn incomplete_block(&self) -> Option<u32> {
        self.block.as_ref().map(HeaderBlock::stream)
    }

    /// Whether the application has calls to accept.
    pub(crate) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// The number of calls to accept.
    pub(crate) fn arrived(&self) -> usize {
        self.arrived.len()
    }

    /// The next call to accept.
    pub(crate) fn next_arrived(&mut self) -> Option<(StreamKey, H)> {
        let arrived = self.arrived.pop_front();
        self.arrived_heads -= arrived.as_ref().map_or(0, |(_, head)| head.memory());
        if self.arrived.is_empty() && self.arrived.capacity() > ARRIVED_KEPT {
            self.arrived = VecDeque::with_capacity(ARRIVED_KEPT);
        }
        arrived
    }

    /// Counts a call that was accepted, or reset before that. Returns false for too many resets.
    pub(crate) fn record(&mut self, is_reset: bool) -> bool {
        self.resets.record(is_reset);
        !self.resets.are_too_many()
    }

    /// Bytes in memory, without what the allocator adds.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Receiver<H>>()
            + self.partial.capacity()
            + self.decoder.memory()
            + self.block.as_ref().map_or(0, HeaderBlock::memory)
            + self.repeated.memory()
            + self.arrived.capacity() * size_of::<(StreamKey, H)>()
            + self.arrived_heads
    }

    /// Adds a call that the application accepts later.
    fn arrive(&mut self, key: StreamKey, head: H) {
        self.arrived_heads += head.memory();
        self.arrived.push_back((key, head));
    }

    /// Receives `bytes`, which may begin and end anywhere. An error ends the connection. `now` is read
    /// for control frames only.
    pub(crate) fn receive(
        &mut self,
        mut bytes: &[u8],
        engine: &mut Engine,
        now: impl Fn() -> Instant,
    ) -> Result<(), Error> {
        if !self.is_open() {
            let (preface, rest) = bytes.split_at(bytes.len().min(PREFACE.len() - self.preface));
            if !PREFACE[self.preface..].starts_with(preface) {
                return Err(Error::go_away(Reason::PROTOCOL_ERROR));
            }
            self.preface += preface.len();
            bytes = rest;
        }
        if !self.partial.is_empty() {
            if !self.complete_partial(&mut bytes)? {
                return Ok(());
            }
            let partial = std::mem::take(&mut self.partial);
            let header = header(&partial)?.expect("it is complete");
            self.frame(header, &partial[HEADER_BYTES..], engine, &now)?;
            if partial.capacity() <= PARTIAL_KEPT {
                self.partial = partial;
                self.partial.clear();
            }
        }
        while let Some(header) = header(bytes)? {
            let Some(payload) = bytes.get(HEADER_BYTES..HEADER_BYTES + header.length) else {
                break;
            };
            bytes = &bytes[HEADER_BYTES + header.length..];
            self.frame(header, payload, engine, &now)?;
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Moves bytes to the incomplete frame. Returns whether it is complete.
    fn complete_partial(&mut self, bytes: &mut &[u8]) -> Result<bool, Error> {
        loop {
            let size = match header(&self.partial)? {
                Some(header) => HEADER_BYTES + header.length,
                None => HEADER_BYTES,
            };
            let (more, rest) = bytes.split_at(bytes.len().min(size - self.partial.len()));
            self.partial.extend_from_slice(more);
            *bytes = rest;
            if self.partial.len() < size {
                return Ok(false);
            }
            if size > HEADER_BYTES || header(&self.partial)?.is_some_and(|one| one.length == 0) {
                return Ok(true);
            }
        }
    }

    fn frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        engine: &mut Engine,
        now: &impl Fn() -> Instant,
    ) -> Result<(), Error> {
        let FrameHeader { kind, stream, .. } = header;
        if !self.has_settings {
            if kind != kind::SETTINGS || header.has(flag::ACK) {
                return Err(Error::go_away(Reason::PROTOCOL_ERROR));
            }
            self.has_settings = true;
        }
        if self.block.is_some() && kind != kind::CONTINUATION {
            return Err(Error::go_away(Reason::PROTOCOL_ERROR));
        }
        let is_free = match kind {
            kind::HEADERS => self.headers(header, payload, engine),
            kind::DATA => engine.receive_data(header, payload),
            kind::CONTINUATION => self.continuation(header, payload, engine),
            kind::RST_STREAM => engine.receive_reset(stream, payload).map(|()| false),
            kind::SETTINGS => engine.receive_settings(header, payload).map(|()| false),
            kind::PING => engine.receive_ping(header, payload).map(|()| false),
            kind::WINDOW_UPDATE => engine.receive_window_update(stream, payload).map(|()| false),
            kind::PRIORITY => priority(header, payload, engine).map(|()| false),
            kind::GOAWAY => {
                engine.receive_go_away(header, payload)?;
                Ok(false)
            }
            // No client may push (RFC 9113, section 8.4).
            kind::PUSH_PROMISE => Err(Reason::PROTOCOL_ERROR),
            // Unknown frames are ignored (RFC 9113, section 5.5).
            _ => Ok(false),
        };
        if !is_free.map_err(Error::go_away)? && !self.budget.spend(now()) {
            return Err(Error::go_away(Reason::ENHANCE_YOUR_CALM));
        }
        Ok(())
    }
}

/// The frame header at the start of `bytes`; `None` if it is incomplete. Larger frames than this server
/// accepts are an error.
fn header(bytes: &[u8]) -> Result<Option<FrameHeader>, Error> {
    let header = FrameHeader::read(bytes);
    match header {
        Some(header) if header.length > PAYLOAD_MAX => {
            Err(Error::go_away(Reason::FRAME_SIZE_ERROR))
        }
        header => Ok(header),
    }
}

#[cfg(test)]
mod tests;
