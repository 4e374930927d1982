//! Reads lines of Envoy's access log, in the JSON form that docs/guides/replay.md describes.
//!
//! Envoy writes most values as texts, and `null` for a value that a request lacks. With
//! `omit_empty_values` it leaves such a value out.

use std::borrow::Cow;

use serde::Deserialize;

use super::line_problem::json_problem;
use crate::decision::Code;
use crate::decision_record::{RecordedDescriptor, RecordedEntry, RecordedRequest};

/// The flag of a request that a rate limit filter denied.
const DENIED: &str = "RL";

/// The flag of a request that Envoy denied because the service failed.
const SERVICE_FAILED: &str = "RLSE";

/// Digits of a fraction of a second in microseconds.
const FRACTION_DIGITS: usize = 6;

/// A line of the log.
#[derive(Deserialize)]
struct EnvoyLine {
    at: TextOrNumber,
    domain: String,
    hits: Option<TextOrNumber>,
    descriptors: Vec<EnvoyDescriptor>,
    flags: Option<String>,
}

/// A descriptor that Envoy may have sent.
#[derive(Deserialize)]
struct EnvoyDescriptor {
    /// The key and the value of each entry. A value that the request lacked is `null` or missing.
    entries: Vec<Vec<Option<String>>>,
    hits: Option<TextOrNumber>,
    #[serde(default)]
    negative: bool,
}

/// A number, which may be written as a text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a whole number, or a text with one")]
enum TextOrNumber {
    Number(u64),
    Text(String),
}

/// Reads a line. `None` if Envoy made no descriptor of the request.
///
/// # Errors
///
/// The first problem of the line.
pub(super) fn read(line: &[u8]) -> Result<Option<RecordedRequest<'static>>, String> {
    let line: EnvoyLine = serde_json::from_slice(line).map_err(|error| json_problem(&error))?;
    let at = instant(&line.at)?;
    let hits = line.hits.as_ref().map_or(Ok(None), hits)?.unwrap_or(0);
    let hits = u32::try_from(hits).map_err(|_| format!("`hits` {hits} is not below 2^32"))?;
    let mut descriptors = Vec::with_capacity(line.descriptors.len());
    for descriptor in line.descriptors {
        descriptors.extend(recorded(descriptor)?);
    }
    if descriptors.is_empty() {
        return Ok(None);
    }
    let code = line.flags.as_deref().and_then(code);
    let domain = Cow::Owned(line.domain);
    Ok(Some(RecordedRequest { at, domain, hits, descriptors, code }))
}

/// The descriptor; `None` if the request lacked a value of it, because Envoy then sends none.
fn recorded(descriptor: EnvoyDescriptor) -> Result<Option<RecordedDescriptor<'static>>, String> {
    let mut entries = Vec::with_capacity(descriptor.entries.len());
    for entry in descriptor.entries {
        let entry = match <[_; 2]>::try_from(entry) {
            Ok([Some(key), Some(value)]) => RecordedEntry(Cow::Owned(key), Cow::Owned(value)),
            Ok(_) => return Ok(None),
            Err(entry) if entry.len() < 2 => return Ok(None),
            Err(entry) => {
                let length = entry.len();
                return Err(format!("an entry has {length} texts; write a key and a value"));
            }
        };
        entries.push(entry);
    }
    let hits = descriptor.hits.as_ref().map_or(Ok(None), hits)?;
    let negative = descriptor.negative;
    let (limit, code, lease) = (None, None, None);
    Ok(Some(RecordedDescriptor { entries, hits, negative, limit, code, lease }))
}

/// A number of hits. `-` is the text of Envoy for a value that a request lacks.
fn hits(written: &TextOrNumber) -> Result<Option<u64>, String> {
    match written {
        TextOrNumber::Number(hits) => Ok(Some(*hits)),
        TextOrNumber::Text(text) if text == "-" || text.is_empty() => Ok(None),
        TextOrNumber::Text(text) => match text.parse() {
            Ok(hits) => Ok(Some(hits)),
            Err(_) => Err(format!("`hits` `{text}` is not a whole number")),
        },
    }
}

/// An instant in microseconds since 1970: a whole number of them, or seconds with a fraction.
fn instant(written: &TextOrNumber) -> Result<u64, String> {
    let text = match written {
        TextOrNumber::Number(micros) => return Ok(*micros),
        TextOrNumber::Text(text) => text,
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let micros = match text.split_once('.') {
        None if digits(text) => text.parse().ok(),
        Some((seconds, fraction)) if digits(seconds) && digits(fraction) => {
            let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS)];
            let micros: Option<u64> = format!("{fraction:0<FRACTION_DIGITS$}").parse().ok();
            let seconds: Option<u64> = seconds.parse().ok();
            seconds.and_then(|seconds| seconds.checked_mul(1_000_000)?.checked_add(micros?))
        }
        _ => None,
    };
    micros.ok_or_else(|| {
        format!("`at` `{text}` is not an instant; write \"%START_TIME(%s.%6f)%\" in json_format")
    })
}

