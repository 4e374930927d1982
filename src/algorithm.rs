//! From a limit to a step, and from a store's outcome to a decision: all division happens here.
//!
//! Both directions are pure. Limits that [`Limit::check`] refuses are brought to the nearest
//! numbers that can be counted, so that nothing here can overflow.

use smallvec::SmallVec;

use crate::decision::Decision;
use crate::limit::{Algorithm, HITS_END, Limit, SLIDING_REQUESTS_END, Tier, WINDOW_MAX};
use crate::step::{INTEGER_END, Lease, Outcome, Params, SLIDING_COUNT_END, Step, TierResult};
use crate::time::Micros;

mod bucket;
mod fixed_window;
mod sliding_window;
mod sliding_window_log;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod models;
#[cfg(test)]
mod states;

const _: () = assert!(HITS_END == INTEGER_END && SLIDING_REQUESTS_END == SLIDING_COUNT_END);

/// The last instant that is told from the next, in the year 2112: the longest window and the
/// slowest bucket after it still end below 2^53.
const LAST_INSTANT: Micros = Micros((1 << 52) - 1);

/// What a store must be asked to decide `hits` on a counter of `limit` at `now`: hits to take, 0 to
/// look, negative to give back. Under a lease: [`Step::with_lease`].
pub fn plan(limit: &Limit, hits: i64, now: Micros) -> Step {
    let now = now.min(LAST_INSTANT);
    let most = (HITS_END - 1) as i64;
    let hits = hits.clamp(-most, most);
    let tiers = &limit.tiers;
    let params = match limit.algorithm {
        Algorithm::FixedWindow => Params::FixedWindow(each(tiers, |t| fixed_window::plan(t, now))),
        Algorithm::SlidingWindow => {
            Params::SlidingWindow(each(tiers, |t| sliding_window::plan(t, now)))
        }
        Algorithm::SlidingWindowLog => {
            Params::Log(each(tiers, |t| sliding_window_log::plan(t, now)))
        }
        // A slot that nobody gives back leaves as an admission slides out of a log.
        Algorithm::Concurrency => Params::Slots(each(tiers, |t| sliding_window_log::plan(t, now))),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let hits = hits.unsigned_abs();
            Params::Gcra(each(tiers, |t| bucket::plan(t, hits, now, limit.count_denied)))
        }
    };
    let count_denied = limit.count_denied && limit.algorithm != Algorithm::Concurrency;
    Step { now, hits, count_denied, lease: None, params }
}

/// What `plan` makes of each tier. Nearly every limit has one, which needs no list.
fn each<T>(tiers: &[Tier], plan: impl Fn(&Tier) -> T) -> SmallVec<[T; 1]> {
    match tiers {
        [one] => SmallVec::from_buf([plan(one)]),
        many => many.iter().map(plan).collect(),
    }
}

/// What the store's answer to `step`, planned from `limit`, means.
///
/// Reported is the tier that denied (of several the one that will for longest), else the one with
/// the smallest remaining share, the first among equals.
pub fn report(limit: &Limit, step: &Step, outcome: &Outcome) -> Decision {
    let until = match step.lease {
        Some(Lease::Close(_)) => Until::Grows,
        _ if outcome.allowed => Until::Grows,
        _ => Until::Fits(step.hits.unsigned_abs()),
    };
    if let [seen] = &outcome.tiers[..]
        && seen.allowed == outcome.allowed
    {
        let reading = read(step, 0, seen, until).unwrap_or_default();
        return reading.decision(limit, 0, outcome.allowed);
    }
    let mut reported: Option<(usize, Reading)> = None;
    let mut longest = Micros::ZERO;
    for (index, seen) in outcome.tiers.iter().enumerate() {
        let Some(reading) = read(step, index, seen, until) else { continue };
        longest = longest.max(reading.reset_after);
        let denied_longer = |than: &Reading| reading.reset_after > than.reset_after;
        let better = match &reported {
            _ if !outcome.allowed && seen.allowed => false,
            None => true,
            Some((_, best)) if outcome.allowed => reading.is_fuller_than(best),
            Some((_, best)) => denied_longer(best),
        };
        if better {
            reported = Some((index, reading));
        }
    }
    let (tier, mut reading) = reported.unwrap_or_default();
    if !outcome.allowed {
        // Denied hits that were counted may have filled another tier for longer.
        reading.reset_after = longest;
    }
    reading.decision(limit, tier, outcome.allowed)
}

/// What each tier of the counter says by itself, in the rule's order.
pub fn report_tiers(limit: &Limit, step: &Step, outcome: &Outcome) -> Vec<Decision> {
    let alone = |(tier, seen): (usize, &TierResult)| {
        let until = if seen.allowed { Until::Grows } else { Until::Fits(step.hits.unsigned_abs()) };
        let reading = read(step, tier, seen, until)?;
        Some(reading.decision(limit, tier, seen.allowed))
    };
    outcome.tiers.iter().enumerate().filter_map(alone).collect()
}

/// What reset-after waits for.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// The remaining hits to become more. Never, if nothing is used: 0.
    Grows,
    /// So many hits to fit; the counter to be empty, if they are more than the limit.
    Fits(u64),
}

/// One tier's numbers after a step.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// Hits of an empty counter that pass.
    capacity: u64,
    /// Hits on the counter, rounded up.
    used: u64,
    reset_after: Micros,
}

impl Reading {
    /// What it says as the answer of a counter, of which it is number `tier`.
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

    /// A smaller share of it remains.
    fn is_fuller_than(&self, other: &Reading) -> bool {
        let remaining = |of: &Reading| u128::from(of.capacity.saturating_sub(of.used));
        let share = remaining(self) * u128::from(other.capacity);
        let others = remaining(other) * u128::from(self.capacity);
        // Nothing remains of nothing: as full as can be, and equal to any full one.
        share < others || (self.capacity == 0 && remaining(other) > 0)
    }
}

fn read(step: &Step, index: usize, seen: &TierResult, until: Until) -> Option<Reading> {
    match &step.params {
        Params::FixedWindow(tiers) => {
            tiers.get(index).map(|t| fixed_window::read(t, step.now, seen, until))
        }
        Params::SlidingWindow(tiers) => {
            tiers.get(index).map(|t| sliding_window::read(t, step.now, seen, until))
        }
        Params::Gcra(tiers) => tiers.get(index).map(|t| bucket::read(t, seen, until)),
        Params::Log(tiers) | Params::Slots(tiers) => {
            tiers.get(index).map(|t| sliding_window_log::read(t, step.now, seen))
        }
    }
}

/// The tier's window, within its bounds.
fn window(tier: &Tier) -> u64 {
    tier.window.0.clamp(1, WINDOW_MAX.0)
}
