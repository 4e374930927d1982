//! Decisions counted per rule, under the incumbent's stat keys.
//!
//! Counters outlive reloads: a rule that comes back under the same stat key goes on counting. The
//! number of series is bounded by the rules, and by [`Decisions::max_series`] for rules whose stat
//! key holds values of requests (`detailed_metric`, `value_to_metric`).

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hashbrown::HashMap;

use crate::decision::{Cause, Code, Decision, Status, Verdict};
use crate::descriptor::Request;
use crate::rules::{Rule, RuleSet};

/// Hits of one stat key, by what became of them. The names and the arithmetic are those of
/// envoyproxy/ratelimit.
#[derive(Debug, Default)]
pub struct RuleStats {
    /// Hits asked for.
    pub total_hits: AtomicU64,
    /// Hits that passed.
    pub within_limit: AtomicU64,
    /// Hits that passed in the last part of the limit (beyond four fifths).
    pub near_limit: AtomicU64,
    /// Hits beyond the limit.
    pub over_limit: AtomicU64,
    /// Hits beyond the limit of a rule in shadow mode.
    pub shadow_mode: AtomicU64,
    /// Hits decided by the fallback.
    pub fallback: AtomicU64,
    /// Hits given back.
    pub negative_hits: AtomicU64,
}

/// The share of a limit from which on hits count as near it, in tenths: the incumbent's default.
const NEAR_LIMIT: u64 = 8;

/// Length of a stat key that holds values of requests, beyond which it is folded. With the number
/// of series it bounds the memory of all names, and the size of a page of metrics.
const VALUE_KEY_BYTES_MAX: usize = 256;

/// The statistics of every rule of one [`RuleSet`], found by rule index.
#[derive(Debug, Default)]
pub struct Slots(Vec<OnceLock<Arc<RuleStats>>>);

impl Slots {
    /// Empty slots for every rule of `rules`.
    pub fn of(rules: &RuleSet) -> Slots {
        Slots(rules.rules().iter().map(|_| OnceLock::new()).collect())
    }
}

type Series = HashMap<(Arc<str>, Box<str>), Arc<RuleStats>>;

/// All decisions of this process.
#[derive(Debug)]
pub struct Decisions {
    series: Mutex<Series>,
    max_series: usize,
    /// Requests that may pass.
    pub ok: AtomicU64,
    /// Requests over their limit.
    pub over_limit: AtomicU64,
    /// Requests over their limit that global shadow mode let pass.
    pub global_shadow: AtomicU64,
    /// Requests refused because they were not valid.
    pub invalid: AtomicU64,
    /// Descriptors of domains that no file defines.
    pub unknown_domain: AtomicU64,
    /// Descriptors that no rule limits.
    pub no_rule: AtomicU64,
    /// Hits whose own series would have been one too many, counted under the rule's keys instead.
    pub folded: AtomicU64,
}

impl Decisions {
    /// Nothing counted yet; at most `max_series` stat keys that hold values of requests.
    pub fn new(max_series: usize) -> Decisions {
        Decisions {
            series: Mutex::default(),
            max_series,
            ok: AtomicU64::new(0),
            over_limit: AtomicU64::new(0),
            global_shadow: AtomicU64::new(0),
            invalid: AtomicU64::new(0),
            unknown_domain: AtomicU64::new(0),
            no_rule: AtomicU64::new(0),
            folded: AtomicU64::new(0),
        }
    }

    /// Counts one verdict. `slots` belongs to the same `rules` that decided it.
    pub fn record(&self, rules: &RuleSet, slots: &Slots, request: &Request<'_>, verdict: &Verdict) {
        let requests = match verdict.code {
            Code::Ok => &self.ok,
            Code::OverLimit => &self.over_limit,
        };
        add(requests, 1);
        add(&self.global_shadow, u64::from(verdict.shadowed));
        for (descriptor, status) in request.descriptors.iter().zip(&verdict.statuses) {
            match status.cause {
                Cause::UnknownDomain => add(&self.unknown_domain, 1),
                Cause::NoRule => add(&self.no_rule, 1),
                Cause::Replaced(_) | Cause::Unlimited(_) => {}
                Cause::Counted { rule: Some(index), .. }
                | Cause::Fallback { rule: Some(index), .. } => {
                    let Some(rule) = rules.rules().get(index) else { continue };
                    match rule.stat_key(descriptor.entries) {
                        Cow::Borrowed(key) => match slots.0.get(index) {
                            Some(slot) => {
                                slot.get_or_init(|| self.stats(rule, key, usize::MAX))
                                    .record(status);
                            }
                            None => self.stats(rule, key, usize::MAX).record(status),
                        },
                        Cow::Owned(key) => self.stats(rule, &key, self.max_series).record(status),
                    }
                }
                // A limit that the proxy sent has no rule to count under; its number of series
                // would be the client's to choose.
                Cause::Counted { rule: None, .. } | Cause::Fallback { rule: None, .. } => {}
            }
        }
    }

