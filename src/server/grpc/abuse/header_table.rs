//! A bound on the input that h2 keeps in memory for its HPACK table and for large frames.
//!
//! h2 stores a path, authority, scheme or protocol as a slice of the buffer in which it arrived. One
//! such entry keeps a whole buffer. h2 copies the values of all other entries.
//!
//! This module reads the structure of header blocks: which fields are stored, and how long their
//! texts are. It does not decode Huffman codes, so it has a lower bound of the size of an entry. An
//! entry counts until newer entries must have pushed it out of the table. The proof is in
//! `docs/design/grpc-server.md`.

use std::collections::VecDeque;

/// Bytes of the table, as HPACK counts them. h2 accepts no larger one unless the server offers it.
const TABLE_BYTES: u64 = 4096;

/// Bytes of an entry in addition to its texts (RFC 7541, section 4.1).
const ENTRY_BYTES: u64 = 32;

/// Huffman codes have at most 30 bits, so a text has at least a quarter of the bytes of its codes.
const BYTES_PER_SYMBOL: usize = 4;

/// Entries of the static table (RFC 7541, appendix A).
const STATIC_ENTRIES: usize = 61;

/// Smallest buffer of an entry that was sent as it is: the read buffer.
const READ_BUFFER_BYTES: u64 = 8192;

/// Smallest buffer of an entry that was sent in Huffman codes: the decoder's.
const HUFFMAN_BUFFER_BYTES: u64 = 4096;

/// Bytes of a buffer per byte of the largest frame or header block that it had to hold.
const BUFFER_GROWTH: u64 = 4;

/// Flags of HEADERS frames.
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 32;

/// Follows the HPACK table of one connection.
#[derive(Debug, Default)]
pub(super) struct HeaderTable {
    payload: HeaderPayload,
    field: HeaderField,
    /// Bytes of the largest frame.
    largest_frame: u64,
    /// Bytes of the largest header block, and of the current one, with the headers of their frames.
    largest_block: u64,
    block: u64,
    /// Whether the values of an entry's name keep their buffers, for the last 128 entries. The lowest
    /// bit is the newest entry.
    keep_buffers: u128,
    /// Least bytes of all entries that were stored.
    stored: u64,
    /// The entries that keep a buffer and may be in the table.
    kept: VecDeque<KeptBuffer>,
}

/// A buffer that an entry keeps.
#[derive(Clone, Copy, Debug)]
struct KeptBuffer {
    /// [`HeaderTable::stored`] before the entry.
    stored_before: u64,
    bytes: u64,
}

impl HeaderTable {
    /// Begins a frame without a part of a header block. With its header it has `bytes` bytes.
    pub(super) fn begin_frame(&mut self, bytes: usize) {
        self.largest_frame = self.largest_frame.max(bytes as u64);
        self.payload = HeaderPayload::default();
    }

    /// Begins a HEADERS frame with `length` bytes of payload, and `bytes` in all.
    pub(super) fn begin_headers(&mut self, bytes: usize, length: usize, flags: u8, stream: u32) {
        self.block = 0;
        self.field = HeaderField::default();
        self.begin_continuation(bytes, length);
        self.payload.begin(flags, stream);
    }

    /// Begins a CONTINUATION frame with `length` bytes of payload, and `bytes` in all.
    pub(super) fn begin_continuation(&mut self, bytes: usize, length: usize) {
        self.begin_frame(bytes);
        self.block += bytes as u64;
        self.largest_block = self.largest_block.max(self.block);
        self.payload.fragment_left = length;
    }

