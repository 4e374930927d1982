//! Leased limits: which limits support credits, when credits end, and how they are returned. Pure.
//! The proof is in `docs/design/modes.md`.

use std::iter::zip;

use super::demand::DRAW_AHEAD;
use crate::algorithm;
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::{GcraTier, Outcome, SlidingWindowTier, State, Step, StepParams, TierResult};
use crate::time::Micros;

/// The shortest time in which a bucket with credits for later requests fills. Credits of a faster
/// one would drain before they are spent.
pub(crate) const FILL_TIME_MIN: Micros = Micros::from_millis(80);

/// The share of a bucket, or of the period, in which its credits should be replaced early, as a
/// shift: an eighth.
const LEAD_SHIFT: u32 = 3;

/// The most credits that a bucket draws in place of those that drain, per credit that is spent.
pub(crate) const DRAINED_MAX: u64 = 8;

/// The credits of one refill of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CreditBatch {
    /// Unspent credits.
    pub(super) credits: u64,
    /// Drawn credits.
    pub(super) drawn: u64,
    /// The instant at which the credits expire.
    pub(super) until: Micros,
}

/// A limit whose hits an instance can draw ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeasedLimit {
    limit: Limit,
    /// The time in which the fastest tier of a bucket fills; `None` for windows.
    fill_time: Option<Micros>,
}

impl LeasedLimit {
    /// The leased form of `limit`; `None` if it does not support credits.
    pub(super) fn of(limit: &Limit) -> Option<LeasedLimit> {
        let fill_time = match limit.algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingWindow => None,
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                if limit.tiers.iter().any(|tier: &Tier| tier.requests == 0) {
                    return None;
                }
                Some(fill_time(&algorithm::plan(limit, 0, Micros::ZERO).params))
            }
            Algorithm::SlidingWindowLog | Algorithm::Concurrency => return None,
        };
        if limit.count_denied {
            return None;
        }
        Some(LeasedLimit { limit: limit.clone(), fill_time })
    }

    /// The limit of the rule.
    pub(super) fn as_limit(&self) -> &Limit {
        &self.limit
    }

    /// A step on the counter.
    pub(super) fn plan(&self, hits: i64, now: Micros) -> Step {
        algorithm::plan(&self.limit, hits, now)
    }

    /// The time for which credits drawn at `now` are useful.
    pub(super) fn life_at(&self, now: Micros) -> Micros {
        if let Some(fill_time) = self.fill_time {
            return if fill_time < FILL_TIME_MIN { Micros::ZERO } else { Micros(fill_time.0 >> 1) };
        }
        self.window_of(now).unwrap_or_default().saturating_sub(now)
    }

    /// The end of the window at `now` that ends first; `None` for a bucket.
    pub(super) fn window_of(&self, now: Micros) -> Option<Micros> {
        match self.plan(0, now).params {
            StepParams::FixedWindow(tiers) => tiers.iter().map(|tier| tier.end).min(),
            StepParams::SlidingWindow(tiers) => {
                tiers.iter().map(|tier| tier.start.saturating_add(tier.window)).min()
            }
            StepParams::Gcra(_) | StepParams::Log(_) | StepParams::Slots(_) => None,
        }
    }

    /// The time before the end of credits at which they should be replaced. 0 for windows, whose
    /// credits cannot be replaced early.
    pub(super) fn lead(&self) -> Micros {
        Micros(self.fill_time.unwrap_or_default().min(DRAW_AHEAD).0 >> LEAD_SHIFT)
    }

    /// The credits to have at `now`, if requests are going to spend `want` of them: in a bucket,
    /// credits drain while they wait.
    pub(super) fn with_drained(&self, want: u64, last_state: Option<&State>, now: Micros) -> u64 {
        let Some(fill_time) = self.fill_time.filter(|_| want > 1) else { return want };
        let end = now.saturating_add(fill_time.min(DRAW_AHEAD));
        let step = self.plan(0, now);
        let outcome = step.apply(&mut last_state.cloned());
        let StepParams::Gcra(tiers) = &step.params else { return want };
        let drains = |(tier, seen): (&GcraTier, &TierResult)| {
            let time = end.saturating_sub(Micros(seen.arrival_time().micros)).0;
            let one = tier.emission_interval.to_parts(tier.parts).max(1);
            i128::from(time) * i128::from(tier.parts) / one
        };
        let drained = zip(tiers, &outcome.tiers).map(drains).max().unwrap_or(0);
        let drained = u64::try_from(drained).unwrap_or(u64::MAX);
        want.max(drained.min(want.saturating_mul(DRAINED_MAX)))
    }

    /// The end of the window in which the store counted the hits of `step`. It may be a later one
    /// than the planned window.
    pub(super) fn window_end(&self, step: &Step, outcome: &Outcome) -> Micros {
        let seen = &outcome.tiers;
        let until = match &step.params {
            StepParams::FixedWindow(tiers) => {
                let ends =
                    zip(&self.limit.tiers, zip(tiers, seen)).map(|(tier, (planned, seen))| {
                        algorithm::fixed_window_end(tier, planned, seen.fixed_window().start)
                    });
                ends.min()
            }
            StepParams::SlidingWindow(tiers) => zip(tiers, seen)
                .map(|(t, s)| s.sliding_window().start.saturating_add(t.window))
                .min(),
            StepParams::Gcra(_) | StepParams::Log(_) | StepParams::Slots(_) => None,
        };
        until.unwrap_or_default()
    }

    /// Hits that fit at `now` into every tier of a counter in `state`.
    pub(super) fn room(&self, state: Option<&State>, now: Micros) -> u64 {
        let step = self.plan(0, now);
        let outcome = step.apply(&mut state.cloned());
        let tiers = algorithm::report_tiers(&self.limit, &step, &outcome);
        tiers.iter().map(|tier| tier.remaining).min().unwrap_or_default()
    }

    /// The step that returns the credits of a window to it; `None` if it counts no more at `now`.
    pub(super) fn return_step(&self, batch: &CreditBatch, now: Option<Micros>) -> Option<Step> {
        if batch.credits == 0 {
            return None;
        }
        // An instant inside all windows that the credits were drawn in.
        let inside = batch.until.saturating_sub(Micros(1));
        let counts = match self.plan(0, inside).params {
            StepParams::FixedWindow(tiers) => {
                tiers.iter().any(|tier| now.is_none_or(|now| tier.end > now))
            }
            StepParams::SlidingWindow(tiers) => {
                let shows = |tier: &SlidingWindowTier| {
                    let edge = tier.start.saturating_add(tier.window);
                    now.is_none_or(|now| edge.saturating_add(tier.window) > now)
                };
                tiers.iter().any(shows)
            }
            StepParams::Gcra(_) | StepParams::Log(_) | StepParams::Slots(_) => false,
        };
        let credits = i64::try_from(batch.credits).unwrap_or(i64::MAX);
        counts.then(|| self.plan(-credits, inside))
    }
}

/// The time in which the fastest tier of a bucket fills.
fn fill_time(params: &StepParams) -> Micros {
    let StepParams::Gcra(tiers) = params else { return Micros::ZERO };
    let fill_time = |tier: &GcraTier| Micros(tier.latest_allowed.micros.saturating_sub(tier.now.0));
    tiers.iter().map(fill_time).min().unwrap_or_default()
}
