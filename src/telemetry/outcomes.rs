//! Decisions and hits by outcome, counted in atomics.

use std::sync::atomic::{AtomicU64, Ordering};

use super::history::OutcomeTotals;
use crate::decision::{Decision, DecisionReason, Status};
use crate::store::StoreError;

#[cfg(test)]
mod tests;

/// The outcome of a decision. Each decision has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// The hits passed.
    Within,
    /// The hits passed, and the counter is over four fifths of its limit.
    Near,
    /// The hits were denied.
    Over,
    /// The hits were over the limit of a rule in shadow mode, and passed.
    Shadow,
    /// The store failed, and the fallback decided.
    Fallback,
    /// The hits were refunded.
    Refund,
    /// A temporary change denied the hits.
    Blocked,
    /// A temporary change let the hits pass without a count.
    Bypassed,
}

impl DecisionOutcome {
    /// Every outcome, in the order of their numbers.
    pub const ALL: [DecisionOutcome; 8] = [
        DecisionOutcome::Within,
        DecisionOutcome::Near,
        DecisionOutcome::Over,
        DecisionOutcome::Shadow,
        DecisionOutcome::Fallback,
        DecisionOutcome::Refund,
        DecisionOutcome::Blocked,
        DecisionOutcome::Bypassed,
    ];

    /// The outcome of a counter's `decision` on `hits`. `shadow`: the rule is in shadow mode.
    pub(super) fn of(hits: i64, decision: &Decision, shadow: bool) -> DecisionOutcome {
        match (hits < 0, decision.allowed) {
            (true, _) => DecisionOutcome::Refund,
            (_, true) if decision.used > near_limit(decision.limit) => DecisionOutcome::Near,
            (_, true) => DecisionOutcome::Within,
            (_, false) if shadow => DecisionOutcome::Shadow,
            (_, false) => DecisionOutcome::Over,
        }
    }

    /// Whether a rule has a series of this outcome before its first decision. Few rules ever have a
    /// temporary change.
    pub(super) const fn is_usual(self) -> bool {
        !matches!(self, DecisionOutcome::Blocked | DecisionOutcome::Bypassed)
    }

    /// The outcome's value in labels and in attributes of spans.
    pub const fn name(self) -> &'static str {
        match self {
            DecisionOutcome::Within => "within",
            DecisionOutcome::Near => "near",
            DecisionOutcome::Over => "over",
            DecisionOutcome::Shadow => "shadow",
            DecisionOutcome::Fallback => "fallback",
            DecisionOutcome::Refund => "refund",
            DecisionOutcome::Blocked => "blocked",
            DecisionOutcome::Bypassed => "bypassed",
        }
    }
}

/// The share of a limit over which hits count as near it, in tenths: envoyproxy/ratelimit's default.
const NEAR_LIMIT: u64 = 8;

/// The use over which hits count as near `limit`.
fn near_limit(limit: u64) -> u64 {
    limit / 10 * NEAR_LIMIT + limit % 10 * NEAR_LIMIT / 10
}

/// Decisions of one rule or value.
#[derive(Debug, Default)]
pub(super) struct OutcomeMetrics {
    decisions: [AtomicU64; DecisionOutcome::ALL.len()],
    hits: [AtomicU64; DecisionOutcome::ALL.len()],
    /// Fallbacks by error of the store, in the order of [`StoreError::ALL`].
    causes: [AtomicU64; StoreError::ALL.len()],
    envoy_ratelimit: EnvoyRatelimitHits,
}

/// Hits split as envoyproxy/ratelimit does, where the split differs from the outcomes.
#[derive(Debug, Default)]
struct EnvoyRatelimitHits {
    near_limit: AtomicU64,
    over_limit: AtomicU64,
    shadow_mode: AtomicU64,
}