    /// Reads a part of the payload of the frame that was begun last. Returns false for a field with an
    /// empty name: the connection must then be closed. h2 accepts none, but reads such a field before
    /// CONTINUATION a second time, from the middle.
    pub(super) fn read(&mut self, payload: &[u8]) -> bool {
        let mut bytes = self.payload.fragment(payload);
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = rest;
            match self.field.next {
                NextByte::Field => {
                    if self.field.begin(byte) {
                        self.end_index();
                    }
                }
                NextByte::Index => {
                    if self.field.continue_number(byte) {
                        self.end_index();
                    }
                }
                NextByte::Length => {
                    self.field.is_huffman = byte & 0x80 != 0;
                    self.field.next = NextByte::MoreLength;
                    if self.field.begin_number(byte, 0x7f) && !self.begin_text() {
                        return false;
                    }
                }
                NextByte::MoreLength => {
                    if self.field.continue_number(byte) && !self.begin_text() {
                        return false;
                    }
                }
                NextByte::Text => {
                    bytes = self.field.read_text(byte, rest);
                    if self.field.text_left == 0 {
                        self.end_text();
                    }
                }
            }
        }
        true
    }

    /// The most bytes of input that h2 keeps, in addition to what every connection counts: 16 KiB of
    /// read buffer and the smallest buffer for Huffman codes.
    pub(super) fn kept_bytes(&self) -> u64 {
        let entries: u64 = self.kept.iter().map(|buffer| buffer.bytes).sum();
        let read = (BUFFER_GROWTH * self.largest_frame).saturating_sub(2 * READ_BUFFER_BYTES);
        let decoded = (BUFFER_GROWTH * self.largest_block).saturating_sub(HUFFMAN_BUFFER_BYTES);
        entries + read + decoded
    }

    fn end_index(&mut self) {
        let HeaderField { has_texts, number: index, .. } = self.field;
        self.field.next = if has_texts { NextByte::Length } else { NextByte::Field };
        self.field.is_name = index == 0;
        self.field.keeps_buffer = match index {
            // `:authority`, `:path` and `:scheme`.
            1 | 4..=7 => true,
            0..=STATIC_ENTRIES => false,
            _ => {
                let newer = u32::try_from(index - STATIC_ENTRIES - 1).unwrap_or(u32::MAX);
                self.keep_buffers.checked_shr(newer).is_some_and(|bits| bits & 1 == 1)
            }
        };
    }

    /// Begins the text whose length was read. Returns false for an empty name.
    fn begin_text(&mut self) -> bool {
        self.field.text_left = self.field.number;
        self.field.next = NextByte::Text;
        if self.field.number > 0 {
            return true;
        }
        let is_value = !self.field.is_name;
        self.end_text();
        is_value
    }

    fn end_text(&mut self) {
        if self.field.is_name {
            self.field.is_name = false;
            self.field.next = NextByte::Length;
            return;
        }
        self.field.next = NextByte::Field;
        if self.field.is_stored {
            self.store();
        }
    }

    /// Stores the field whose value was read.
    fn store(&mut self) {
        let HeaderField { number: length, is_huffman, keeps_buffer, .. } = self.field;
        let text = if is_huffman { length / BYTES_PER_SYMBOL } else { length };
        let stored_before = self.stored;
        self.stored += ENTRY_BYTES + text as u64;
        self.keep_buffers = self.keep_buffers << 1 | u128::from(keeps_buffer);
        if keeps_buffer {
            let (least, held) = match is_huffman {
                true => (HUFFMAN_BUFFER_BYTES, self.largest_block),
                false => (READ_BUFFER_BYTES, self.largest_frame.max(self.largest_block)),
            };
            let bytes = least.max(BUFFER_GROWTH * held);
            self.kept.push_back(KeptBuffer { stored_before, bytes });
        }
        while let Some(oldest) = self.kept.front()
            && self.stored - oldest.stored_before > TABLE_BYTES
        {
            self.kept.pop_front();
        }
    }
}

/// The part of a header block in the payload of a frame.
#[derive(Debug, Default)]
struct HeaderPayload {
    /// Bytes before the part: the length of the padding, and the priority.
    prefix_left: usize,
    is_padded: bool,
    /// The dependency and the weight, as far as they were read.
    priority: u64,
    stream: u32,
    fragment_left: usize,
}