    /// The statistics under `key`, or under the rule's keys when `key` is long or there would be
    /// more than `most`: clients choose the values in it.
    fn stats(&self, rule: &Rule, key: &str, most: usize) -> Arc<RuleStats> {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let written = || (rule.domain.clone(), Box::from(rule.written_stat_key()));
        if most < usize::MAX && key.len() > VALUE_KEY_BYTES_MAX {
            add(&self.folded, 1);
            return series.entry(written()).or_default().clone();
        }
        let name = (rule.domain.clone(), Box::from(key));
        if let Some(stats) = series.get(&name) {
            return stats.clone();
        }
        if series.len() < most {
            return series.entry(name).or_default().clone();
        }
        add(&self.folded, 1);
        series.entry(written()).or_default().clone()
    }

    /// Calls `each` with domain, stat key and statistics, in order of their names.
    pub fn each(&self, mut each: impl FnMut(&str, &str, &RuleStats)) {
        let mut all: Vec<_> = {
            let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
            series.iter().map(|(name, stats)| (name.clone(), stats.clone())).collect()
        };
        all.sort_by(|a, b| a.0.cmp(&b.0));
        for ((domain, key), stats) in &all {
            each(domain, key, stats);
        }
    }
}

impl RuleStats {
    fn record(&self, status: &Status) {
        match status.cause {
            Cause::Counted { hits, decision, shadow, .. } => self.count(hits, &decision, shadow),
            Cause::Fallback { hits, .. } => {
                let hits = u64::try_from(hits).unwrap_or(0);
                add(&self.total_hits, hits);
                add(&self.fallback, hits);
            }
            _ => {}
        }
    }

    /// Splits the hits at the near and at the full limit, as envoyproxy/ratelimit does: what went
    /// past each of the two, of the use before and after the request.
    fn count(&self, hits: i64, decision: &Decision, shadow: bool) {
        let Ok(hits) = u64::try_from(hits) else {
            return add(&self.negative_hits, hits.unsigned_abs());
        };
        add(&self.total_hits, hits);
        let limit = decision.limit;
        let near = limit / 10 * NEAR_LIMIT + limit % 10 * NEAR_LIMIT / 10;
        if decision.allowed {
            let before = decision.used.saturating_sub(hits);
            add(&self.within_limit, hits);
            add(&self.near_limit, decision.used.saturating_sub(near.max(before)));
            return;
        }
        // Only a fixed window counts denied hits, and its use then goes past the limit. Where
        // nothing was counted, the whole request is beyond.
        let counted = decision.used > limit;
        let before = if counted { decision.used.saturating_sub(hits) } else { limit };
        let over = hits.min(decision.used.saturating_sub(limit.max(before)));
        let over = if counted { over } else { hits };
        add(&self.over_limit, over);
        add(&self.near_limit, limit.saturating_sub(near.max(before)));
        add(&self.shadow_mode, if shadow { over } else { 0 });
    }
}

fn add(counter: &AtomicU64, amount: u64) {
    if amount > 0 {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Micros;

    /// Counts one decision of limit 10 and shows [total, within, near, over, shadow].
    fn counted(hits: i64, used: u64, allowed: bool, shadow: bool) -> [u64; 5] {
        let stats = RuleStats::default();
        let remaining = 10_u64.saturating_sub(used);
        let decision =
            Decision { allowed, tier: 0, limit: 10, remaining, used, reset_after: Micros::ZERO };
        stats.count(hits, &decision, shadow);
        [
            &stats.total_hits,
            &stats.within_limit,
            &stats.near_limit,
            &stats.over_limit,
            &stats.shadow_mode,
        ]
        .map(|counter| counter.load(Ordering::Relaxed))
    }

    #[test]
    fn hits_are_split_at_the_near_and_at_the_full_limit() {
        assert_eq!(counted(1, 1, true, false), [1, 1, 0, 0, 0]);
        assert_eq!(counted(1, 9, true, false), [1, 1, 1, 0, 0], "9 of 10 is near");
        assert_eq!(counted(5, 10, true, false), [5, 5, 2, 0, 0], "of 5 hits 2 were beyond 8");
        assert_eq!(counted(5, 13, false, false), [5, 0, 2, 3, 0], "2 filled it, 3 were over");
        assert_eq!(counted(5, 20, false, false), [5, 0, 0, 5, 0], "it was over before");
        assert_eq!(counted(5, 13, false, true), [5, 0, 2, 3, 3]);
        assert_eq!(counted(5, 8, false, false), [5, 0, 0, 5, 0], "refused without being counted");
        assert_eq!(counted(0, 10, true, false), [0; 5], "a peek counts nothing");
        assert_eq!(counted(-4, 6, true, false), [0; 5], "a refund has its own counter");
    }
}
