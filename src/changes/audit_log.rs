//! The audit log: one line per change that was made, ended by a caller, or expired.

use super::change::{ChangeAction, ChangeTarget, TemporaryChange, instant_text};
use super::rule_names::NamedRule;
use super::shared::SharedChangesError;
use crate::escape::{excerpt, one_line};
use crate::limit::TierNumbers;
use crate::rules::shown_selector;

/// Longest domain in a line, in characters.
const CHARS_MAX: usize = 200;

/// The target of a change in a log line: a rule, with its selector if that differs, or a descriptor.
/// Without values of sensitive keys.
#[derive(Debug, PartialEq, Eq)]
struct LoggedTarget {
    rule: Option<String>,
    selector: Option<String>,
    descriptor: Option<String>,
}

impl LoggedTarget {
    /// The target of `change`. `named` is its rule, if that is one of the active rules.
    fn new(change: &TemporaryChange, named: Option<&NamedRule>) -> LoggedTarget {
        let target = shown_selector(&change.target.selector());
        match (&change.target, named) {
            (ChangeTarget::Descriptor(_), _) => {
                LoggedTarget { rule: None, selector: None, descriptor: Some(target) }
            }
            (ChangeTarget::Rule(_), None) => {
                LoggedTarget { rule: Some(target), selector: None, descriptor: None }
            }
            (ChangeTarget::Rule(_), Some(NamedRule { name, selector })) => LoggedTarget {
                rule: Some(shown_selector(name)),
                selector: selector.as_deref().map(shown_selector),
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
        by = &*one_line(&change.by),
        reason = &*one_line(&change.reason),
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
        by = &*one_line(&change.by),
        reason = &*one_line(&change.reason),
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
        by = &*one_line(by),
        made_by = &*one_line(&change.by),
        reason = &*one_line(&change.reason),
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
        by = &*one_line(&change.by),
        reason = &*one_line(&change.reason),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Micros;

    #[test]
    fn targets_have_no_values_of_sensitive_keys() {
        let named = |name: &str, selector: Option<&str>| NamedRule {
            name: name.into(),
            selector: selector.map(str::to_owned),
        };
        let rule = |name: &str| ChangeTarget::Rule(name.to_owned());
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let descriptor = vec![pair("api_key", "hunter2,x"), pair("user", "ann")];
        let path = "api_key=hunter2,path=/a";
        for (target, named, shown) in [
            (ChangeTarget::Descriptor(descriptor), None, [None, None, Some("api_key=..,user=ann")]),
            (rule(path), None, [Some("api_key=..,path=/a"), None, None]),
            (rule(path), Some(named(path, None)), [Some("api_key=..,path=/a"), None, None]),
            (
                rule("calls"),
                Some(named("calls", Some(path))),
                [Some("calls"), Some("api_key=..,path=/a"), None],
            ),
        ] {
            let change = TemporaryChange {
                id: "1".to_owned(),
                domain: "d".to_owned(),
                target,
                action: ChangeAction::Block,
                until: Micros(2),
                made_at: Micros(1),
                reason: String::new(),
                by: "ann".to_owned(),
            };
            let [rule, selector, descriptor] = shown.map(|text| text.map(str::to_owned));
            let expected = LoggedTarget { rule, selector, descriptor };
            assert_eq!(LoggedTarget::new(&change, named.as_ref()), expected, "{change:?}");
        }
    }
}