impl HeaderPayload {
    /// Begins a HEADERS frame. `fragment_left` is the length of its payload.
    fn begin(&mut self, flags: u8, stream: u32) {
        self.is_padded = flags & PADDED != 0;
        let priority = if flags & WITH_PRIORITY != 0 { 5 } else { 0 };
        self.prefix_left = usize::from(self.is_padded) + priority;
        self.fragment_left = self.fragment_left.saturating_sub(self.prefix_left);
        self.stream = stream;
    }

    /// The bytes of `payload` that belong to the header block.
    fn fragment<'p>(&mut self, mut payload: &'p [u8]) -> &'p [u8] {
        while self.prefix_left > 0 {
            let Some((&byte, rest)) = payload.split_first() else { return &[] };
            payload = rest;
            self.prefix_left -= 1;
            if std::mem::take(&mut self.is_padded) {
                self.fragment_left = self.fragment_left.saturating_sub(usize::from(byte));
                continue;
            }
            self.priority = self.priority << 8 | u64::from(byte);
            let dependency = self.priority >> 8 & 0x7fff_ffff;
            if self.prefix_left == 0 && dependency == u64::from(self.stream) {
                // h2 resets a stream that depends on itself, and does not read its headers.
                self.fragment_left = 0;
            }
        }
        let (fragment, _) = payload.split_at(self.fragment_left.min(payload.len()));
        self.fragment_left -= fragment.len();
        fragment
    }
}

/// The next byte of a header block.
#[derive(Clone, Copy, Debug, Default)]
enum NextByte {
    /// The first byte of a field, or of a change of the size of the table.
    #[default]
    Field,
    /// More of the index that the first byte has begun.
    Index,
    /// The first byte of the length of a text.
    Length,
    /// More of that length.
    MoreLength,
    Text,
}

/// The field of a header block that is being read.
#[derive(Debug, Default)]
struct HeaderField {
    next: NextByte,
    /// The index, or the length of the text, as far as it was read.
    number: usize,
    shift: u32,
    has_texts: bool,
    is_stored: bool,
    /// Whether the text is the name.
    is_name: bool,
    keeps_buffer: bool,
    is_huffman: bool,
    text_left: usize,
}

impl HeaderField {
    /// Begins with the first byte of a field (RFC 7541, section 6). Returns whether its index is
    /// complete.
    fn begin(&mut self, byte: u8) -> bool {
        let (has_texts, is_stored, mask) = match byte {
            0x80.. => (false, false, 0x7f),
            0x40.. => (true, true, 0x3f),
            0x20.. => (false, false, 0x1f),
            _ => (true, false, 0x0f),
        };
        (self.has_texts, self.is_stored, self.next) = (has_texts, is_stored, NextByte::Index);
        self.begin_number(byte, mask)
    }

    /// Begins a number in the bits of `mask` (RFC 7541, section 5.1). Returns whether it is complete.
    fn begin_number(&mut self, byte: u8, mask: u8) -> bool {
        self.number = usize::from(byte & mask);
        self.shift = 0;
        byte & mask < mask
    }

    /// Continues a number. h2 closes the connection for one of more than five bytes.
    fn continue_number(&mut self, byte: u8) -> bool {
        self.number = self.number.saturating_add(usize::from(byte & 0x7f) << self.shift);
        self.shift = (self.shift + 7).min(28);
        byte & 0x80 == 0
    }

    /// Reads a text that continues with `byte` and `rest`. Returns the bytes after the text.
    fn read_text<'b>(&mut self, byte: u8, rest: &'b [u8]) -> &'b [u8] {
        if self.is_name && self.text_left == self.number {
            // A colon, whose Huffman code has 7 bits.
            let colon = if self.is_huffman { byte >> 1 == 0x5c } else { byte == b':' };
            self.keeps_buffer = colon;
        }
        let (text, rest) = rest.split_at(rest.len().min(self.text_left - 1));
        self.text_left -= 1 + text.len();
        rest
    }
}

#[cfg(test)]
mod tests;
