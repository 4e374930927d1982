//! Builds the response headers: limit headers, `retry-after`, and `x-weir-decision`.

use std::borrow::Cow;
use std::fmt::Write;

use super::decided::DecidedDescriptor;
use crate::decision::{Code, DecisionReason, Status};
use crate::rules::Rule;
use crate::settings::{LimitHeaders, ResponseSettings};

mod ietf;
mod reported_limit;

use reported_limit::{HeaderList, ReportedLimit, most_restrictive_first, quotable, quotable_name};

/// All headers that `config` enables.
pub(super) fn all(
    config: &ResponseSettings,
    code: Code,
    decided: &[DecidedDescriptor<'_>],
    statuses: &[Status],
) -> HeaderList {
    let mut list = HeaderList::new();
    let with_limits = config.headers != LimitHeaders::Off || config.envoy_ratelimit_headers;
    if with_limits {
        let limits: Vec<ReportedLimit<'_>> = decided
            .iter()
            .zip(statuses)
            .filter_map(|(one, status)| reported_limit(config, one, status))
            .collect();
        families(config, &limits, &mut list);
        if code == Code::OverLimit && config.headers != LimitHeaders::Off {
            list.push(("retry-after".into(), retry_after(statuses).to_string()));
        }
    }
    if config.decision_header {
        list.push(("x-weir-decision".into(), decision_header(decided)));
    }
    list
}

fn reported_limit<'d>(
    config: &ResponseSettings,
    one: &'d DecidedDescriptor<'d>,
    status: &Status,
) -> Option<ReportedLimit<'d>> {
    let DecisionReason::Counted { decision, .. } = &one.reason else { return None };
    let limit = one.resolved.limit()?;
    let quota = one.resolved.is_quota(config.quota_mode);
    let (rule, code, by_share) = (one.resolved.rule(), status.code, one.by_share);
    Some(ReportedLimit { rule, limit, decision, code, quota, by_share })
}

fn families(config: &ResponseSettings, limits: &[ReportedLimit<'_>], list: &mut HeaderList) {
    if limits.is_empty() {
        return;
    }
    if config.envoy_ratelimit_headers {
        let names = [&config.limit_header, &config.remaining_header, &config.reset_header];
        envoy_ratelimit(names, limits, list);
    }
    if matches!(config.headers, LimitHeaders::XRateLimit | LimitHeaders::Both) {
        x_ratelimit(limits, list);
    }
    if matches!(config.headers, LimitHeaders::Ietf | LimitHeaders::Both) {
        ietf::push(limits, list);
    }
}

/// Seconds until the longest denial ends, at least 1.
fn retry_after(statuses: &[Status]) -> u64 {
    let denied = statuses.iter().filter(|status| status.code == Code::OverLimit);
    let waits = denied.filter_map(|status| status.reset_after).map(|wait| wait.ceil_secs());
    waits.max().unwrap_or(1).max(1)
}

/// Adds the headers in Envoy's own format: `x-ratelimit-limit: 10, 10;w=60;name="x"`, with the
/// reported limit first.
fn x_ratelimit(limits: &[ReportedLimit<'_>], list: &mut HeaderList) {
    let sorted = most_restrictive_first(limits);
    let Some(first) = sorted.first() else { return };
    let mut limit = first.decision.limit.to_string();
    for one in limits {
        let _ = write!(limit, ", {};w={}", one.decision.limit, one.window_secs());
        if let Some(name) = one.rule.and_then(|rule| rule.name.as_deref()) {
            let _ = write!(limit, ";name=\"{}\"", quotable(name));
        }
    }
    let reset = first.decision.reset_after.ceil_secs();
    list.push(("x-ratelimit-limit".into(), limit));
    list.push(("x-ratelimit-remaining".into(), first.decision.remaining.to_string()));
    list.push(("x-ratelimit-reset".into(), reset.to_string()));
}

/// Adds the three headers of envoyproxy/ratelimit. As there, they report one descriptor:
///
/// 1. the last one over its limit that is no quota descriptor;
/// 2. instead of it, a later one with fewer remaining hits;
/// 3. if none is over its limit, the one with the fewest remaining hits, the first among equals.
fn envoy_ratelimit(names: [&String; 3], limits: &[ReportedLimit<'_>], list: &mut HeaderList) {
    let mut chosen: Option<&ReportedLimit<'_>> = None;
    for one in limits {
        let smaller =
            chosen.is_none_or(|so_far| one.decision.remaining < so_far.decision.remaining);
        if smaller || (one.code == Code::OverLimit && !one.quota) {
            chosen = Some(one);
        }
    }
    let Some(ReportedLimit { decision, .. }) = chosen else { return };
    let values = [decision.limit, decision.remaining, decision.reset_after.ceil_secs()];
    for (name, value) in names.into_iter().zip(values) {
        list.push((Cow::Owned(name.clone()), value.to_string()));
    }
}

/// The values of `rule` in `x-weir-decision` that are no names of rules.
const NO_RULE: &str = "none";
const SENT_LIMIT: &str = "override";

/// The value of `x-weir-decision`: one element per descriptor.
fn decision_header(decided: &[DecidedDescriptor<'_>]) -> String {
    let mut text = String::new();
    for one in decided {
        if !text.is_empty() {
            text.push_str(", ");
        }
        let rule = match (one.resolved.rule(), &one.reason) {
            (Some(rule), _) => decision_rule(rule),
            (None, DecisionReason::Counted { .. } | DecisionReason::Fallback { .. }) => {
                SENT_LIMIT.into()
            }
            (None, _) => NO_RULE.into(),
        };
        let (fallback, cause) = match one.reason {
            DecisionReason::Fallback { on_error, error, .. } => {
                (on_error.name(), Some(error.name()))
            }
            _ => ("none", None),
        };
        let mode = match one.resolved.rule() {
            _ if one.by_share => "divided",
            Some(rule) => rule.mode.name(),
            None => "exact",
        };
        let _ = write!(text, "rule={rule};mode={mode};fallback={fallback}");
        if let Some(cause) = cause {
            let _ = write!(text, ";cause={cause}");
        }
        if let Some(change) = one.resolved.change() {
            let _ = write!(text, ";change={change}");
        }
    }
    text
}

/// The name of `rule` in `x-weir-decision`: in quotes if it could be read as another part of the header.
fn decision_rule(rule: &Rule) -> Cow<'_, str> {
    let name = quotable_name(rule);
    let is_word = name == NO_RULE || name == SENT_LIMIT;
    match is_word || name.contains([' ', ',', ';', '"', '\\']) {
        true => Cow::Owned(format!("\"{name}\"")),
        false => name,
    }
}
