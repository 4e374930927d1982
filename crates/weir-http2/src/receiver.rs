//! Receives bytes: the preface, frames, and header blocks.
//!
//! Complete frames are parsed where they were read. Only an incomplete frame and an incomplete header
//! block are copied.

use std::collections::VecDeque;
use std::time::Instant;

use crate::control_frames::ControlFrameBudget;
use crate::engine::{BlockTarget, Engine};
use crate::frame::{self, FrameHeader, HEADER_BYTES, PAYLOAD_MAX, flag, kind};
use crate::hpack::Decoder;
use crate::premature_resets::PrematureResets;
use crate::request::FieldCheck;
use crate::streams::StreamKey;
use crate::{Config, Error, Reason, RequestHead};

/// What a client sends first (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The most bytes of a header block per byte of `max_header_bytes`, and in addition. Huffman codes
/// may be four times as long as their text, but no client chooses them then.
const BLOCK_FACTOR: usize = 2;
const BLOCK_BYTES: usize = PAYLOAD_MAX;

/// The most CONTINUATION frames of a header block, in addition to those that a block of the largest
/// size needs.
const CONTINUATIONS: usize = 4;

/// Bytes of the priority in a HEADERS frame, and of a PRIORITY frame (RFC 9113, section 6.3).
const PRIORITY_BYTES: usize = 5;

/// The buffer of an incomplete frame keeps at most this many bytes.
const PARTIAL_KEPT: usize = 256;

/// The longest header block that is compared with the next one.
const REPEATED_MAX: usize = 256;

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
    limits: Config,
}

/// A header block that CONTINUATION frames continue.
#[derive(Debug)]
struct HeaderBlock {
    stream: u32,
    ends: bool,
    depends_on_itself: bool,
    bytes: Vec<u8>,
    continuations: usize,
}

/// The block of a request that did not change the header table, and what it means. An equal block means
/// the same while the table does not change.
#[derive(Debug)]
struct RepeatedRequest<H> {
    block: Vec<u8>,
    version: u64,
    head: H,
    content_length: Option<u64>,
}