/// The counts of [`OutcomeMetrics`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeSnapshot {
    /// Decisions by outcome, in the order of [`DecisionOutcome::ALL`].
    pub decisions: [u64; DecisionOutcome::ALL.len()],
    /// Hits of these decisions, in the order of [`DecisionOutcome::ALL`].
    pub hits: [u64; DecisionOutcome::ALL.len()],
    /// Fallbacks by cause, in the order of [`StoreError::ALL`].
    pub causes: [u64; StoreError::ALL.len()],
    /// Hits as envoyproxy/ratelimit counts them.
    pub envoy_ratelimit: EnvoyRatelimitSnapshot,
}

/// Hits by envoyproxy/ratelimit's names and arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnvoyRatelimitSnapshot {
    /// Hits of all requests.
    pub total_hits: u64,
    /// Hits that passed.
    pub within_limit: u64,
    /// Hits over four fifths of the limit.
    pub near_limit: u64,
    /// Hits over the limit.
    pub over_limit: u64,
    /// Hits over the limit of a rule in shadow mode.
    pub shadow_mode: u64,
}

impl OutcomeMetrics {
    /// Counts one status and returns its outcome; `None` for a status without a counter, unless a
    /// temporary change decided it.
    pub(super) fn record(&self, status: &Status) -> Option<DecisionOutcome> {
        match status.reason {
            DecisionReason::Counted { hits, decision, shadow, .. } => {
                Some(self.counted(hits, &decision, shadow))
            }
            DecisionReason::Fallback { hits, error, .. } => {
                if let Some(cause) = StoreError::ALL.iter().position(|known| *known == error) {
                    add(&self.causes[cause], 1);
                }
                self.count(DecisionOutcome::Fallback, hits.max(0).unsigned_abs());
                Some(DecisionOutcome::Fallback)
            }
            DecisionReason::Blocked { hits, .. } => {
                let hits = hits.unsigned_abs();
                self.count(DecisionOutcome::Blocked, hits);
                add(&self.envoy_ratelimit.over_limit, hits);
                Some(DecisionOutcome::Blocked)
            }
            DecisionReason::Bypassed { .. } => {
                self.count(DecisionOutcome::Bypassed, 0);
                Some(DecisionOutcome::Bypassed)
            }
            DecisionReason::UnknownDomain
            | DecisionReason::NoRule
            | DecisionReason::Replaced(_)
            | DecisionReason::Unlimited(_) => None,
        }
    }

    fn count(&self, outcome: DecisionOutcome, hits: u64) {
        add(&self.decisions[outcome as usize], 1);
        add(&self.hits[outcome as usize], hits);
    }

    fn counted(&self, hits: i64, decision: &Decision, shadow: bool) -> DecisionOutcome {
        let size = hits.unsigned_abs();
        let near = near_limit(decision.limit);
        let outcome = DecisionOutcome::of(hits, decision, shadow);
        self.count(outcome, size);
        match outcome {
            DecisionOutcome::Within
            | DecisionOutcome::Refund
            | DecisionOutcome::Fallback
            | DecisionOutcome::Blocked
            | DecisionOutcome::Bypassed => {}
            DecisionOutcome::Near => {
                let before = decision.used.saturating_sub(size);
                add(
                    &self.envoy_ratelimit.near_limit,
                    decision.used.saturating_sub(near.max(before)),
                );
            }
            DecisionOutcome::Over | DecisionOutcome::Shadow => {
                self.split(size, decision, near, shadow)
            }
        }
        outcome
    }

    /// Splits denied hits at the near limit and at the full limit, as envoyproxy/ratelimit does. It
    /// compares the use before and after the request with each of the two.
    fn split(&self, hits: u64, decision: &Decision, near: u64, shadow: bool) {
        let limit = decision.limit;
        // A use over the limit means that the denied hits were counted: `count_denied`, in every
        // algorithm except concurrency. If nothing was counted, all hits of the request are over the
        // limit.
        let counted = decision.used > limit;
        let before = if counted { decision.used.saturating_sub(hits) } else { limit };
        let over = hits.min(decision.used.saturating_sub(limit.max(before)));
        let over = if counted { over } else { hits };
        add(&self.envoy_ratelimit.over_limit, over);
        add(&self.envoy_ratelimit.near_limit, limit.saturating_sub(near.max(before)));
        add(&self.envoy_ratelimit.shadow_mode, if shadow { over } else { 0 });
    }

