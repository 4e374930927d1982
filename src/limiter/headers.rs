//! Headers for the client: what is left, until when, and when to come back.

use std::borrow::Cow;
use std::fmt::Write;

use super::response_config::{Headers, ResponseConfig};
use super::{Decided, ietf};
use crate::decision::{Cause, Code, Decision, Status};
use crate::limit::{Algorithm, Limit, Tier};
use crate::rules::Rule;
use crate::store::Store;

/// Header names and values, in the order they are sent.
pub(super) type List = Vec<(Cow<'static, str>, String)>;

/// What the header families say about one counted descriptor.
#[derive(Clone, Copy)]
pub(super) struct Line<'d> {
    pub(super) rule: Option<&'d Rule>,
    pub(super) limit: &'d Limit,
    pub(super) decision: &'d Decision,
    pub(super) code: Code,
    /// Only denies together with the other quota descriptors.
    pub(super) quota: bool,
}

/// All headers that the operator asked for.
pub(super) fn all<S: Store>(
    answer: &ResponseConfig,
    code: Code,
    decided: &[Decided<'_, S>],
    statuses: &[Status],
) -> List {
    let mut list = List::new();
    let wanted = answer.headers != Headers::Off || answer.envoy_ratelimit_headers.is_some();
    if wanted {
        let lines: Vec<Line<'_>> = decided
            .iter()
            .zip(statuses)
            .filter_map(|(one, status)| line(answer, one, status))
            .collect();
        families(answer, &lines, &mut list);
        if code == Code::OverLimit && answer.headers != Headers::Off {
            list.push(("retry-after".into(), retry_after(statuses).to_string()));
        }
    }
    if answer.decision_header {
        list.push(("x-weir-decision".into(), how(decided)));
    }
    list
}

fn line<'d, S: Store>(
    answer: &ResponseConfig,
    one: &'d Decided<'d, S>,
    status: &Status,
) -> Option<Line<'d>> {
    let Cause::Counted { decision, .. } = &one.cause else { return None };
    let limit = one.target.limit()?;
    let quota = one.is_quota(answer.quota_mode);
    Some(Line { rule: one.target.rule(), limit, decision, code: status.code, quota })
}

fn families(answer: &ResponseConfig, lines: &[Line<'_>], list: &mut List) {
    if lines.is_empty() {
        return;
    }
    if let Some(names) = &answer.envoy_ratelimit_headers {
        envoy_ratelimit(names, lines, list);
    }
    if matches!(answer.headers, Headers::XRateLimit | Headers::Both) {
        x_ratelimit(lines, list);
    }
    if matches!(answer.headers, Headers::Ietf | Headers::Both) {
        ietf::push(lines, list);
    }
}

/// Seconds after which the longest of the denials is over; at least 1.
fn retry_after(statuses: &[Status]) -> u64 {
    let denied = statuses.iter().filter(|status| status.code == Code::OverLimit);
    let waits = denied.filter_map(|status| status.reset_after).map(|wait| wait.ceil_secs());
    waits.max().unwrap_or(1).max(1)
}

/// Lines from the most restrictive on: denied ones first, then by remaining share; the request's
/// order among equals (the sort is stable).
pub(super) fn most_restrictive_first<'l, 'd>(lines: &'l [Line<'d>]) -> Vec<&'l Line<'d>> {
    let mut sorted: Vec<&Line<'_>> = lines.iter().collect();
    sorted.sort_by_key(|line| (line.code != Code::OverLimit, line.share_left()));
    sorted
}

/// Envoy's own form: `x-ratelimit-limit: 10, 10;w=60;name="x"` with the reported limit first.
fn x_ratelimit(lines: &[Line<'_>], list: &mut List) {
    let sorted = most_restrictive_first(lines);
    let Some(first) = sorted.first() else { return };
    let mut limit = first.decision.limit.to_string();
    for line in lines {
        let _ = write!(limit, ", {};w={}", line.decision.limit, line.window_secs());
        if let Some(name) = line.rule.and_then(|rule| rule.name.as_deref()) {
            let _ = write!(limit, ";name=\"{}\"", ietf::quotable(name));
        }
    }
    let reset = first.decision.reset_after.ceil_secs();
    list.push(("x-ratelimit-limit".into(), limit));
    list.push(("x-ratelimit-remaining".into(), first.decision.remaining.to_string()));
    list.push(("x-ratelimit-reset".into(), reset.to_string()));
}

/// envoyproxy/ratelimit's three headers by its own choice: the first of the smallest remaining, but the
/// last of those over their limit (quota descriptors excepted) wins over all.
fn envoy_ratelimit(names: &[Box<str>; 3], lines: &[Line<'_>], list: &mut List) {
    let mut chosen: Option<&Line<'_>> = None;
    for line in lines {
        let smaller =
            chosen.is_none_or(|so_far| line.decision.remaining < so_far.decision.remaining);
        if smaller || (line.code == Code::OverLimit && !line.quota) {
            chosen = Some(line);
        }
    }
    let Some(Line { decision, .. }) = chosen else { return };
    let values = [decision.limit, decision.remaining, decision.reset_after.ceil_secs()];
    for (name, value) in names.iter().zip(values) {
        list.push((Cow::Owned(name.to_string()), value.to_string()));
    }
}

/// How the answer came about, for people and tests: one element per descriptor.
fn how<S: Store>(decided: &[Decided<'_, S>]) -> String {
    let mut text = String::new();
    for one in decided {
        if !text.is_empty() {
            text.push_str(", ");
        }
        let rule = match (one.target.rule(), &one.cause) {
            (Some(rule), _) => ietf::quotable(&rule.label),
            (None, Cause::Counted { .. } | Cause::Fallback { .. }) => "override".into(),
            (None, _) => "none".into(),
        };
        let (fallback, cause) = match one.cause {
            Cause::Fallback { by, error, .. } => (by.word(), Some(error.word())),
            _ => ("none", None),
        };
        let mode = one.target.rule().map_or("exact", |rule| rule.mode.word());
        let _ = write!(text, "rule={rule};mode={mode};fallback={fallback}");
        if let Some(cause) = cause {
            let _ = write!(text, ";cause={cause}");
        }
    }
    text
}

impl Line<'_> {
    /// The reported tier.
    pub(super) fn tier(&self) -> Option<&Tier> {
        self.limit.tiers.get(self.decision.tier)
    }

    /// How much of the limit is left, as a fixed-point number: an order of all lines, also of those
    /// that let nothing pass. A bucket's limit is its size, not its rate.
    fn share_left(&self) -> u128 {
        let full = self.tier().map_or(0, |tier| match self.limit.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => tier.burst,
            _ => tier.requests,
        });
        let left = u128::from(self.decision.remaining) << 64;
        left.checked_div(u128::from(full)).unwrap_or(0)
    }

    fn window_secs(&self) -> u64 {
        self.tier().map_or(1, |tier| tier.window.ceil_secs())
    }
}
