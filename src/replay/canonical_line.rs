//! Reads lines that are exactly as the decision log writes them: these fields in this order, without
//! blanks, and texts without escapes. Nearly all lines are. Others need a parser of JSON, which takes
//! longer.

use super::call_batch::{DESCRIPTORS_MAX, ENTRIES_MAX, LAST_INSTANT};
use super::line_call::{CallDescriptor, EntryPlace, LineCall, TextPlace};
use crate::decision::Code;
use crate::descriptor::LEASE_KEY;
use crate::limit::{HITS_END, Override, Unit};

/// Reads a line without its newline into `call`, and returns its text. `None` if the line has another
/// form, even if it is a valid record, or if no server would decide the call. `call` then has no meaning.
pub(super) fn read<'l>(line: &'l [u8], call: &mut LineCall) -> Option<&'l str> {
    let text = std::str::from_utf8(line).ok()?;
    call.clear();
    let mut line = Unread { bytes: line, at: 0 };
    line.expect("{\"at\":")?;
    call.at = line.number().filter(|at| *at <= LAST_INSTANT)?;
    line.expect(",\"domain\":\"")?;
    call.domain = line.text().filter(|domain| domain.start < domain.end)?;
    line.expect(",\"hits\":")?;
    call.hits = u32::try_from(line.number()?).ok()?;
    line.expect(",\"descriptors\":[")?;
    loop {
        descriptor(&mut line, call)?;
        if !line.starts_with(",") {
            break;
        }
    }
    line.expect("]")?;
    call.code = Some(code(&mut line)?);
    if line.starts_with(",\"trace\":\"") {
        line.text()?;
    }
    line.expect("}")?;
    let is_whole = line.at == line.bytes.len() && call.descriptors.len() <= DESCRIPTORS_MAX;
    is_whole.then_some(text)
}

fn descriptor(line: &mut Unread<'_>, call: &mut LineCall) -> Option<()> {
    line.expect("{\"entries\":[")?;
    let first_entry = call.entries.len();
    if !line.starts_with("]") {
        entry(line, call)?;
        while line.starts_with(",") {
            entry(line, call)?;
        }
        line.expect("]")?;
    }
    let entries_end = call.entries.len();
    if entries_end - first_entry > ENTRIES_MAX {
        return None;
    }
    let hits_addend = match line.starts_with(",\"hits\":") {
        true => Some(line.number().filter(|hits| *hits < HITS_END)?),
        false => None,
    };
    let is_negative_hits = line.starts_with(",\"negative\":true");
    let limit = if line.starts_with(",\"limit\":{") { Some(limit(line)?) } else { None };
    let recorded = Some(code(line)?);
    if line.starts_with(",\"rule\":\"") {
        line.text()?;
    }
    line.expect(",\"reason\":\"")?;
    line.text()?;
    if line.starts_with(",\"remaining\":") {
        line.number()?;
    }
    if line.starts_with(",\"lease\":\"") {
        let lease = line.text()?;
        call.lease.get_or_insert(lease);
    }
    if line.starts_with(",\"what_if\":\"") {
        line.text()?;
    }
    line.expect("}")?;
    let (first_entry, entries_end) = (first_entry as u32, entries_end as u32);
    call.descriptors.push(CallDescriptor {
        first_entry,
        entries_end,
        limit,
        hits_addend,
        is_negative_hits,
        recorded,
    });
    Some(())
}

fn entry(line: &mut Unread<'_>, call: &mut LineCall) -> Option<()> {
    line.expect("[\"")?;
    let key = line.text().filter(|key| key.start < key.end)?;
    line.expect(",\"")?;
    let value = line.text()?;
    line.expect("]")?;
    call.names_lease |= line.bytes_of(key) == LEASE_KEY.as_bytes();
    call.entries.push(EntryPlace { key, value });
    Some(())
}