/// The code of a request with these flags. `None` if the service did not decide it.
fn code(flags: &str) -> Option<Code> {
    let has = |flag: &str| flags.split(',').any(|one| one == flag);
    match (has(SERVICE_FAILED), has(DENIED)) {
        (true, _) => None,
        (false, true) => Some(Code::OverLimit),
        (false, false) => Some(Code::Ok),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> RecordedRequest<'static> {
        let read = read(line.as_bytes()).unwrap_or_else(|problem| panic!("{problem}: {line}"));
        read.unwrap_or_else(|| panic!("no descriptor: {line}"))
    }

    #[test]
    fn a_line_of_envoy_is_a_call() {
        let read = call(
            r#"{"at":"1772366400.000123","descriptors":[
                {"entries":[["user","ann"]],"hits":"7"},
                {"entries":[["generic_key","site"],["remote_address","10.0.0.1"]]}],
                "domain":"demo","flags":"-","more":[1]}"#,
        );
        assert_eq!((read.at, &*read.domain, read.hits), (1_772_366_400_000_123, "demo", 0));
        assert_eq!(read.code, Some(Code::Ok));
        let texts: Vec<Vec<_>> = read
            .descriptors
            .iter()
            .map(|one| one.entries.iter().map(|entry| (&*entry.0, &*entry.1)).collect())
            .collect();
        let site = vec![("generic_key", "site"), ("remote_address", "10.0.0.1")];
        assert_eq!(texts, [vec![("user", "ann")], site]);
        assert_eq!(read.descriptors[0].hits, Some(7));
        assert_eq!(read.descriptors[1].hits, None);
    }

    /// Envoy makes no descriptor if a header of it is missing.
    #[test]
    fn a_descriptor_without_a_value_is_left_out() {
        let line = |user: &str| {
            format!(
                r#"{{"at":"1.0","domain":"d","descriptors":[
                    {{"entries":[["a","b"],["user"{user}]]}},{{"entries":[["site","x"]]}}]}}"#
            )
        };
        assert_eq!(call(&line(",\"ann\"")).descriptors.len(), 2);
        assert_eq!(call(&line(",\"\"")).descriptors.len(), 2, "the header is there and empty");
        for lacking in [",null", ""] {
            let read = call(&line(lacking));
            assert_eq!(read.descriptors.len(), 1);
            assert_eq!(read.descriptors[0].entries[0].as_entry().key, "site");
        }
        for descriptors in ["[]", r#"[{"entries":[["user",null]]}]"#] {
            let line = format!(r#"{{"at":"1.0","domain":"d","descriptors":{descriptors}}}"#);
            assert_eq!(read(line.as_bytes()), Ok(None), "{descriptors}");
        }
    }

    #[test]
    fn instants_are_microseconds_since_1970() {
        let text = |text: &str| instant(&TextOrNumber::Text(text.to_owned()));
        for (written, micros) in [
            ("1772366400.000123", 1_772_366_400_000_123),
            ("1772366400.5", 1_772_366_400_500_000),
            ("1772366400.123456789", 1_772_366_400_123_456),
            ("1772366400000123", 1_772_366_400_000_123),
            ("0.0", 0),
        ] {
            assert_eq!(text(written), Ok(micros), "{written}");
        }
        assert_eq!(instant(&TextOrNumber::Number(12)), Ok(12));
        for wrong in
            ["", ".", "1.", ".5", "-1.0", "+1", "1.0.0", "2026-03-01T12:00:00.000Z", "1.\u{0663}"]
        {
            assert!(text(wrong).is_err_and(|problem| problem.contains("%START_TIME")), "{wrong}");
        }
        assert!(text(&"9".repeat(30)).is_err());
        assert!(text(&format!("{}.0", u64::MAX)).is_err());
    }

    #[test]
    fn flags_have_the_recorded_code() {
        for (flags, expected) in [
            ("-", Some(Code::Ok)),
            ("", Some(Code::Ok)),
            ("UH", Some(Code::Ok)),
            ("RL", Some(Code::OverLimit)),
            ("DC,RL", Some(Code::OverLimit)),
            ("RLSE", None),
            ("URX", Some(Code::Ok)),
        ] {
            assert_eq!(code(flags), expected, "{flags}");
        }
    }

    #[test]
    fn hits_may_be_texts_or_missing() {
        let with = |request: &str, descriptor: &str| {
            let descriptor = format!(r#"{{"entries":[["k","v"]]{descriptor}}}"#);
            let line =
                format!(r#"{{"at":"1.0","domain":"d"{request},"descriptors":[{descriptor}]}}"#);
            read(line.as_bytes()).map(|read| {
                let read = read.expect("a descriptor");
                (read.hits, read.descriptors[0].hits)
            })
        };
        assert_eq!(with("", ""), Ok((0, None)));
        assert_eq!(with(r#","hits":"12""#, r#","hits":"0""#), Ok((12, Some(0))));
        let largest = r#","hits":9007199254740991"#;
        assert_eq!(with(r#","hits":3"#, largest), Ok((3, Some((1 << 53) - 1))));
        for lacking in [r#","hits":null"#, r#","hits":"-""#, r#","hits":"""#] {
            assert_eq!(with(lacking, lacking), Ok((0, None)), "{lacking}");
        }
        assert!(with(r#","hits":4294967296"#, "").is_err_and(|text| text.contains("2^32")));
        for wrong in ["\"-5\"", "\"1.5\"", "\"x\"", "-1", "{}"] {
            assert!(with("", &format!(",\"hits\":{wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_line_is_a_problem() {
        for (line, part) in [
            ("x", "column 1"),
            (r#"{"domain":"d","descriptors":[]}"#, "`at`"),
            (r#"{"at":"now","domain":"d","descriptors":[]}"#, "is not an instant"),
            (
                r#"{"at":"1.0","domain":"d","descriptors":[{"entries":[["a","b","c"]]}]}"#,
                "an entry has 3 texts",
            ),
        ] {
            let problem = read(line.as_bytes()).expect_err("a problem");
            assert!(problem.contains(part), "{problem}");
        }
    }
}
