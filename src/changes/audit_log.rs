//! The audit log: one line per change that was made, ended by a caller, or expired.

use super::change::{ChangeAction, ChangeTarget, TemporaryChange, instant_text};
use super::shared::SharedChangesError;
use crate::escape::{excerpt, one_line};
use crate::limit::TierNumbers;

/// Longest domain, rule or descriptor in a line, in characters.
const CHARS_MAX: usize = 200;

/// The rule and the descriptor of a change, for a log line. One of them is absent.
fn logged_target(change: &TemporaryChange) -> (Option<String>, Option<String>) {
    let text = excerpt(&change.target.selector(), CHARS_MAX);
    match change.target {
        ChangeTarget::Rule(_) => (Some(text), None),
        ChangeTarget::Descriptor(_) => (None, Some(text)),
    }
}

/// `change` was made.
pub(super) fn made(change: &TemporaryChange, replaces: Option<&str>) {
    let (rule, descriptor) = logged_target(change);
    tracing::info!(
        id = change.id.as_str(),
        domain = %excerpt(&change.domain, CHARS_MAX),
        rule,
        descriptor,
        action = change.action.name(),
        limit = logged_limit(change),
        until = %instant_text(change.until),
        by = %one_line(&change.by),
        reason = %one_line(&change.reason),
        replaces,
        "temporary change made"
    );
}

/// The store did not confirm `change`, and possibly has it.
pub(super) fn not_made(change: &TemporaryChange, error: &SharedChangesError) {
    let (rule, descriptor) = logged_target(change);
    tracing::warn!(
        id = change.id.as_str(),
        domain = %excerpt(&change.domain, CHARS_MAX),
        rule,
        descriptor,
        action = change.action.name(),
        until = %instant_text(change.until),
        by = %one_line(&change.by),
        reason = %one_line(&change.reason),
        %error,
        "temporary change not confirmed by Redis"
    );
}

/// `by` ended `change`.
pub(super) fn ended(change: &TemporaryChange, by: &str) {
    let (rule, descriptor) = logged_target(change);
    tracing::info!(
        id = change.id.as_str(),
        domain = %excerpt(&change.domain, CHARS_MAX),
        rule,
        descriptor,
        action = change.action.name(),
        until = %instant_text(change.until),
        by = %one_line(by),
        made_by = %one_line(&change.by),
        reason = %one_line(&change.reason),
        "temporary change ended"
    );
}

/// The end of `change` has come.
pub(super) fn expired(change: &TemporaryChange) {
    let (rule, descriptor) = logged_target(change);
    tracing::info!(
        id = change.id.as_str(),
        domain = %excerpt(&change.domain, CHARS_MAX),
        rule,
        descriptor,
        action = change.action.name(),
        until = %instant_text(change.until),
        by = %one_line(&change.by),
        reason = %one_line(&change.reason),
        "temporary change expired"
    );
}

/// The numbers of a limit, for a log line.
fn logged_limit(change: &TemporaryChange) -> Option<String> {
    let ChangeAction::Limit(numbers) = &change.action else { return None };
    let one = |numbers: &TierNumbers| match numbers.burst {
        None => numbers.requests.to_string(),
        Some(burst) => format!("{} (burst {burst})", numbers.requests),
    };
    Some(numbers.iter().map(one).collect::<Vec<_>>().join(", "))
}
