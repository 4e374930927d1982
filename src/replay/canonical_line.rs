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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decision_record::RecordedRequest;
    use crate::replay::call_batch::{CallBatch, problem};
    use crate::time::Micros;

    /// A line with all fields.
    const FULL: &str = concat!(
        r#"{"at":1772366400000000,"domain":"d","hits":7,"descriptors":["#,
        r#"{"entries":[["user","grün"],["x",""]],"hits":0,"negative":true,"#,
        r#""limit":{"requests_per_unit":5,"unit":"minute"},"code":"OVER_LIMIT","rule":"a","#,
        r#""reason":"counted","remaining":0,"lease":"00000000000000aa","what_if":"OK"},"#,
        r#"{"entries":[],"code":"OK","reason":"no_rule"}],"code":"OVER_LIMIT","trace":"4b"}"#,
    );

    /// The call of a line, as text.
    fn by_bytes(line: &[u8]) -> Option<String> {
        let mut call = LineCall::default();
        let text = read(line, &mut call)?;
        let mut batch = CallBatch::default();
        batch.push_line(text, &call, Micros(call.at));
        Some(shown(&batch))
    }

    /// The same by a parser of JSON; `None` if no server would decide the call.
    fn by_json(line: &[u8]) -> Option<String> {
        let call = RecordedRequest::from_line(line).ok()?;
        if problem(&call).is_some() {
            return None;
        }
        let mut batch = CallBatch::default();
        batch.push(&call, Micros(call.at));
        Some(shown(&batch))
    }

    fn shown(batch: &CallBatch) -> String {
        let call = &batch.calls()[0];
        let codes: Vec<_> = call.descriptors().map(|index| batch.recorded_code(index)).collect();
        let lease = (batch.lease(call), call.names_lease);
        let request = batch.with_request(call, |request| format!("{request:?}"));
        format!("{:?} {request} {lease:?} {:?} {codes:?}", call.at, call.recorded)
    }

    #[test]
    fn canonical_lines_are_read_as_json() {
        let without = |part: &str| {
            assert!(FULL.contains(part), "{part}");
            FULL.replacen(part, "", 1)
        };
        for line in [
            FULL.to_owned(),
            without(r#","trace":"4b""#),
            without(r#","what_if":"OK""#),
            without(r#","lease":"00000000000000aa""#),
            without(r#","remaining":0"#),
            without(r#","rule":"a""#),
            without(r#","limit":{"requests_per_unit":5,"unit":"minute"}"#),
            without(r#","negative":true"#),
            without(r#","hits":0"#),
            without(r#",{"entries":[],"code":"OK","reason":"no_rule"}"#),
            FULL.replacen("\"user\"", "\"lease\"", 1),
            FULL.replacen(":1772366400000000", ":0", 1),
            FULL.replacen(":1772366400000000", &format!(":{LAST_INSTANT}"), 1),
            FULL.replacen("\"hits\":0", &format!("\"hits\":{}", HITS_END - 1), 1),
        ] {
            let found = by_bytes(line.as_bytes());
            assert!(found.is_some(), "{line}");
            assert_eq!(found, by_json(line.as_bytes()), "{line}");
        }
    }

    /// These are read as JSON, or are errors of JSON.
    #[test]
    fn other_lines_are_left_to_json() {
        let changed = |from: &str, to: &str| {
            assert!(FULL.contains(from), "{from}");
            FULL.replacen(from, to, 1)
        };
        for line in [
            String::new(),
            format!(" {FULL}"),
            format!("{FULL} "),
            format!("{FULL}\r"),
            changed(r#""d""#, r#""d\n""#),
            changed(r#""d""#, "\"d\n\""),
            changed(r#""d""#, "\"d\u{1}\""),
            changed(":1772366400000000", ":017"),
            changed(":1772366400000000", ":-1"),
            changed(":1772366400000000", ":1.0"),
            changed(":1772366400000000", ":1e3"),
            changed(":1772366400000000", ":99999999999999999999"),
            changed(":1772366400000000", ":"),
            changed(r#""hits":7"#, r#""hits":4294967296"#),
            changed("minute", "Minute"),
            changed("true", "false"),
            changed("OVER_LIMIT", "DENIED"),
            changed(r#""code":"OK","#, ""),
            changed("],[", "]["),
            changed(r#""d""#, r#""""#),
            changed("user", ""),
            changed(":1772366400000000", &format!(":{}", LAST_INSTANT + 1)),
            changed(r#""hits":0"#, &format!("\"hits\":{HITS_END}")),
            r#"{"at":0,"domain":"d","hits":0,"descriptors":[],"code":"OK"}"#.to_owned(),
            FULL[..FULL.len() - 1].to_owned(),
        ] {
            assert_eq!(by_bytes(line.as_bytes()), None, "{line}");
        }
        assert_eq!(by_bytes(&[FULL.as_bytes(), b"\xff"].concat()), None);
        assert_eq!(by_bytes(&FULL.replace('d', "\u{0}").into_bytes()), None);
    }

    /// Calls over a bound of requests are left to JSON, which has the text of the problem.
    #[test]
    fn calls_over_a_bound_are_left_to_json() {
        let descriptors = |count: usize, entries: usize| {
            let entries = vec![r#"["k",""]"#; entries].join(",");
            let one = format!(r#"{{"entries":[{entries}],"code":"OK","reason":"counted"}}"#);
            let all = vec![one.as_str(); count].join(",");
            format!(r#"{{"at":1,"domain":"d","hits":0,"descriptors":[{all}],"code":"OK"}}"#)
        };
        for (count, entries, is_read) in [
            (DESCRIPTORS_MAX, 0, true),
            (DESCRIPTORS_MAX + 1, 0, false),
            (1, ENTRIES_MAX, true),
            (1, ENTRIES_MAX + 1, false),
        ] {
            let line = descriptors(count, entries);
            let found = by_bytes(line.as_bytes());
            assert_eq!(found.is_some(), is_read, "{count} {entries}");
            assert_eq!(found, by_json(line.as_bytes()), "{count} {entries}");
        }
    }

    proptest! {
        /// Eight bytes at a time find what one at a time finds.
        #[test]
        fn the_end_of_a_text_is_exact(
            bytes in prop::collection::vec(
                prop_oneof![any::<u8>(), Just(b'"'), Just(b'\\'), 0x1e..0x23_u8, Just(0x80), Just(0xff)],
                0..40,
            ),
        ) {
            let is_end = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
            prop_assert_eq!(text_length(&bytes), bytes.iter().position(is_end));
        }

        /// Whatever is read is read alike by the parser of JSON.
        #[test]
        fn changed_lines_agree_with_json(
            changes in prop::collection::vec((0..FULL.len(), any::<u8>(), 0..4_u8), 1..4),
        ) {
            let mut line = FULL.as_bytes().to_vec();
            for (at, byte, how) in changes {
                let at = at.min(line.len() - 1);
                match how {
                    0 => line[at] = byte,
                    1 => line.insert(at, byte),
                    2 => {
                        let _ = line.remove(at);
                    }
                    _ => line[at] = line[(at * 7 + 1) % line.len()],
                }
            }
            if let Some(found) = by_bytes(&line) {
                prop_assert_eq!(Some(found), by_json(&line));
            }
        }

        /// So are lines with any texts and numbers.
        #[test]
        fn any_values_agree_with_json(
            domain: String,
            entries in prop::collection::vec((any::<String>(), "[a-z]{0,3}"), 0..4),
            numbers: [u64; 4],
        ) {
            let [at, hits, own, remaining] = numbers;
            let text = |text: &str| serde_json::to_string(text).expect("a text");
            let pairs: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("[{},{}]", text(key), text(value)))
                .collect();
            let start = format!(r#"{{"at":{at},"domain":{},"hits":{hits}"#, text(&domain));
            let entries = format!(r#"{{"entries":[{}],"hits":{own}"#, pairs.join(","));
            let code = format!(r#""code":"OK","reason":"counted","remaining":{remaining}"#);
            let line =
                format!(r#"{start},"descriptors":[{entries},{code}}}],"code":"OK"}}"#);
            if let Some(found) = by_bytes(line.as_bytes()) {
                prop_assert_eq!(Some(found), by_json(line.as_bytes()));
            }
        }
    }
}
