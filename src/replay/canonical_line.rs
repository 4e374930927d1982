//! Reads lines that are exactly as the decision log writes them: these fields in this order, without
//! blanks, and texts without escapes. Nearly all lines are. Others need a parser of JSON, which takes
//! longer.

use std::borrow::Cow;

use crate::decision::Code;
use crate::decision_record::{RecordedDescriptor, RecordedEntry, RecordedRequest};
use crate::limit::{Override, Unit};

/// The call of a line without its newline. `None` if the line has another form, even if it is a valid
/// record.
pub(super) fn read(line: &[u8]) -> Option<RecordedRequest<'_>> {
    let mut line = Unread(std::str::from_utf8(line).ok()?);
    line.expect("{\"at\":")?;
    let at = line.number()?;
    line.expect(",\"domain\":\"")?;
    let domain = Cow::Borrowed(line.text()?);
    line.expect(",\"hits\":")?;
    let hits = u32::try_from(line.number()?).ok()?;
    line.expect(",\"descriptors\":[")?;
    let mut descriptors = Vec::with_capacity(1);
    if !line.starts_with("]") {
        descriptors.push(descriptor(&mut line)?);
        while line.starts_with(",") {
            descriptors.push(descriptor(&mut line)?);
        }
        line.expect("]")?;
    }
    let code = Some(code(&mut line)?);
    if line.starts_with(",\"trace\":\"") {
        line.text()?;
    }
    line.expect("}")?;
    line.0.is_empty().then_some(RecordedRequest { at, domain, hits, descriptors, code })
}

fn descriptor<'l>(line: &mut Unread<'l>) -> Option<RecordedDescriptor<'l>> {
    line.expect("{\"entries\":[")?;
    let mut entries = Vec::with_capacity(2);
    if !line.starts_with("]") {
        entries.push(entry(line)?);
        while line.starts_with(",") {
            entries.push(entry(line)?);
        }
        line.expect("]")?;
    }
    let hits = if line.starts_with(",\"hits\":") { Some(line.number()?) } else { None };
    let negative = line.starts_with(",\"negative\":true");
    let limit = if line.starts_with(",\"limit\":{") { Some(limit(line)?) } else { None };
    let code = Some(code(line)?);
    if line.starts_with(",\"rule\":\"") {
        line.text()?;
    }
    line.expect(",\"reason\":\"")?;
    line.text()?;
    if line.starts_with(",\"remaining\":") {
        line.number()?;
    }
    let lease =
        if line.starts_with(",\"lease\":\"") { Some(line.text()?.to_owned()) } else { None };
    if line.starts_with(",\"what_if\":\"") {
        line.text()?;
    }
    line.expect("}")?;
    Some(RecordedDescriptor { entries, hits, negative, limit, code, lease })
}

fn entry<'l>(line: &mut Unread<'l>) -> Option<RecordedEntry<'l>> {
    line.expect("[\"")?;
    let key = line.text()?;
    line.expect(",\"")?;
    let value = line.text()?;
    line.expect("]")?;
    Some(RecordedEntry(Cow::Borrowed(key), Cow::Borrowed(value)))
}

fn limit(line: &mut Unread<'_>) -> Option<Override> {
    line.expect("\"requests_per_unit\":")?;
    let requests_per_unit = u32::try_from(line.number()?).ok()?;
    line.expect(",\"unit\":\"")?;
    let name = line.text()?;
    let unit = Unit::ALL.into_iter().find(|unit| unit.name() == name)?;
    line.expect("}")?;
    Some(Override { requests_per_unit, unit })
}

fn code(line: &mut Unread<'_>) -> Option<Code> {
    line.expect(",\"code\":\"")?;
    match line.text()? {
        "OK" => Some(Code::Ok),
        "OVER_LIMIT" => Some(Code::OverLimit),
        _ => None,
    }
}

/// The rest of a line.
struct Unread<'l>(&'l str);

impl<'l> Unread<'l> {
    /// Takes `part` from the start. `None` if the rest starts differently.
    fn expect(&mut self, part: &str) -> Option<()> {
        self.starts_with(part).then_some(())
    }

    /// Takes `part` from the start, if the rest starts with it.
    fn starts_with(&mut self, part: &str) -> bool {
        let after = self.0.strip_prefix(part);
        if let Some(after) = after {
            self.0 = after;
        }
        after.is_some()
    }

    /// Takes a whole number, as JSON writes it: without a sign and without leading zeros.
    fn number(&mut self) -> Option<u64> {
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = self.0.split_at(digits);
        if number.starts_with('0') && digits > 1 {
            return None;
        }
        self.0 = after;
        number.parse().ok()
    }

    /// Takes a text and the quote behind it. `None` for a text that JSON escapes.
    fn text(&mut self) -> Option<&'l str> {
        let is_last = |byte: u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
        let length = self.0.bytes().position(is_last)?;
        let (text, after) = self.0.split_at(length);
        self.0 = after.strip_prefix('"')?;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A line with all fields.
    const FULL: &str = concat!(
        r#"{"at":1772366400000000,"domain":"d","hits":7,"descriptors":["#,
        r#"{"entries":[["user","grün"],["x",""]],"hits":0,"negative":true,"#,
        r#""limit":{"requests_per_unit":5,"unit":"minute"},"code":"OVER_LIMIT","rule":"a","#,
        r#""reason":"counted","remaining":0,"lease":"00000000000000aa","what_if":"OK"},"#,
        r#"{"entries":[],"code":"OK","reason":"no_rule"}],"code":"OVER_LIMIT","trace":"4b"}"#,
    );

    fn by_json(line: &[u8]) -> Option<RecordedRequest<'_>> {
        RecordedRequest::from_line(line).ok()
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
            r#"{"at":0,"domain":"","hits":0,"descriptors":[],"code":"OK"}"#.to_owned(),
        ] {
            let found = read(line.as_bytes());
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
            FULL[..FULL.len() - 1].to_owned(),
        ] {
            assert_eq!(read(line.as_bytes()), None, "{line}");
        }
        assert_eq!(read(&[FULL.as_bytes(), b"\xff"].concat()), None);
        assert_eq!(read(&FULL.replace('d', "\u{0}").into_bytes()), None);
    }

    proptest! {
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
            if let Some(found) = read(&line) {
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
            if let Some(found) = read(line.as_bytes()) {
                prop_assert_eq!(Some(found), by_json(line.as_bytes()));
            }
        }
    }
}
