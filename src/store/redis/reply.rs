//! Replies of Redis (RESP 2), read as their bytes arrive and within bounds.
//!
//! Reading has two passes. The first one finds the end of a reply. It stores one number per open
//! array, and reads no byte twice. It rejects a reply that is too long before the bytes arrive. The
//! second pass turns the complete bytes into a [`Reply`].
//!
//! **Invariant:** whatever bytes arrive, a reader stores at most one reply of its [`ReplyBound`] and
//! one read of the socket, and no recursion is deeper than [`DEPTH_MAX`]. All readers together
//! store no more than their budget and one read each.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

mod budget;

use budget::BudgetShare;

/// The most arrays inside each other. `CLUSTER SLOTS` has four.
const DEPTH_MAX: usize = 8;

/// Room for one read of the socket, in bytes.
const READ_BYTES: usize = 16 << 10;

/// The largest empty buffer that is kept for the next reply, in bytes.
const IDLE_BYTES_MAX: usize = 256 << 10;

/// The largest reply that a command may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyBound {
    /// Bytes as sent.
    pub(super) bytes: usize,
    /// Elements of all its arrays. An element takes up to 40 bytes of memory.
    pub(super) elements: usize,
}

impl ReplyBound {
    /// The bound of most commands. The largest reply of a script has 360 KB: 1024 steps of 16 tiers.
    pub(super) const USUAL: ReplyBound = ReplyBound { bytes: 1 << 20, elements: 1 << 14 };

    /// The bound of `CLUSTER SLOTS`: 10 000 ranges of hash slots with three nodes each.
    pub(super) const TOPOLOGY: ReplyBound = ReplyBound { bytes: 8 << 20, elements: 1 << 18 };
}

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A string.
    Text(Bytes),
    /// An error: its text.
    Error(Bytes),
    /// An integer.
    Integer(i64),
    /// A missing string or array.
    Nil,
    /// An array.
    Array(Vec<Reply>),
}

/// Bytes that are no reply within the bound. The connection must be closed, because the start of the
/// next reply is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReplyError {
    /// More bytes than the bound, announced or sent.
    #[error("Redis sent a reply of more than {0} bytes")]
    TooLong(usize),
    /// More elements than the bound, announced or sent.
    #[error("Redis sent a reply of more than {0} elements")]
    TooMany(usize),
    /// The incomplete replies of all connections fill their budget.
    #[error("Redis sends too many large replies at once")]
    NoRoom,
    /// More than [`DEPTH_MAX`] arrays inside each other.
    #[error("Redis sent more than {} arrays inside each other", DEPTH_MAX)]
    TooDeep,
    /// Bytes that are no reply of RESP 2.
    #[error("Redis sent bytes that are no reply; check that redis.url names a Redis server")]
    Malformed,
}

impl Reply {
    /// The text of a string in UTF-8.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Reply::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// An integer, or a string of digits, that is not negative.
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Reply::Integer(number) => u64::try_from(*number).ok(),
            other => other.text()?.parse().ok(),
        }
    }
}

/// Reads the replies of one connection.
#[derive(Debug, Default)]
pub(super) struct ReplyReader {
    /// The bytes of the current reply, and possibly of later ones.
    buffer: BytesMut,
    /// How many bytes belong to complete elements of the current reply.
    framed: usize,
    /// Up to where the end of the next line was searched.
    searched: usize,
    /// The length at which the next string is complete; 0 if unknown.
    needed: usize,
    /// Missing elements of each open array, the innermost last.
    open: SmallVec<[usize; DEPTH_MAX]>,
    /// Elements that the arrays of the current reply have announced.
    elements: usize,
    /// The bytes of the current reply, without those of one read.
    share: BudgetShare,
}

impl ReplyReader {
    /// The buffer, with room for one read.
    pub(super) fn room(&mut self) -> &mut BytesMut {
        self.buffer.reserve(READ_BYTES);
        &mut self.buffer
    }

