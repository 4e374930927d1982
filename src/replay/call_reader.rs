//! Reads a recording into batches of calls on virtual time, and counts the lines that are no calls.

use std::io::{self, Read};

use serde::Serialize;

use super::call_batch::{self, CallBatch};
use super::canonical_line;
use super::envoy_log;
use super::line_call::LineCall;
use super::line_problem::{BadLine, json_problem};
use super::line_reader::LineReader;
use crate::decision_record::{LINE_BYTES_MAX, RecordedRequest};
use crate::time::Micros;

/// Bad lines of a report. The others are only counted.
const BAD_LINES_SHOWN: usize = 10;

/// The form of the lines of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineForm {
    /// A line of the decision log.
    #[default]
    DecisionLog,
    /// A line of Envoy's access log, in the form that docs/guides/replay.md describes.
    EnvoyLog,
}

/// What the lines of a recording were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LineTotals {
    /// All lines.
    pub read: u64,
    /// Lines that are not valid calls. They are left out.
    pub bad: u64,
    /// The first bad lines.
    pub first_bad: Vec<BadLine>,
    /// Calls of other domains than the chosen one.
    pub other_domains: u64,
    /// Requests of Envoy's log for which Envoy made no descriptor.
    pub without_descriptors: u64,
    /// Calls whose instant is before that of an earlier line. They are decided as of the later instant.
    pub out_of_order: u64,
    /// The longest time by which one of them is earlier, in microseconds.
    pub out_of_order_micros_max: u64,
}

/// The calls of the recording `R`.
pub(super) struct CallReader<'o, R> {
    lines: LineReader<R>,
    form: LineForm,
    /// Only calls of this domain are decided; `None` for all.
    domain: Option<&'o str>,
    totals: LineTotals,
    /// The call of the line that was read last, if it is canonical.
    canonical: LineCall,
    /// The instants of the first and of the latest call.
    span: Option<(Micros, Micros)>,
}

impl<'o, R: Read> CallReader<'o, R> {
    /// The calls of `input`, or those of one domain.
    pub(super) fn new(input: R, form: LineForm, domain: Option<&'o str>) -> CallReader<'o, R> {
        let (lines, totals) = (LineReader::new(input), LineTotals::default());
        CallReader { lines, form, domain, totals, canonical: LineCall::default(), span: None }
    }

    /// Replaces the calls of `batch` by the next ones. Returns whether there are any.
    ///
    /// # Errors
    ///
    /// The error of the input.
    pub(super) fn fill(&mut self, batch: &mut CallBatch) -> io::Result<bool> {
        batch.clear();
        while !batch.is_full() {
            let Some(line) = self.lines.next_line()? else { break };
            self.totals.read += 1;
            let Some(bytes) = line.bytes else {
                let problem = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                bad(&mut self.totals, line.number, &problem);
                continue;
            };
            if self.form == LineForm::DecisionLog
                && let Some(text) = canonical_line::read(bytes, &mut self.canonical)
            {
                let call = &self.canonical;
                if self.domain.is_some_and(|domain| call.domain.of(text) != domain) {
                    self.totals.other_domains += 1;
                } else {
                    let at = advance(&mut self.span, Micros(call.at), &mut self.totals);
                    batch.push_line(text, call, at);
                }
                continue;
            }
            if bytes.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match read(self.form, bytes) {
                Ok(Some(call)) if self.domain.is_some_and(|domain| call.domain != domain) => {
                    self.totals.other_domains += 1;
                }
                Ok(Some(call)) => match call_batch::problem(&call) {
                    Some(problem) => bad(&mut self.totals, line.number, &problem),
                    None => {
                        let at = advance(&mut self.span, Micros(call.at), &mut self.totals);
                        batch.push(&call, at);
                    }
                },
                Ok(None) => self.totals.without_descriptors += 1,
                Err(problem) => bad(&mut self.totals, line.number, &problem),
            }
        }
        Ok(!batch.calls().is_empty())
    }

    /// What the lines so far were, and the instants of the first and of the latest call.
    pub(super) fn into_totals(self) -> (LineTotals, Option<(Micros, Micros)>) {
        (self.totals, self.span)
    }
}

/// Reads a line. `None` if it is a request of Envoy without a descriptor.
fn read(form: LineForm, line: &[u8]) -> Result<Option<RecordedRequest<'_>>, String> {
    match form {
        LineForm::DecisionLog => {
            RecordedRequest::from_line(line).map(Some).map_err(|error| json_problem(&error))
        }
        LineForm::EnvoyLog => envoy_log::read(line),
    }
}

/// Counts a bad line, and keeps the first ones.
#[cold]
fn bad(totals: &mut LineTotals, line: u64, problem: &str) {
    totals.bad += 1;
    if totals.first_bad.len() < BAD_LINES_SHOWN {
        totals.first_bad.push(BadLine::new(line, problem));
    }
}