impl<H: RequestHead> Receiver<H> {
    pub(crate) fn new(limits: Config, empty: H) -> Receiver<H> {
        let repeated = RepeatedRequest {
            block: Vec::new(),
            version: 0,
            head: empty.clone(),
            content_length: None,
        };
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
            limits,
        }
    }

    /// Whether the preface has come.
    pub(crate) fn is_open(&self) -> bool {
        self.preface == PREFACE.len()
    }

    /// The stream whose header block is incomplete, if it has more than one frame.
    pub(crate) fn incomplete_block(&self) -> Option<u32> {
        self.block.as_ref().map(|block| block.stream)
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
        self.arrived.pop_front()
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
            + self.block.as_ref().map_or(0, |block| block.bytes.capacity())
            + self.repeated.block.capacity()
            + self.arrived.capacity() * size_of::<(StreamKey, H)>()
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
            kind::HEADERS => {
                self.budget.add_call();
                self.headers(header, payload, engine).map(|()| true)
            }
            kind::DATA => engine.receive_data(header, payload),
            kind::CONTINUATION => self.continuation(header, payload, engine).map(|()| true),
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

    fn headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        engine: &mut Engine,
    ) -> Result<(), Reason> {
        let FrameHeader { stream, .. } = header;
        if stream.is_multiple_of(2) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        let mut fragment = frame::unpadded(header, payload)?;
        let mut depends_on_itself = false;
        if header.has(flag::PRIORITY) {
            let (priority, rest) =
                fragment.split_at_checked(PRIORITY_BYTES).ok_or(Reason::FRAME_SIZE_ERROR)?;
            depends_on_itself = depends_on(priority) == stream;
            fragment = rest;
        }
        let ends = header.has(flag::END_STREAM);
        if header.has(flag::END_HEADERS) {
            return self.complete_block(stream, ends, depends_on_itself, fragment, engine);
        }
        let (bytes, continuations) = (fragment.to_vec(), 0);
        self.block = Some(HeaderBlock { stream, ends, depends_on_itself, bytes, continuations });
        Ok(())
    }

    fn continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        engine: &mut Engine,
    ) -> Result<(), Reason> {
        let max = BLOCK_FACTOR * self.limits.max_header_bytes as usize + BLOCK_BYTES;
        let Some(block) = &mut self.block else { return Err(Reason::PROTOCOL_ERROR) };
        if header.stream != block.stream {
            return Err(Reason::PROTOCOL_ERROR);
        }
        block.continuations += 1;
        let is_too_large = block.bytes.len() + payload.len() > max
            || block.continuations > CONTINUATIONS + max / PAYLOAD_MAX;
        if is_too_large {
            return Err(Reason::ENHANCE_YOUR_CALM);
        }
        block.bytes.extend_from_slice(payload);
        if !header.has(flag::END_HEADERS) {
            return Ok(());
        }
        let Some(block) = self.block.take() else { return Ok(()) };
        let HeaderBlock { stream, ends, depends_on_itself, bytes, .. } = block;
        self.complete_block(stream, ends, depends_on_itself, &bytes, engine)
    }

    /// Decodes a complete header block, and applies it.
    fn complete_block(
        &mut self,
        stream: u32,
        ends: bool,
        depends_on_itself: bool,
        block: &[u8],
        engine: &mut Engine,
    ) -> Result<(), Reason> {
        let target = engine.target(stream)?;
        let version = self.decoder.version();
        if target == BlockTarget::Request
            && !depends_on_itself
            && self.repeated.version == version
            && self.repeated.block == block
            && !block.is_empty()
        {
            let RepeatedRequest { head, content_length, .. } = &self.repeated;
            let (head, content_length) = (head.clone(), *content_length);
            return self.request(stream, ends, head, content_length, engine);
        }
        let (mut head, mut check) = (self.empty.clone(), FieldCheck::default());
        let max = self.limits.max_header_bytes as usize;
        let is_request = target == BlockTarget::Request;
        let decoded = self.decoder.decode(block, |kind, name, value| {
            if check.check(kind, name, value, max) && is_request {
                head.field(name, value);
            }
        });
        decoded.map_err(|_| Reason::COMPRESSION_ERROR)?;
        match target {
            BlockTarget::Ignored => Ok(()),
            BlockTarget::Trailers(key) => {
                let is_valid = check.is_trailers() && !check.is_larger_than(max);
                engine.receive_trailers(key, is_valid && !depends_on_itself, ends)
            }
            BlockTarget::Request if check.is_larger_than(max) => engine.refuse_fields(stream, ends),
            BlockTarget::Request if depends_on_itself || !check.is_request() => {
                engine.fail(stream, Reason::PROTOCOL_ERROR)
            }
            BlockTarget::Request => {
                let content_length = check.content_length();
                if self.decoder.version() == version && block.len() <= REPEATED_MAX {
                    let Receiver { repeated, .. } = self;
                    repeated.block.clear();
                    repeated.block.extend_from_slice(block);
                    (repeated.version, repeated.content_length) = (version, content_length);
                    repeated.head = head.clone();
                }
                self.request(stream, ends, head, content_length, engine)
            }
        }
    }

    /// Opens the stream of a valid request.
    fn request(
        &mut self,
        stream: u32,
        ends: bool,
        head: H,
        content_length: Option<u64>,
        engine: &mut Engine,
    ) -> Result<(), Reason> {
        if ends && content_length.is_some_and(|length| length > 0) {
            return engine.fail(stream, Reason::PROTOCOL_ERROR);
        }
        if let Some(key) = engine.open(stream, content_length, ends)? {
            self.arrived.push_back((key, head));
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

/// The stream on which a priority depends.
fn depends_on(priority: &[u8]) -> u32 {
    priority.first_chunk().map_or(0, |stream| u32::from_be_bytes(*stream) & 0x7fff_ffff)
}

/// Checks PRIORITY, and ignores it (RFC 9113, section 6.3).
fn priority(header: FrameHeader, payload: &[u8], engine: &mut Engine) -> Result<(), Reason> {
    if header.stream == 0 {
        return Err(Reason::PROTOCOL_ERROR);
    }
    if payload.len() != PRIORITY_BYTES {
        return Err(Reason::FRAME_SIZE_ERROR);
    }
    match depends_on(payload) == header.stream {
        true => engine.fail(header.stream, Reason::PROTOCOL_ERROR),
        false => Ok(()),
    }
}
