//! Header blocks: HEADERS and CONTINUATION frames, and the requests in them.

use super::Receiver;
use crate::engine::{BlockTarget, Engine};
use crate::frame::{self, FrameHeader, PAYLOAD_MAX, flag};
use crate::request::FieldCheck;
use crate::{Reason, RequestHead};

/// The most bytes of a header block per byte of `max_header_bytes`, and in addition. Huffman codes
/// may be four times as long as their text, but no client chooses them then.
const BLOCK_FACTOR: usize = 2;
const BLOCK_BYTES: usize = PAYLOAD_MAX;

/// The most CONTINUATION frames of a header block, in addition to those that a block of the largest
/// size needs.
const CONTINUATIONS: usize = 4;

/// Headers that are this much larger than `max_header_bytes` end the connection.
const LIST_FACTOR: usize = 4;

/// Bytes of the priority in a HEADERS frame, and of a PRIORITY frame (RFC 9113, section 6.3).
const PRIORITY_BYTES: usize = 5;

/// The longest header block that is compared with the next one.
const REPEATED_MAX: usize = 256;

/// A header block that CONTINUATION frames continue.
#[derive(Debug)]
pub(super) struct HeaderBlock {
    stream: u32,
    ends: bool,
    depends_on_itself: bool,
    bytes: Vec<u8>,
    continuations: usize,
}

/// The block of a request that did not change the header table, and what it means. An equal block means
/// the same while the table does not change.
#[derive(Debug)]
pub(super) struct RepeatedRequest<H> {
    block: Vec<u8>,
    version: u64,
    head: H,
    content_length: Option<u64>,
}

impl HeaderBlock {
    pub(super) fn stream(&self) -> u32 {
        self.stream
    }

    /// Bytes in memory.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

impl<H: RequestHead> RepeatedRequest<H> {
    /// No request. `head` is not used.
    pub(super) fn new(head: H) -> RepeatedRequest<H> {
        RepeatedRequest { block: Vec::new(), version: 0, head, content_length: None }
    }

    /// Bytes in memory.
    pub(super) fn memory(&self) -> usize {
        self.block.capacity() + self.head.memory()
    }
}

impl<H: RequestHead> Receiver<H> {
    /// Receives HEADERS. Returns false if it costs a control frame, as [`complete_block`](Self::complete_block).
    pub(super) fn headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        engine: &mut Engine,
    ) -> Result<bool, Reason> {
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
        Ok(true)
    }

    /// Receives CONTINUATION. Returns false as [`headers`](Self::headers).
    pub(super) fn continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        engine: &mut Engine,
    ) -> Result<bool, Reason> {
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
            return Ok(true);
        }
        let Some(block) = self.block.take() else { return Ok(true) };
        let HeaderBlock { stream, ends, depends_on_itself, bytes, .. } = block;
        self.complete_block(stream, ends, depends_on_itself, &bytes, engine)
    }

    /// Decodes a complete header block, and applies it. Returns false if it costs a control frame: a block
    /// that is ignored carries no call.
    fn complete_block(
        &mut self,
        stream: u32,
        ends: bool,
        depends_on_itself: bool,
        block: &[u8],
        engine: &mut Engine,
    ) -> Result<bool, Reason> {
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
            return self.request(stream, ends, head, content_length, engine).map(|()| true);
        }
        let (mut head, mut check) = (self.empty.clone(), FieldCheck::default());
        let max = self.limits.max_header_bytes as usize;
        let is_request = target == BlockTarget::Request;
        let decoded = self.decoder.decode(block, |kind, name, value| {
            if check.check(kind, name, value, max) && is_request {
                head.field(name, value);
            }
            !check.is_larger_than(LIST_FACTOR * max)
        });
        if check.is_larger_than(LIST_FACTOR * max) {
            return Err(Reason::ENHANCE_YOUR_CALM);
        }
        decoded.map_err(|_| Reason::COMPRESSION_ERROR)?;
        match target {
            BlockTarget::Ignored => return Ok(false),
            BlockTarget::Trailers(key) => {
                let is_valid = check.is_trailers() && !check.is_larger_than(max);
                engine.receive_trailers(key, is_valid && !depends_on_itself, ends)?;
            }
            BlockTarget::Request if check.is_larger_than(max) => engine.refuse_fields(stream, ends),
            BlockTarget::Request if depends_on_itself || !check.is_request() => {
                engine.fail(stream, Reason::PROTOCOL_ERROR)?;
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
                self.request(stream, ends, head, content_length, engine)?;
            }
        }
        Ok(true)
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
            self.budget.add_call();
            self.arrive(key, head);
        }
        Ok(())
    }
}

/// The stream on which a priority depends.
fn depends_on(priority: &[u8]) -> u32 {
    priority.first_chunk().map_or(0, |stream| u32::from_be_bytes(*stream) & 0x7fff_ffff)
}

/// Checks PRIORITY, and ignores it (RFC 9113, section 6.3).
pub(super) fn priority(
    header: FrameHeader,
    payload: &[u8],
    engine: &mut Engine,
) -> Result<(), Reason> {
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
