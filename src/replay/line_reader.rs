//! Reads a recording line by line. A line has a bound, so a file without newlines needs no memory.

use std::io::{self, BufRead, BufReader, Read};

use crate::decision_record::LINE_BYTES_MAX;

/// Bytes that one call of the operating system reads.
const READ_BYTES: usize = 256 << 10;

/// The lines of `R`.
pub(super) struct LineReader<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    number: u64,
}

/// One line of a recording.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordedLine<'l> {
    /// The number of the line, counted from 1.
    pub(super) number: u64,
    /// The line without its newline; `None` if it is longer than [`LINE_BYTES_MAX`].
    pub(super) bytes: Option<&'l [u8]>,
}

impl<R: Read> LineReader<R> {
    /// The lines of `input`, which is read in large parts.
    pub(super) fn new(input: R) -> LineReader<R> {
        let input = BufReader::with_capacity(READ_BYTES, input);
        LineReader { input, line: Vec::new(), number: 0 }
    }

    /// The next line; `None` at the end of the input. The last line may lack its newline.
    ///
    /// # Errors
    ///
    /// The error of the input.
    pub(super) fn next_line(&mut self) -> io::Result<Option<RecordedLine<'_>>> {
        self.line.clear();
        let mut bounded = (&mut self.input).take(LINE_BYTES_MAX as u64);
        if bounded.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let number = self.number;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if self.line.len() == LINE_BYTES_MAX && self.input.skip_until(b'\n')? > 0 {
            return Ok(Some(RecordedLine { number, bytes: None }));
        }
        Ok(Some(RecordedLine { number, bytes: Some(&self.line) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number and the length of each line.
    fn lines(input: &[u8]) -> Vec<(u64, Option<usize>)> {
        let mut reader = LineReader::new(input);
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line().expect("memory has no errors") {
            lines.push((line.number, line.bytes.map(<[u8]>::len)));
        }
        lines
    }

    #[test]
    fn lines_end_at_newlines_and_at_the_end() {
        type Row = (&'static [u8], &'static [(u64, Option<usize>)]);
        let table: [Row; 5] = [
            (b"", &[]),
            (b"a", &[(1, Some(1))]),
            (b"a\n", &[(1, Some(1))]),
            (b"a\n\nbc", &[(1, Some(1)), (2, Some(0)), (3, Some(2))]),
            (b"\r\n\xff\0\n", &[(1, Some(1)), (2, Some(2))]),
        ];
        for (input, expected) in table {
            assert_eq!(lines(input), expected, "{input:?}");
        }
    }

    /// The bound includes the newline, as that of the decision log does. The reader continues after a
    /// line that is too long.
    #[test]
    fn a_line_over_the_bound_is_skipped() {
        let line = |length: usize, rest: &[u8]| [&vec![b'x'; length][..], rest].concat();
        for (input, expected) in [
            (line(LINE_BYTES_MAX - 1, b"\ny"), [Some(LINE_BYTES_MAX - 1), Some(1)]),
            (line(LINE_BYTES_MAX, b"\ny"), [None, Some(1)]),
            (line(3 * LINE_BYTES_MAX, b"\ny\n"), [None, Some(1)]),
        ] {
            let lengths: Vec<_> = lines(&input).into_iter().map(|(_, length)| length).collect();
            assert_eq!(lengths, expected);
        }
        assert_eq!(lines(&line(LINE_BYTES_MAX, b"")), [(1, Some(LINE_BYTES_MAX))]);
        assert_eq!(lines(&line(LINE_BYTES_MAX + 1, b"")), [(1, None)]);
    }

    /// The memory for a line does not grow with its length.
    #[test]
    fn an_endless_line_needs_bounded_memory() {
        let input = io::repeat(b'x').take(64 << 20);
        let mut reader = LineReader::new(input);
        let line = reader.next_line().expect("no errors").expect("a line");
        assert_eq!(line, RecordedLine { number: 1, bytes: None });
        assert!(reader.line.capacity() <= 2 * LINE_BYTES_MAX, "{}", reader.line.capacity());
        assert_eq!(reader.next_line().expect("no errors"), None);
    }
}
