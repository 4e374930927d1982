//! Lines of a recording that are not valid calls, with the reason.

use serde::Serialize;

use crate::escape::excerpt;

/// Longest text of a problem, in characters. It may quote the line.
const PROBLEM_CHARS_MAX: usize = 200;

/// A line that is not a valid call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// The number of the line, counted from 1.
    pub line: u64,
    /// Why it is not valid.
    pub problem: String,
}

impl BadLine {
    /// Line number `line`, with a text on one line.
    pub(super) fn new(line: u64, problem: &str) -> BadLine {
        BadLine { line, problem: excerpt(problem, PROBLEM_CHARS_MAX) }
    }
}

/// The text of an error of JSON, without the number of the line in its input, which is always 1.
pub(super) fn json_problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
    format!("column {}: {what}", error.column())
}
