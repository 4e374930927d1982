//! Tests that canonical lines are read as a parser of JSON reads them.

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
            prop_oneof![
                any::<u8>(),
                Just(b'"'),
                Just(b'\\'),
                0x1e..0x23_u8,
                Just(0x80),
                Just(0xff)
            ],
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