fn limit(line: &mut Unread<'_>) -> Option<Override> {
    line.expect("\"requests_per_unit\":")?;
    let requests_per_unit = u32::try_from(line.number()?).ok()?;
    line.expect(",\"unit\":\"")?;
    let name = line.text()?;
    let name = line.bytes_of(name);
    let unit = Unit::ALL.into_iter().find(|unit| unit.name().as_bytes() == name)?;
    line.expect("}")?;
    Some(Override { requests_per_unit, unit })
}

fn code(line: &mut Unread<'_>) -> Option<Code> {
    line.expect(",\"code\":\"")?;
    let name = line.text()?;
    let name = line.bytes_of(name);
    [Code::Ok, Code::OverLimit].into_iter().find(|code| code.name().as_bytes() == name)
}

/// A line of which the first bytes are read. The line is UTF-8, and texts end before a quote, so their
/// places are those of characters.
struct Unread<'l> {
    bytes: &'l [u8],
    /// The number of bytes that are read.
    at: usize,
}

/// The most digits that [`Unread::number`] reads. A number with them is below 2^64.
const DIGITS_MAX: usize = 19;

impl<'l> Unread<'l> {
    /// Takes `part` from the start. `None` if the rest starts differently.
    #[inline]
    fn expect(&mut self, part: &str) -> Option<()> {
        self.starts_with(part).then_some(())
    }

    /// Takes `part` from the start, if the rest starts with it.
    #[inline]
    fn starts_with(&mut self, part: &str) -> bool {
        let starts = self.bytes[self.at..].starts_with(part.as_bytes());
        if starts {
            self.at += part.len();
        }
        starts
    }

    /// Takes a whole number, as JSON writes it: without a sign and without leading zeros. `None` for one
    /// with more than [`DIGITS_MAX`] digits.
    fn number(&mut self) -> Option<u64> {
        let rest = &self.bytes[self.at..];
        let (mut number, mut digits) = (0_u64, 0);
        while let Some(byte @ b'0'..=b'9') = rest.get(digits).copied() {
            if digits == DIGITS_MAX {
                return None;
            }
            number = number * 10 + u64::from(byte - b'0');
            digits += 1;
        }
        if digits == 0 || (digits > 1 && rest[0] == b'0') {
            return None;
        }
        self.at += digits;
        Some(number)
    }

    /// Takes a text and the quote behind it. `None` for a text that JSON escapes.
    #[inline]
    fn text(&mut self) -> Option<TextPlace> {
        let start = self.at;
        let end = start + text_length(&self.bytes[start..])?;
        if self.bytes[end] != b'"' {
            return None;
        }
        self.at = end + 1;
        Some(TextPlace { start: start as u32, end: end as u32 })
    }

    fn bytes_of(&self, place: TextPlace) -> &'l [u8] {
        &self.bytes[place.start as usize..place.end as usize]
    }
}

/// The number of bytes before the first quote, backslash or control character; `None` without one. Reads
/// eight bytes at a time.
#[inline]
fn text_length(bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    while let Some(eight) = bytes[length..].first_chunk() {
        let ends = text_ends(u64::from_le_bytes(*eight));
        if ends != 0 {
            return Some(length + ends.trailing_zeros() as usize / 8);
        }
        length += 8;
    }
    let is_end = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    bytes[length..].iter().position(is_end).map(|rest| length + rest)
}

/// The high bit of each byte at which a text may end. Bytes after the first such byte may have the bit
/// too, because a subtraction below borrows from the next byte.
#[inline]
fn text_ends(eight: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH_BITS: u64 = ONES * 0x80;
    let zeros = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes;
    let quotes = zeros(eight ^ (ONES * b'"' as u64));
    let backslashes = zeros(eight ^ (ONES * b'\\' as u64));
    let controls = eight.wrapping_sub(ONES * 0x20) & !eight;
    (quotes | backslashes | controls) & HIGH_BITS
}

#[cfg(test)]
mod tests;
