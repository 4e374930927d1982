//! The audit log of captures: one line when one begins, and one when it ends.

use super::capture::LogCapture;
use crate::escape::{excerpt, one_line};
use crate::time::Micros;

/// Longest domain or caller in a line, in characters.
const CHARS_MAX: usize = 200;

/// Why a capture ended.
pub(super) enum EndCause<'a> {
    /// Its time was over.
    Time,
    /// This caller ended all captures.
    Caller(&'a str),
}

/// The domain and the rule of a capture, for a log line: without values of sensitive keys.
fn logged_target(capture: &LogCapture) -> (Option<String>, Option<String>) {
    let domain = capture.domain.as_deref().map(|domain| excerpt(domain, CHARS_MAX));
    let rule = capture.rule.as_ref().map(|rule| rule.shown.name.clone());
    (domain, rule)
}

/// `capture` began.
pub(super) fn began(capture: &LogCapture, replaces: bool) {
    let (domain, rule) = logged_target(capture);
    tracing::info!(
        requests = capture.requests.name(),
        domain,
        rule,
        sample = capture.sample,
        seconds = capture.until.saturating_sub(capture.began).0 / Micros::SECOND.0,
        by = %one_line(&capture.by),
        replaces,
        "request capture started"
    );
}

/// `capture` ended.
pub(super) fn ended(capture: &LogCapture, cause: EndCause<'_>) {
    let (domain, rule) = logged_target(capture);
    let ended_by = match cause {
        EndCause::Time => None,
        EndCause::Caller(by) => Some(excerpt(by, CHARS_MAX)),
    };
    tracing::info!(
        requests = capture.requests.name(),
        domain,
        rule,
        sample = capture.sample,
        by = %one_line(&capture.by),
        ended_by,
        "request capture ended"
    );
}
