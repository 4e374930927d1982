//! One line about a decided descriptor.

use std::borrow::Cow;

use crate::decision::{Code, DecisionReason, Verdict};
use crate::decision_record;
use crate::descriptor::Request;
use crate::escape::excerpt;
use crate::key::KeySeed;
use crate::limiter::find_counter;
use crate::rules::{RuleSet, ShownRule};
use crate::telemetry::TopDenied;
use crate::time::Micros;

/// Longest domain in a line, in characters.
const CHARS_MAX: usize = 200;

/// The levels of lines about requests that the log shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShownLevels {
    pub(super) info: bool,
    pub(super) debug: bool,
}

impl ShownLevels {
    /// The levels that `log.level` selects. It does not change while the process runs.
    pub(super) fn active() -> ShownLevels {
        ShownLevels {
            info: tracing::enabled!(tracing::Level::INFO),
            debug: tracing::enabled!(tracing::Level::DEBUG),
        }
    }
}

/// The fields of a line, but for the descriptor. A field without a value is missing in the line.
#[derive(Debug)]
pub(super) struct DecisionLine<'a> {
    domain: String,
    rule: Option<String>,
    /// Where it differs from the name.
    selector: Option<String>,
    code: &'static str,
    reason: &'static str,
    /// The hits that were asked for, without the cost of the rule.
    hits: i64,
    limit: Option<u64>,
    used: Option<u64>,
    remaining: Option<u64>,
    reset_after_seconds: Option<f64>,
    /// True if the rule's shadow mode let a denial pass.
    shadow: Option<bool>,
    fallback: Option<&'static str>,
    cause: Option<&'static str>,
    what_if: Option<&'static str>,
    /// The hash of the counter, as at `/top`, `/explain` and `/counters`.
    counter: Option<String>,
    trace_id: Option<Cow<'a, str>>,
    /// The code of the whole request.
    request: &'static str,
}

impl<'a> DecisionLine<'a> {
    /// The line about the descriptor at `index`; `None` if there is none. `span_trace` is the id of the
    /// span's trace.
    pub(super) fn of(
        rules: &RuleSet,
        request: &Request<'a>,
        verdict: &Verdict,
        index: usize,
        counter_seed: &KeySeed,
        span_trace: Option<u128>,
    ) -> Option<DecisionLine<'a>> {
        let descriptor = request.descriptors.get(index)?;
        let status = verdict.statuses.get(index)?;
        let rule = status.reason.rule().and_then(|index| rules.rules().get(index));
        let (fallback, cause) = match status.reason {
            DecisionReason::Fallback { on_error, error, .. } => {
                (Some(on_error.name()), Some(error.name()))
            }
            _ => (None, None),
        };
        let (decision, shadow) = match status.reason {
            DecisionReason::Counted { decision, shadow, .. } => (Some(decision), shadow),
            DecisionReason::Fallback { decision, .. } => (decision, false),
            _ => (None, false),
        };
        let counter = rule.and_then(|_| {
            find_counter(counter_seed, rules, request.domain, descriptor.entries).ok()
        });
        let shown = rule.map(ShownRule::of);
        let (rule, selector) =
            shown.map_or((None, None), |shown| (Some(shown.name), shown.selector));
        let trace_id = match span_trace {
            Some(id) => Some(Cow::Owned(format!("{id:032x}"))),
            None => {
                let caller = request.trace.traceparent.and_then(decision_record::trace_id);
                caller.map(Cow::Borrowed)
            }
        };
        Some(DecisionLine {
            domain: excerpt(request.domain, CHARS_MAX),
            rule,
            selector,
            code: status.code.name(),
            reason: status.reason.name(),
            hits: descriptor.hits(request.hits_addend),
            limit: status.limit.as_ref().map(|limit| limit.requests),
            used: decision.map(|decision| decision.used),
            remaining: status.limit.as_ref().map(|_| status.remaining),
            reset_after_seconds: status.reset_after.map(seconds),
            shadow: decision.filter(|decision| shadow && !decision.allowed).map(|_| true),
            fallback,
            cause,
            what_if: verdict.what_if_code(index).map(Code::name),
            counter: counter.map(|counter| TopDenied::hash(counter.key)),
            trace_id,
            request: verdict.code.name(),
        })
    }

    /// Writes the line at the level `debug`. `descriptor` is the text of the descriptor.
    pub(super) fn write_debug(&self, descriptor: &str) {
        tracing::debug!(
            domain = self.domain.as_str(),
            descriptor,
            rule = self.rule.as_deref(),
            selector = self.selector.as_deref(),
            code = self.code,
            reason = self.reason,
            hits = self.hits,
            limit = self.limit,
            used = self.used,
            remaining = self.remaining,
            reset_after_seconds = self.reset_after_seconds,
            shadow = self.shadow,
            fallback = self.fallback,
            cause = self.cause,
            what_if = self.what_if,
            counter = self.counter.as_deref(),
            trace_id = self.trace_id.as_deref(),
            request = self.request,
            "decided"
        );
    }

    /// Writes the line at the level `info`. `code` is that of the request, `descriptor` the text of the
    /// descriptor, and `descriptors` that of all, if there are several.
    pub(super) fn write_info(&self, code: Code, descriptor: &str, descriptors: Option<&str>) {
        match code {
            Code::OverLimit => tracing::info!(
                domain = self.domain.as_str(),
                descriptor,
                descriptors,
                rule = self.rule.as_deref(),
                selector = self.selector.as_deref(),
                code = self.code,
                reason = self.reason,
                hits = self.hits,
                limit = self.limit,
                used = self.used,
                remaining = self.remaining,
                reset_after_seconds = self.reset_after_seconds,
                shadow = self.shadow,
                fallback = self.fallback,
                cause = self.cause,
                what_if = self.what_if,
                counter = self.counter.as_deref(),
                trace_id = self.trace_id.as_deref(),
                request = self.request,
                "request denied"
            ),
            Code::Ok => tracing::info!(
                domain = self.domain.as_str(),
                descriptor,
                descriptors,
                rule = self.rule.as_deref(),
                selector = self.selector.as_deref(),
                code = self.code,
                reason = self.reason,
                hits = self.hits,
                limit = self.limit,
                used = self.used,
                remaining = self.remaining,
                reset_after_seconds = self.reset_after_seconds,
                shadow = self.shadow,
                fallback = self.fallback,
                cause = self.cause,
                what_if = self.what_if,
                counter = self.counter.as_deref(),
                trace_id = self.trace_id.as_deref(),
                request = self.request,
                "request decided"
            ),
        }
    }
}

fn seconds(length: Micros) -> f64 {
    length.0 as f64 / Micros::SECOND.0 as f64
}