    /// Adds the fallbacks by cause to `to`.
    pub(super) fn add_causes_to(&self, to: &mut [u64]) {
        for (to, from) in to.iter_mut().zip(&self.causes) {
            *to += from.load(Ordering::Relaxed);
        }
    }

    /// Adds the decisions and hits to `to`. Refunds are no hits.
    pub(super) fn add_totals_to(&self, to: &mut OutcomeTotals) {
        use DecisionOutcome::{Blocked, Fallback, Near, Over, Refund, Shadow, Within};
        let decisions = self.decisions.each_ref().map(|count| count.load(Ordering::Relaxed));
        let of = |outcome: DecisionOutcome| decisions[outcome as usize];
        to.within += of(Within);
        to.near += of(Near);
        to.over += of(Over) + of(Blocked);
        to.shadow += of(Shadow);
        to.fallback += of(Fallback);
        to.decisions += decisions.iter().sum::<u64>();
        for outcome in DecisionOutcome::ALL.into_iter().filter(|outcome| *outcome != Refund) {
            add_wrapping(&mut to.hits, self.hits[outcome as usize].load(Ordering::Relaxed));
        }
    }

    /// Adds the counts to `to`. A sum of hits starts at 0 again after 2^64: a request may have 2^53 - 1
    /// hits, so a few thousand requests suffice.
    pub(super) fn add_to(&self, to: &mut OutcomeSnapshot) {
        let hits = self.hits.each_ref().map(|count| count.load(Ordering::Relaxed));
        for (to, from) in to.decisions.iter_mut().zip(&self.decisions) {
            *to += from.load(Ordering::Relaxed);
        }
        for (to, from) in to.hits.iter_mut().zip(hits) {
            add_wrapping(to, from);
        }
        self.add_causes_to(&mut to.causes);
        let own = |outcome: DecisionOutcome| hits[outcome as usize];
        let within = own(DecisionOutcome::Within).wrapping_add(own(DecisionOutcome::Near));
        let denied = own(DecisionOutcome::Over)
            .wrapping_add(own(DecisionOutcome::Shadow))
            .wrapping_add(own(DecisionOutcome::Blocked));
        let fallback = own(DecisionOutcome::Fallback);
        to.envoy_ratelimit.add(&EnvoyRatelimitSnapshot {
            total_hits: within.wrapping_add(denied).wrapping_add(fallback),
            within_limit: within,
            near_limit: self.envoy_ratelimit.near_limit.load(Ordering::Relaxed),
            over_limit: self.envoy_ratelimit.over_limit.load(Ordering::Relaxed),
            shadow_mode: self.envoy_ratelimit.shadow_mode.load(Ordering::Relaxed),
        });
    }
}

impl EnvoyRatelimitSnapshot {
    /// Adds the hits of other series. A sum starts at 0 again after 2^64.
    pub(super) fn add(&mut self, other: &EnvoyRatelimitSnapshot) {
        add_wrapping(&mut self.total_hits, other.total_hits);
        add_wrapping(&mut self.within_limit, other.within_limit);
        add_wrapping(&mut self.near_limit, other.near_limit);
        add_wrapping(&mut self.over_limit, other.over_limit);
        add_wrapping(&mut self.shadow_mode, other.shadow_mode);
    }
}

fn add_wrapping(sum: &mut u64, number: u64) {
    *sum = sum.wrapping_add(number);
}

impl OutcomeSnapshot {
    /// Decisions with this outcome.
    pub fn decisions(&self, outcome: DecisionOutcome) -> u64 {
        self.decisions[outcome as usize]
    }
}

pub(super) fn add(counter: &AtomicU64, amount: u64) {
    if amount > 0 {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}