    /// Whether bytes have arrived that are not part of a returned reply.
    pub(super) fn has_bytes(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The next reply; `None` until all its bytes have arrived.
    ///
    /// # Errors
    /// [`ReplyError`] as soon as the bytes are no reply within `bound`, or the budget is full.
    pub(super) fn next(&mut self, bound: ReplyBound) -> Result<Option<Reply>, ReplyError> {
        if !self.frame(bound)? {
            let more = self.buffer.len().saturating_sub(READ_BYTES);
            return if self.share.grow_to(more) { Ok(None) } else { Err(ReplyError::NoRoom) };
        }
        self.share.clear();
        let bytes = self.buffer.split_to(self.framed).freeze();
        if self.buffer.is_empty() && self.buffer.capacity() > IDLE_BYTES_MAX {
            self.buffer = BytesMut::new();
        }
        (self.framed, self.searched, self.needed, self.elements) = (0, 0, 0, 0);
        let mut at = 0;
        element(&bytes, &mut at).map(Some)
    }

    /// Frames elements up to the end of the reply. Returns whether it was reached.
    fn frame(&mut self, bound: ReplyBound) -> Result<bool, ReplyError> {
        loop {
            if self.buffer.len() < self.needed {
                return Ok(false);
            }
            let Some(line_end) = self.line_end(bound)? else { return Ok(false) };
            let (kind, rest) = line(&self.buffer[self.framed..line_end])?;
            let mut end = line_end;
            match kind {
                b'+' | b'-' => {}
                b':' => {
                    integer(rest)?;
                }
                b'$' => {
                    if let Some(length) = length(rest)? {
                        // Checked before the sum, which could overflow, and before the bytes arrive.
                        if length.saturating_add(2) > bound.bytes.saturating_sub(line_end) {
                            return Err(ReplyError::TooLong(bound.bytes));
                        }
                        end = line_end + length + 2;
                        if self.buffer.len() < end {
                            self.needed = end;
                            return Ok(false);
                        }
                        if !self.buffer[..end].ends_with(b"\r\n") {
                            return Err(ReplyError::Malformed);
                        }
                    }
                }
                b'*' => {
                    if let Some(count @ 1..) = length(rest)? {
                        self.begin_array(count, bound)?;
                        self.begin(line_end);
                        continue;
                    }
                }
                _ => return Err(ReplyError::Malformed),
            }
            self.begin(end);
            if self.is_last_element() {
                return Ok(true);
            }
        }
    }

    /// The end of the line that starts at `framed`, after its CR and LF; `None` until it arrives.
    fn line_end(&mut self, bound: ReplyBound) -> Result<Option<usize>, ReplyError> {
        let from = self.searched.max(self.framed);
        let found = self.buffer[from..].iter().position(|byte| *byte == b'\n');
        self.searched = found.map_or(self.buffer.len(), |at| from + at);
        if self.searched >= bound.bytes {
            return Err(ReplyError::TooLong(bound.bytes));
        }
        Ok(found.map(|at| from + at + 1))
    }

    /// Begins an array of `count` elements.
    fn begin_array(&mut self, count: usize, bound: ReplyBound) -> Result<(), ReplyError> {
        if count > bound.elements.saturating_sub(self.elements) {
            return Err(ReplyError::TooMany(bound.elements));
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(ReplyError::TooDeep);
        }
        self.elements += count;
        self.open.push(count);
        Ok(())
    }

    /// Begins the element at byte `at`.
    fn begin(&mut self, at: usize) {
        (self.framed, self.searched, self.needed) = (at, at, 0);
    }

    /// Counts a complete element, and every array that it completes. Returns whether no array is
    /// open.
    fn is_last_element(&mut self) -> bool {
        while let Some(missing) = self.open.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }
}

/// The first byte of a line, and the rest without CR and LF.
fn line(bytes: &[u8]) -> Result<(u8, &[u8]), ReplyError> {
    let text = bytes.strip_suffix(b"\r\n").ok_or(ReplyError::Malformed)?;
    text.split_first().map(|(kind, rest)| (*kind, rest)).ok_or(ReplyError::Malformed)
}

fn integer(text: &[u8]) -> Result<i64, ReplyError> {
    let text = std::str::from_utf8(text).map_err(|_| ReplyError::Malformed)?;
    text.parse().map_err(|_| ReplyError::Malformed)
}

/// The length of a string or an array; `None` if it is missing, which is written as -1.
fn length(text: &[u8]) -> Result<Option<usize>, ReplyError> {
    match integer(text)? {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| ReplyError::Malformed),
    }
}

/// The element of a complete reply that starts at byte `at`, which moves to its end.
fn element(bytes: &Bytes, at: &mut usize) -> Result<Reply, ReplyError> {
    let rest = bytes.get(*at..).ok_or(ReplyError::Malformed)?;
    let line_length = rest.iter().position(|byte| *byte == b'\n').ok_or(ReplyError::Malformed)? + 1;
    let (kind, text) = line(&rest[..line_length])?;
    let text_start = *at + 1;
    *at += line_length;
    match kind {
        b'+' => Ok(Reply::Text(bytes.slice(text_start..text_start + text.len()))),
        b'-' => Ok(Reply::Error(bytes.slice(text_start..text_start + text.len()))),
        b':' => Ok(Reply::Integer(integer(text)?)),
        b'$' => {
            let Some(length) = length(text)? else { return Ok(Reply::Nil) };
            let (start, end) = (*at, *at + length);
            *at = end + 2;
            if end > bytes.len() {
                return Err(ReplyError::Malformed);
            }
            Ok(Reply::Text(bytes.slice(start..end)))
        }
        b'*' => {
            let Some(count) = length(text)? else { return Ok(Reply::Nil) };
            let mut items = Vec::with_capacity(count);
            for _ in 0..count {
                items.push(element(bytes, at)?);
            }
            Ok(Reply::Array(items))
        }
        _ => Err(ReplyError::Malformed),
    }
}

#[cfg(test)]
mod tests;
