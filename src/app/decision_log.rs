//! The log of decisions, at the level `debug`: one line per descriptor.

use crate::decision::{Code, DecisionReason, Verdict};
use crate::descriptor::Request;
use crate::escape::excerpt;
use crate::rules::{Rule, RuleSet, descriptor_selector};

/// Longest text of a request in a line, in characters.
const CHARS_MAX: usize = 200;

/// Logs the decisions of `verdict`, which `rules` decided. Costs one comparison if the level is off.
pub(super) fn log(rules: &RuleSet, request: &Request<'_>, verdict: &Verdict) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        write(rules, request, verdict);
    }
}

#[cold]
fn write(rules: &RuleSet, request: &Request<'_>, verdict: &Verdict) {
    let domain = excerpt(request.domain, CHARS_MAX);
    let decided = request.descriptors.iter().zip(&verdict.statuses);
    for (index, (descriptor, status)) in decided.enumerate() {
        let descriptor = excerpt(&descriptor_selector(descriptor.entries), CHARS_MAX);
        let rule = status.reason.rule().and_then(|index| rules.rules().get(index));
        let cause = match status.reason {
            DecisionReason::Fallback { error, .. } => Some(error.name()),
            _ => None,
        };
        tracing::debug!(
            domain = domain.as_str(),
            descriptor = descriptor.as_str(),
            rule = rule.map(|rule| &*rule.display_name),
            selector = rule.and_then(Rule::other_selector),
            code = status.code.name(),
            remaining = status.limit.as_ref().map(|_| status.remaining),
            reason = status.reason.name(),
            cause,
            what_if = verdict.what_if_code(index).map(Code::name),
            request = verdict.code.name(),
            "decided"
        );
    }
}
