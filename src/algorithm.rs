//! Plans the step for a limit, and turns the step's outcome into a decision. `step` applies the
//! step to the state of a counter. No step divides to decide: the plan divides before it, and the
//! report after it.
//!
//! All functions are pure. Limits that [`Limit::check`] rejects are clamped to valid numbers, so
//! that nothing overflows.
//!
//! To add an algorithm: add a variant to [`Algorithm`] and to [`Algorithm::ALL`]. The compiler then
//! lists the matches without it:
//!
//! - `limit.rs`: its name, its bounds, and whether it has a burst
//! - here, and a file in `algorithm/`: the plan of a step and the report of its outcome. A new kind
//!   of state also needs a file in `step/` and its twin in `lua/`.
//! - `rules/compile/limit_reader.rs`, `rules/compile/mode.rs`: the fields of a rule, and the modes
//!   that support it
//! - `rules/lookup/rule.rs`, `rules/show/rlconfig.rs`: its number in identities, and its text
//! - `limiter.rs`, `limiter/fold.rs`: refunds of denied requests, and the unit of the status
//! - `modes/leased/leased_limit.rs`: whether an instance may draw credits
//! - `capacity/counter_steps.rs`: how long its counters live
//!
//! Last come its definition in `docs/reference/algorithms.md` and its rows in `tests/data/vectors.txt`.

use smallvec::SmallVec;

use crate::decision::Decision;
use crate::limit::{Algorithm, HITS_END, Limit, SLIDING_REQUESTS_END, Tier, WINDOW_MAX};
use crate::step::{INTEGER_END, Lease, Outcome, SLIDING_COUNT_END, Step, StepParams, TierResult};
use crate::time::Micros;

mod bucket;
mod fixed_window;
mod sliding_window;
mod sliding_window_log;

pub(crate) use fixed_window::window_end as fixed_window_end;

#[cfg(test)]
mod tests;

const _: () = assert!(HITS_END == INTEGER_END && SLIDING_REQUESTS_END == SLIDING_COUNT_END);

/// The last exact instant, in the year 2112: the longest window and the slowest bucket that start
/// then still end below 2^53 microseconds.
const LAST_INSTANT: Micros = Micros((1 << 52) - 1);

/// The step that decides `hits` on a counter of `limit` at `now`. Positive hits are taken, negative
/// hits are given back, 0 is a peek. For a lease use [`plan_with_lease`].
pub fn plan(limit: &Limit, hits: i64, now: Micros) -> Step {
    let now = now.min(LAST_INSTANT);
    let most = (HITS_END - 1) as i64;
    let hits = hits.clamp(-most, most);
    let tiers = &limit.tiers;
    let params = match limit.algorithm {
        Algorithm::FixedWindow => {
            StepParams::FixedWindow(per_tier(tiers, |t| fixed_window::plan(t, now)))
        }
        Algorithm::SlidingWindow => {
            StepParams::SlidingWindow(per_tier(tiers, |t| sliding_window::plan(t, now)))
        }
        Algorithm::SlidingWindowLog => {
            StepParams::Log(per_tier(tiers, |t| sliding_window_log::plan(t, now)))
        }
        // A slot that is not released expires as a hit leaves a log.
        Algorithm::Concurrency => {
            StepParams::Slots(per_tier(tiers, |t| sliding_window_log::plan(t, now)))
        }
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            StepParams::Gcra(per_tier(tiers, |t| bucket::plan(t, hits, now, limit.count_denied)))
        }
    };
    let count_denied = limit.count_denied && limit.algorithm != Algorithm::Concurrency;
    Step { now, hits, count_denied, lease: None, params }
}

/// [`plan`] under `lease`, if there is one. A release frees all slots of its lease, however many hits
/// it has. So it may be sent again when it is unknown whether it was applied.
pub fn plan_with_lease(limit: &Limit, hits: i64, lease: Option<Lease>, now: Micros) -> Step {
    let releases = matches!(lease, Some(Lease::Close(_))) && limit.counts_slots();
    let hits = if releases && hits != 0 { i64::MIN } else { hits };
    Step { lease, ..plan(limit, hits, now) }
}

/// Applies `plan` to each tier. Nearly every limit has one tier, which needs no heap memory.
fn per_tier<T>(tiers: &[Tier], plan: impl Fn(&Tier) -> T) -> SmallVec<[T; 1]> {
    match tiers {
        [one] => SmallVec::from_buf([plan(one)]),
        many => many.iter().map(plan).collect(),
    }
}

