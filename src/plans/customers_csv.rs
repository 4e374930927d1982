//! Reads customers from lines `customer,plan`, for files of millions.
//!
//! The format is that of RFC 4180 without line breaks in fields: a field with a comma or a quote is in
//! quotes, and a quote in it is doubled. A first line `customer,plan`, empty lines, and lines that
//! start with `#` are skipped. Problems name the line only, because customers may be secret keys.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

use super::line_blocks::{LINE_BYTES_MAX, LineBlocks};

/// Bytes of the file that are read and parsed at once.
pub(super) const BLOCK_BYTES: usize = 128 << 10;

/// Bytes that are counted together. A sum of bytes has room for 255.
const COUNTED_BYTES: usize = 192;

/// The optional first line.
const HEAD: (&str, &str) = ("customer", "plan");

/// Why customers cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CustomersError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A line is wrong.
    #[error("line {line}: {what}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// The problem, and the fix.
        what: String,
    },
}

/// Passes every customer of `file` with its plan to `add`. Keeps only one block of lines in memory.
///
/// # Errors
///
/// The first line that is wrong or that `add` refuses, or an error of reading.
pub fn read_customers(
    file: impl Read,
    mut add: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<(), CustomersError> {
    let mut blocks = LineBlocks::new(file, BLOCK_BYTES);
    let (mut block, mut line) = (Vec::new(), 1);
    loop {
        blocks.next_into(&mut block)?;
        if block.is_empty() {
            return Ok(());
        }
        line = read_block(&block, line, |_, customer, plan| add(customer, plan))?;
    }
}

/// Passes every customer of whole lines to `add`, with the number of its line and its plan.
/// `first_line` is the number of the first line. Returns the number of the line after the last one.
///
/// # Errors
///
/// The first line that is wrong or that `add` refuses.
pub(super) fn read_block(
    lines: &[u8],
    first_line: u64,
    mut add: impl FnMut(u64, &str, &str) -> Result<(), String>,
) -> Result<u64, CustomersError> {
    let mut line = first_line;
    for bytes in lines.split_inclusive(|byte| *byte == b'\n') {
        let read = read_line(bytes, line, |customer, plan| add(line, customer, plan));
        read.map_err(|what| CustomersError::Line { line, what })?;
        line += 1;
    }
    Ok(line)
}

/// The number of lines, which is at least that of the customers.
///
/// # Errors
///
/// An error of reading.
pub fn count_lines(mut lines: impl BufRead) -> io::Result<usize> {
    let mut count = 0;
    let mut is_open = false;
    loop {
        let chunk = lines.fill_buf()?;
        let Some(last) = chunk.last() else { break };
        is_open = *last != b'\n';
        count += line_ends(chunk);
        let length = chunk.len();
        lines.consume(length);
    }
    Ok(count + usize::from(is_open))
}

/// The number of line ends.
pub(super) fn line_ends(bytes: &[u8]) -> usize {
    // The compiler adds many bytes at once, which it does not do with numbers of 64 bits.
    let of_chunk = |chunk: &[u8]| chunk.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    bytes.chunks(COUNTED_BYTES).map(|chunk| usize::from(of_chunk(chunk))).sum()
}

fn read_line(
    bytes: &[u8],
    line: u64,
    add: impl FnOnce(&str, &str) -> Result<(), String>,
) -> Result<(), String> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    if bytes.len() > LINE_BYTES_MAX {
        return Err(format!("more than {LINE_BYTES_MAX} bytes; write one customer per line"));
    }
    let text = str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text; save it as UTF-8")?;
    let text = if line == 1 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
    if text.is_empty() || text.starts_with('#') {
        return Ok(());
    }
    let (customer, rest) = field(text)?;
    let Some(rest) = rest.strip_prefix(',') else {
        return Err("the plan is missing; write `customer,plan`".to_owned());
    };
    let (plan, rest) = field(rest)?;
    if !rest.is_empty() {
        let what = "text follows the plan; write `customer,plan`";
        return Err(format!("{what}, and a field with a comma in quotes"));
    }
    if line == 1 && (&*customer, &*plan) == HEAD {
        return Ok(());
    }
    add(&customer, &plan)
}

/// The first field of `text`, and the text after it.
fn field(text: &str) -> Result<(Cow<'_, str>, &str), String> {
    let Some(quoted) = text.strip_prefix('"') else {
        // One pass for both. They are of one byte, so the text can be split there.
        let end = text.bytes().position(|byte| byte == b',' || byte == b'"');
        let (field, rest) = text.split_at(end.unwrap_or(text.len()));
        if rest.starts_with('"') {
            let what = "a quote inside of a field";
            return Err(format!("{what}; write the field in quotes, and the quote twice"));
        }
        return Ok((Cow::Borrowed(field), rest));
    };
    let mut field = Cow::Borrowed("");
    let mut rest = quoted;
    loop {
        let Some((part, after)) = rest.split_once('"') else {
            return Err("a quote is not closed in this line; add the second one".to_owned());
        };
        field += part;
        match after.strip_prefix('"') {
            Some(more) => {
                field += "\"";
                rest = more;
            }
            None if after.is_empty() || after.starts_with(',') => return Ok((field, after)),
            None => {
                let what = "text follows a closing quote";
                return Err(format!("{what}; write a quote inside of quotes twice"));
            }
        }
    }
}
