//! The output that a page shows behind its commands, compared with what they print.

use serde_json::Value;

use super::text::Block;

/// Fields of JSON whose values differ between runs.
const VARYING: [&str; 8] = [
    "counter",
    "key",
    "id",
    "made_at",
    "until",
    "denied_until",
    "durationUntilReset",
    "reset_after_seconds",
];

/// A `text` block: every printed line, in order.
pub(super) struct Shown<'p> {
    lines: std::str::Lines<'p>,
    /// The ids of leases on the page and in this run.
    ids: Vec<(&'p str, String)>,
}

impl<'p> Shown<'p> {
    pub(super) fn new(block: &Block<'p>) -> Shown<'p> {
        Shown { lines: block.text.lines(), ids: Vec::new() }
    }

    /// Whether the block shows a denial and nothing before it.
    pub(super) fn starts_with_a_denial(&self) -> bool {
        self.lines.clone().next() == Some("OVER_LIMIT")
    }

    /// A text of the page with the ids of this run.
    pub(super) fn today(&self, text: &str) -> String {
        self.ids.iter().fold(text.to_owned(), |text, (old, new)| text.replace(old, new))
    }

    /// Compares the output of one command with the next lines of the block.
    pub(super) fn compare(&mut self, command: &str, stdout: &str) {
        // A command may print an empty line at its end, which a block does not show.
        for line in stdout.trim_end().lines() {
            let expected = self.lines.next().unwrap_or("nothing");
            let expected_today = self.today(expected);
            assert_eq!(lasting(line), lasting(&expected_today), "{command} prints\n{stdout}");
            if let Some((old, new)) = id(expected).zip(id(line)) {
                self.ids.push((old, new.to_owned()));
            }
        }
    }

    /// Checks that the commands have printed the whole block.
    pub(super) fn end(mut self) {
        assert_eq!(self.lines.next(), None, "more is shown than is printed");
    }
}

/// Removes the parts of a line that differ between runs: the time until a reset, a lease id, hashes and
/// instants.
fn lasting(line: &str) -> String {
    let line = line.split(", resets in").next().unwrap_or(line);
    let line = match id(line) {
        Some(id) => line.replace(id, "..."),
        None => line.to_owned(),
    };
    let words = line.split(' ').map(|word| if is_varying(word) { "..." } else { word });
    words.collect::<Vec<&str>>().join(" ")
}

/// Whether a word is the hash of a counter, the id of a change, or an instant.
fn is_varying(word: &str) -> bool {
    let word = word.trim_end_matches(',');
    let is_hash = word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_day = |day: &str| day.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let is_instant = word.ends_with('Z')
        && word.split_once('T').is_some_and(|(day, _)| day.len() == 10 && is_day(day));
    is_hash || is_instant
}

/// The id in a line with a lease.
fn id(line: &str) -> Option<&str> {
    line.split_once(r#""id":""#)?.1.split('"').next()
}

/// The place of the first value of `shown` that `printed` does not have. Fields that are printed and
/// not shown do not matter.
pub(super) fn missing(shown: &Value, printed: &Value) -> Option<String> {
    match (shown, printed) {
        (Value::Object(shown), Value::Object(printed)) => shown.iter().find_map(|(name, value)| {
            let Some(found) = printed.get(name) else { return Some(name.clone()) };
            if VARYING.contains(&name.as_str()) {
                return None;
            }
            missing(value, found).map(|place| format!("{name}.{place}"))
        }),
        (Value::Array(shown), Value::Array(printed)) if shown.len() <= printed.len() => {
            let mut pairs = shown.iter().zip(printed);
            pairs.find_map(|(shown, printed)| missing(shown, printed))
        }
        _ => (shown != printed).then(|| format!("{shown} is {printed}")),
    }
}

#[test]
fn a_value_that_is_not_printed_is_found() {
    let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let printed = json(r#"{"a": [{"b": 1, "key": "x", "more": 2}], "c": "d"}"#);
    for same in [r#"{}"#, r#"{"a": [{"b": 1, "key": "other"}]}"#, r#"{"c": "d"}"#] {
        assert_eq!(missing(&json(same), &printed), None, "{same}");
    }
    for other in [r#"{"x": 1}"#, r#"{"a": [{"b": 2}]}"#, r#"{"a": [{}, {}]}"#, r#"{"c": "e"}"#] {
        assert!(missing(&json(other), &printed).is_some(), "{other}");
    }
}

#[test]
fn hashes_and_instants_of_the_page_do_not_matter() {
    let shown = "1 denied  d  9f2c41d07be3a856  until 2026-03-01T12:01:00Z, by ann";
    let printed = "1 denied  d  0123456789abcdef  until 2027-11-22T10:00:00.5Z, by ann";
    assert_eq!(lasting(shown), lasting(printed));
    for other in ["2 denied  d", "1 denied  d  user=ann  until 2026-03-01T12:01:00Z, by ann"] {
        assert_ne!(lasting(shown), lasting(other));
    }
}

#[test]
fn ids_of_the_page_become_those_of_the_run() {
    let text = "OK\n  a: OK, resets in 1 s\n  {\"id\":\"11\"}\n";
    let block = Block { language: "text", text };
    let mut shown = Shown::new(&block);
    shown.compare("call", "OK\n  a: OK, resets in 7 s\n  {\"id\":\"22\"}\n");
    assert_eq!(shown.today("lease=11"), "lease=22");
    shown.end();
}
