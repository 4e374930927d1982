//! Reads a file in blocks of whole lines.

use std::io::{self, Read};

/// Longest line in bytes, without its end.
pub(super) const LINE_BYTES_MAX: usize = 16_384;

/// The blocks of a file.
pub(super) struct LineBlocks<R> {
    file: R,
    block_bytes: usize,
    /// The beginning of the next line, which was read with the last block.
    rest: Vec<u8>,
}

impl<R: Read> LineBlocks<R> {
    /// Blocks of about `block_bytes`, which must not be 0.
    pub(super) fn new(file: R, block_bytes: usize) -> LineBlocks<R> {
        LineBlocks { file, block_bytes, rest: Vec::new() }
    }

    /// Replaces `block` by the next lines. It is empty after the last line. The last line of the file
    /// may have no end. Otherwise, a block without the end of a line has a line that is too long.
    ///
    /// # Errors
    ///
    /// An error of reading.
    pub(super) fn next_into(&mut self, block: &mut Vec<u8>) -> io::Result<()> {
        block.clear();
        block.append(&mut self.rest);
        loop {
            let known = block.len();
            let mut more = (&mut self.file).take(self.block_bytes as u64);
            if more.read_to_end(block)? == 0 {
                return Ok(());
            }
            if let Some(last) = block[known..].iter().rposition(|byte| *byte == b'\n') {
                let end = known + last + 1;
                self.rest.extend_from_slice(&block[end..]);
                block.truncate(end);
                return Ok(());
            }
            // With room for the end of the line.
            if block.len() > LINE_BYTES_MAX + 2 {
                return Ok(());
            }
        }
    }
}
