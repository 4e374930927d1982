//! The audit log: one line per change that was made, ended by a caller, or expired.

use super::change::{ChangeAction, ChangeTarget, TemporaryChange, instant_text};
use super::rule_names::NamedRule;
use super::shared::SharedChangesError;
use crate::escape::{excerpt, one_line};
use crate::limit::TierNumbers;

/// Longest domain, rule or descriptor in a line, in characters.
const CHARS_MAX: usize = 200;

/// The target of a change in a log line: a rule, with its selector if that differs, or a descriptor.
struct LoggedTarget {
    rule: Option<String>,
    selector: Option<String>,
    descriptor: Option<String>,
}

impl LoggedTarget {
    /// The target of `change`. `named` is its rule, if that is one of the active rules.
    fn new(change: &TemporaryChange, named: Option<&NamedRule>) -> LoggedTarget {
        let text = |text: &str| excerpt(text, CHARS_MAX);
        let target = text(&change.target.selector());
        match (&change.target, named) {
            (ChangeTarget::Descriptor(_), _) => {
                LoggedTarget { rule: None, selector: None, descriptor: Some(target) }
            }
            (ChangeTarget::Rule(_), None) => {
                LoggedTarget { rule: Some(target), selector: None, descriptor: None }
            }
            (ChangeTarget::Rule(_), Some(NamedRule { name, selector })) => LoggedTarget {
                rule: Some(text(name)),
                selector: selector.as_deref().map(text),
                descriptor: None,
            },
        }
    }
}

/// `change` was made.
pub(super) fn made(change: &TemporaryChange, named: Option<&NamedRule>, replaces: Option<&str>) {
    let LoggedTarget { rule, selector, descriptor } = LoggedTarget::new(change, named);
    tracing::info!(
        id = change.id.as_str(),
        domain = %excerpt(&change.domain, CHARS_MAX),
        rule,
        selector,
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
pub(super) fn not_made(
    change: &TemporaryChange,
    named: Option<&NamedRule>,
    error: &SharedChangesError,
) {
    let LoggedTarget { rule, selector, descriptor } = LoggedTarget::new(change, named);
    tracing::warn!(
        id = change.id.as_str(),
        domain = %excerpt(&change.domain, CHARS_MAX),
        rule,
        selector,
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
pub(super) fn ended(change: &TemporaryChange, named: Option<&NamedRule>, by: &str) {
    let LoggedTarget { rule, selector, descriptor } = LoggedTarget::new(change, named);
    tracing::info!(
        id = change.id.as_str(),
        domain = %excerpt(&change.domain, CHARS_MAX),
        rule,
        selector,
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
pub(super) fn expired(change: &TemporaryChange, named: Option<&NamedRule>) {
    let LoggedTarget { rule, selector, descriptor } = LoggedTarget::new(change, named);
    tracing::info!(
        id = change.id.as_str(),
        domain = %excerpt(&change.domain, CHARS_MAX),
        rule,
        selector,
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