/// The instant as of which a call that was recorded at `at` is decided. Virtual time never goes back.
fn advance(span: &mut Option<(Micros, Micros)>, at: Micros, totals: &mut LineTotals) -> Micros {
    let (_, latest) = span.get_or_insert((at, at));
    if at < *latest {
        totals.out_of_order += 1;
        let earlier = latest.0 - at.0;
        totals.out_of_order_micros_max = totals.out_of_order_micros_max.max(earlier);
    } else {
        *latest = at;
    }
    *latest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A line of the decision log.
    fn line(at: u64, domain: &str) -> String {
        let descriptors = r#"[{"entries":[["k","v"]]}]"#;
        format!(r#"{{"at":{at},"domain":"{domain}","descriptors":{descriptors}}}"#)
    }

    /// The instants of all calls, and the totals.
    fn read_all(input: &[u8], domain: Option<&str>) -> (Vec<u64>, LineTotals) {
        let mut reader = CallReader::new(input, LineForm::DecisionLog, domain);
        let (mut batch, mut instants) = (CallBatch::default(), Vec::new());
        while reader.fill(&mut batch).expect("memory has no errors") {
            instants.extend(batch.calls().iter().map(|call| call.at.0));
        }
        (instants, reader.into_totals().0)
    }

    #[test]
    fn every_batch_is_read_to_the_last_line() {
        for count in [0, 1, 1023, 1024, 1025, 5000] {
            let text: Vec<String> = (1..=count).map(|at| line(at, "d")).collect();
            let (instants, totals) = read_all(text.join("\n").as_bytes(), None);
            assert_eq!(instants, (1..=count).collect::<Vec<_>>());
            assert_eq!(totals, LineTotals { read: count, ..LineTotals::default() });
        }
    }

    #[test]
    fn virtual_time_never_goes_back() {
        let text = [5, 7, 4, 6, 7, 9, 8].map(|at| line(at, "d")).join("\n");
        let (instants, totals) = read_all(text.as_bytes(), None);
        assert_eq!(instants, [5, 7, 7, 7, 7, 9, 9]);
        assert_eq!((totals.out_of_order, totals.out_of_order_micros_max), (3, 3));
        let mut reader = CallReader::new(text.as_bytes(), LineForm::DecisionLog, None);
        reader.fill(&mut CallBatch::default()).expect("memory has no errors");
        assert_eq!(reader.into_totals().1, Some((Micros(5), Micros(9))));
    }

    /// Other domains do not move the virtual time.
    #[test]
    fn calls_of_other_domains_are_counted_only() {
        let text = [line(1, "d"), line(9, "e"), line(2, "d")].join("\n");
        let (instants, totals) = read_all(text.as_bytes(), Some("d"));
        assert_eq!((instants, totals.other_domains), (vec![1, 2], 1));
        assert_eq!((totals.out_of_order, totals.bad), (0, 0));
    }

    #[test]
    fn bad_lines_are_counted_and_the_first_are_shown() {
        let good = line(3, "d");
        let lines = [
            "",
            &good,
            "{",
            r#"{"at":1}"#,
            r#"{"at":1,"domain":"d","descriptors":[],"code":"\u001b[31m"}"#,
            &good.replace("[[\"k\",\"v\"]]", "[[\"\",\"v\"]]"),
            &format!("\"{}\"", "x".repeat(LINE_BYTES_MAX)),
            " \t\r",
            "\u{1b}",
            &good,
        ];
        let (instants, totals) = read_all(lines.join("\n").as_bytes(), None);
        assert_eq!((instants.len(), totals.read, totals.bad), (2, 10, 6));
        let shown: Vec<(u64, &str)> =
            totals.first_bad.iter().map(|bad| (bad.line, &*bad.problem)).collect();
        let parts = [
            (3, "EOF while parsing"),
            (4, "missing field `domain`"),
            (5, "unknown variant"),
            (6, "an entry with an empty key"),
            (7, "longer than 1048576 bytes"),
            (9, "column 1: "),
        ];
        assert_eq!(shown.len(), parts.len(), "{shown:?}");
        for ((line, problem), (expected, part)) in shown.into_iter().zip(parts) {
            assert!(line == expected && problem.contains(part), "{line}: {problem}");
            assert!(!problem.contains(['\u{1b}', '\n']) && !problem.contains(" at line "));
        }
        let many = read_all("x\n".repeat(50).as_bytes(), None).1;
        assert_eq!((many.bad, many.first_bad.len()), (50, BAD_LINES_SHOWN));
    }

    proptest! {
        /// Any bytes are read to their end without a panic, and each line is counted once.
        #[test]
        fn any_bytes_are_read_to_their_end(
            parts in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..40),
                    any::<(u64, bool)>().prop_map(|(at, good)| {
                        let line = line(at, if good { "d" } else { "" });
                        line.into_bytes()
                    }),
                    Just(b"\n".to_vec()),
                ],
                0..20,
            ),
            envoy: bool,
        ) {
            let input = parts.concat();
            let form = if envoy { LineForm::EnvoyLog } else { LineForm::DecisionLog };
            let mut reader = CallReader::new(&input[..], form, None);
            let (mut batch, mut calls) = (CallBatch::default(), 0);
            while reader.fill(&mut batch).expect("memory has no errors") {
                calls += batch.calls().len() as u64;
            }
            let totals = reader.into_totals().0;
            let lines = input.split(|byte| *byte == b'\n');
            let whole = lines.clone().count() as u64;
            let ends_with_line = input.last().is_none_or(|byte| *byte == b'\n');
            prop_assert_eq!(totals.read, whole - u64::from(ends_with_line));
            let blank = lines.filter(|line| line.iter().all(u8::is_ascii_whitespace)).count();
            let blank = blank as u64 - u64::from(ends_with_line);
            prop_assert_eq!(calls + totals.bad + totals.without_descriptors + blank, totals.read);
        }
    }
}