/// The decision for the outcome of `step`, which was planned from `limit`.
///
/// It reports the tier that denied. If several denied, it reports the one with the longest
/// reset-after. If none denied, it reports the tier with the smallest remaining share, the first
/// among equals.
pub fn report(limit: &Limit, step: &Step, outcome: &Outcome) -> Decision {
    let reset_on = match step.lease {
        Some(Lease::Close(_)) => ResetOn::MoreRemaining,
        _ if outcome.allowed => ResetOn::MoreRemaining,
        _ => ResetOn::HitsFit(step.hits.unsigned_abs()),
    };
    if let [result] = &outcome.tiers[..]
        && result.allowed == outcome.allowed
    {
        let usage = tier_usage(limit, step, 0, result, reset_on).unwrap_or_default();
        return usage.decision(limit, 0, outcome.allowed);
    }
    let mut reported: Option<(usize, TierUsage)> = None;
    let mut longest = Micros::ZERO;
    for (index, result) in outcome.tiers.iter().enumerate() {
        let Some(usage) = tier_usage(limit, step, index, result, reset_on) else { continue };
        longest = longest.max(usage.reset_after);
        let denied_longer = |than: &TierUsage| usage.reset_after > than.reset_after;
        let better = match &reported {
            _ if !outcome.allowed && result.allowed => false,
            None => true,
            Some((_, best)) if outcome.allowed => usage.is_fuller_than(best),
            Some((_, best)) => denied_longer(best),
        };
        if better {
            reported = Some((index, usage));
        }
    }
    let (tier, mut usage) = reported.unwrap_or_default();
    if !outcome.allowed {
        // Counted denied hits may have filled another tier for longer.
        usage.reset_after = longest;
    }
    usage.decision(limit, tier, outcome.allowed)
}

/// One decision per tier of the counter, in the rule's order.
pub fn report_tiers(limit: &Limit, step: &Step, outcome: &Outcome) -> Vec<Decision> {
    let report_tier = |(tier, result): (usize, &TierResult)| {
        let reset_on = if result.allowed {
            ResetOn::MoreRemaining
        } else {
            ResetOn::HitsFit(step.hits.unsigned_abs())
        };
        let usage = tier_usage(limit, step, tier, result, reset_on)?;
        Some(usage.decision(limit, tier, result.allowed))
    };
    outcome.tiers.iter().enumerate().filter_map(report_tier).collect()
}

/// The event that reset-after reports.
#[derive(Clone, Copy, Debug)]
enum ResetOn {
    /// The remaining hits increase. If nothing is used, reset-after is 0.
    MoreRemaining,
    /// This number of hits fits. If the number exceeds the limit, the counter is empty.
    HitsFit(u64),
}

/// The usage of one tier after a step.
#[derive(Clone, Copy, Debug, Default)]
struct TierUsage {
    /// Hits that fit into an empty counter.
    capacity: u64,
    /// Hits on the counter, rounded up.
    used: u64,
    reset_after: Micros,
}

impl TierUsage {
    /// The decision that reports this tier, number `tier` of `limit`.
    fn decision(self, limit: &Limit, tier: usize, allowed: bool) -> Decision {
        Decision {
            allowed,
            tier,
            limit: limit.tiers.get(tier).map_or(0, |tier| tier.requests),
            remaining: self.capacity.saturating_sub(self.used),
            used: self.used,
            reset_after: self.reset_after,
        }
    }

    /// Whether a smaller share of this tier remains than of `other`.
    fn is_fuller_than(&self, other: &TierUsage) -> bool {
        let remaining = |of: &TierUsage| u128::from(of.capacity.saturating_sub(of.used));
        let share = remaining(self) * u128::from(other.capacity);
        let others = remaining(other) * u128::from(self.capacity);
        // A tier with capacity 0 counts as full, and equals any other full tier.
        share < others || (self.capacity == 0 && remaining(other) > 0)
    }
}

/// The usage of tier number `index` of `limit` after `step`. `None` if there is no such tier.
fn tier_usage(
    limit: &Limit,
    step: &Step,
    index: usize,
    result: &TierResult,
    reset_on: ResetOn,
) -> Option<TierUsage> {
    match &step.params {
        StepParams::FixedWindow(tiers) => {
            let (tier, planned) = (limit.tiers.get(index)?, tiers.get(index)?);
            Some(fixed_window::usage(tier, planned, step.now, result, reset_on))
        }
        StepParams::SlidingWindow(tiers) => {
            tiers.get(index).map(|t| sliding_window::usage(t, step.now, result, reset_on))
        }
        StepParams::Gcra(tiers) => tiers.get(index).map(|t| bucket::usage(t, result, reset_on)),
        StepParams::Log(tiers) | StepParams::Slots(tiers) => {
            tiers.get(index).map(|t| sliding_window_log::usage(t, step.now, result))
        }
    }
}

/// The tier's window in microseconds, within its bounds.
fn window(tier: &Tier) -> u64 {
    tier.window.0.clamp(1, WINDOW_MAX.0)
}
