//! Deltas: the difference between two states of a counter, and the step that applies it. Pure.
//!
//! A state is a vector of counts: per tier, a count of each visible window, or the level of a bucket.
//! Counts are compared at one instant, to which both states are advanced. Windows that are no longer
//! visible at that instant are not compared, and need not be sent.
//!
//! For a bucket the difference is a length of time: how much fuller the hits made the bucket, less
//! the part that drained while the bucket would have been empty without them. It is computed from
//! one level and added to another that is never lower. There it is at most what the hits themselves
//! would have added. `docs/design/modes.md` has the proof.

use smallvec::SmallVec;

use crate::algorithm;
use crate::limit::Limit;
use crate::step::{
    FixedWindow, FixedWindowTier, GcraTier, GcraTime, INTEGER_END, SlidingWindow,
    SlidingWindowTier, State, Step, StepParams, TierResult, TierStates,
};
use crate::time::Micros;

/// The counts of one tier, in cells. A bucket uses one cell: its level, in fractions of a microsecond.
type TierCounts = [i128; 2];

/// The counts of all tiers of a counter.
type CounterVector = SmallVec<[TierCounts; 1]>;

/// The cell of the current window, or of the level of a bucket.
const CURRENT: usize = 0;
/// The cell of the previous window.
const PREVIOUS: usize = 1;

/// A step that peeks at a counter of `limit`.
fn peek(limit: &Limit, now: Micros) -> Step {
    algorithm::plan(limit, 0, now)
}

/// The instant at which the states are compared: `now`, or the start of their latest window.
fn instant(states: &[&Option<State>], now: Micros) -> Micros {
    let begun = states.iter().filter_map(|state| state.as_ref()).map(|state| match state {
        State::FixedWindow(tiers) => tiers.as_slice().iter().map(|count| count.start).max(),
        State::SlidingWindow(tiers) => tiers.as_slice().iter().map(|pair| pair.start).max(),
        State::Gcra(_) | State::Entries(_) | State::Reserved(_) => None,
    });
    begun.flatten().max().unwrap_or_default().max(now)
}

/// The counts of the state, advanced to the step's instant.
fn counter_vector(step: &Step, state: &Option<State>) -> CounterVector {
    let outcome = step.apply(&mut state.clone());
    let seen = outcome.tiers.iter().enumerate();
    let counts = |(index, seen): (usize, &TierResult)| match &step.params {
        StepParams::Gcra(tiers) => {
            let parts = tiers.get(index).map_or(1, |tier: &GcraTier| tier.parts);
            [seen.arrival_time().to_parts(parts), 0]
        }
        StepParams::SlidingWindow(_) => {
            let window = seen.sliding_window();
            [i128::from(window.current), i128::from(window.previous)]
        }
        StepParams::FixedWindow(_) => [i128::from(seen.fixed_window().count), 0],
        StepParams::Log(_) | StepParams::Slots(_) => [i128::from(seen.units().0), 0],
    };
    seen.map(counts).collect()
}

/// `state + (later - earlier)`: a known state plus the hits counted between two others. It never
/// falls below an empty counter.
pub(super) fn add_delta(
    limit: &Limit,
    now: Micros,
    state: &Option<State>,
    later: &Option<State>,
    earlier: &Option<State>,
) -> Option<State> {
    let step = peek(limit, instant(&[state, later, earlier], now));
    let (state, later) = (counter_vector(&step, state), counter_vector(&step, later));
    let earlier = counter_vector(&step, earlier);
    let sum = |index: usize, cell: usize| {
        let of = |vector: &CounterVector| vector.get(index).map_or(0, |counts| counts[cell]);
        of(&state) + of(&later) - of(&earlier)
    };
    let count = |index, cell, end: u64| {
        u64::try_from(sum(index, cell).max(0)).unwrap_or(u64::MAX).min(end - 1)
    };
    match &step.params {
        StepParams::FixedWindow(tiers) => {
            let tiers = tiers.iter().enumerate();
            let kept = tiers.map(|(i, tier)| FixedWindow {
                start: tier.start,
                count: count(i, CURRENT, INTEGER_END),
            });
            Some(State::FixedWindow(TierStates::from_slice(&kept.collect::<Vec<_>>())))
        }
        StepParams::SlidingWindow(tiers) => {
            let kept = tiers.iter().enumerate().map(|(i, tier)| SlidingWindow {
                start: tier.start,
                current: count(i, CURRENT, SlidingWindowTier::ALREADY_ADMITTED),
                previous: count(i, PREVIOUS, SlidingWindowTier::ALREADY_ADMITTED),
            });
            Some(State::SlidingWindow(TierStates::from_slice(&kept.collect::<Vec<_>>())))
        }
        StepParams::Gcra(tiers) => {
            let kept = tiers.iter().enumerate().map(|(i, tier)| {
                let empty = i128::from(tier.now.0) * i128::from(tier.parts);
                GcraTime::from_parts(sum(i, CURRENT).max(empty), tier.parts)
            });
            Some(State::Gcra(TierStates::from_slice(&kept.collect::<Vec<_>>())))
        }
        StepParams::Log(_) | StepParams::Slots(_) => None,
    }
}

/// Whether every cell of `state` is at least as large as that of `other`.
pub(super) fn includes(
    limit: &Limit,
    now: Micros,
    state: &Option<State>,
    other: &Option<State>,
) -> bool {
    let step = peek(limit, instant(&[state, other], now));
    let (state, other) = (counter_vector(&step, state), counter_vector(&step, other));
    state.iter().zip(&other).all(|(state, other)| state[0] >= other[0] && state[1] >= other[1])
}

/// The next step that takes a counter from state `from` to `to`, regardless of its limit; `None` if
/// they are equal. A step adds or gives back the same number of hits in every cell that it touches.
/// So several steps may be needed where the tiers' windows started at different times.
pub(super) fn next_step(
    limit: &Limit,
    now: Micros,
    from: &Option<State>,
    to: &Option<State>,
) -> Option<Step> {
    let mut step = peek(limit, instant(&[from, to], now));
    let (from, to) = (counter_vector(&step, from), counter_vector(&step, to));
    let missing: CounterVector =
        to.iter().zip(&from).map(|(to, from)| [to[0] - from[0], to[1] - from[1]]).collect();
    // Additions come before refunds.
    let sign =
        [1, -1].into_iter().find(|sign| missing.iter().flatten().any(|cell| cell * sign > 0))?;
    // The older window of a tier comes first, because it expires sooner.
    let cell =
        |counts: &TierCounts| [PREVIOUS, CURRENT].into_iter().find(|&cell| counts[cell] * sign > 0);
    let amount = |counts: &TierCounts| cell(counts).map(|cell| counts[cell] * sign);
    let hits = missing.iter().filter_map(amount).min()?;
    let chosen: SmallVec<[Option<usize>; 1]> = missing.iter().map(cell).collect();
    let hits = match &mut step.params {
        StepParams::FixedWindow(tiers) => {
            for (tier, cell) in tiers.iter_mut().zip(chosen) {
                *tier = fixed_tier(*tier, cell);
            }
            hits
        }
        StepParams::SlidingWindow(tiers) => {
            for (tier, cell) in tiers.iter_mut().zip(chosen) {
                *tier = sliding_tier(*tier, cell);
            }
            hits
        }
        StepParams::Gcra(tiers) => {
            for ((tier, cell), counts) in tiers.iter_mut().zip(chosen).zip(&missing) {
                let length = cell.map_or(0, |cell| counts[cell] * sign);
                tier.cost = GcraTime::from_parts(length, tier.parts);
                // The debt is unlimited, because the hits have already passed.
                tier.latest_denied = GcraTime::LAST;
            }
            1
        }
        StepParams::Log(_) | StepParams::Slots(_) => return None,
    };
    step.hits = i64::try_from(hits * sign).unwrap_or(0).clamp(1 - (1 << 52), (1 << 52) - 1);
    step.count_denied = true;
    Some(step)
}

/// The tier of a fixed window. Without a cell it is set to a window that has ended, so that the
/// step does not touch it.
fn fixed_tier(tier: FixedWindowTier, cell: Option<usize>) -> FixedWindowTier {
    let start = cell.map_or(Micros::ZERO, |_| tier.start);
    FixedWindowTier { start, max: FixedWindowTier::ALREADY_ADMITTED, ..tier }
}

/// The tier of a sliding window, set to the window of the cell. Without a cell the step does not
/// touch it.
fn sliding_tier(tier: SlidingWindowTier, cell: Option<usize>) -> SlidingWindowTier {
    let start = match cell {
        Some(CURRENT) => tier.start,
        Some(_) => tier.start.saturating_sub(tier.window),
        None => Micros::ZERO,
    };
    SlidingWindowTier { start, rest: tier.window, max: SlidingWindowTier::ALREADY_ADMITTED, ..tier }
}

/// Hits by which `state` is over its limit.
pub(super) fn excess(limit: &Limit, now: Micros, state: &Option<State>) -> u64 {
    let step = peek(limit, instant(&[state], now));
    let vector = counter_vector(&step, state);
    let over = |(index, counts): (usize, &TierCounts)| match &step.params {
        StepParams::FixedWindow(tiers) => counts[0] - i128::from(tiers[index].max),
        StepParams::SlidingWindow(tiers) => {
            let tier = &tiers[index];
            let window = i128::from(tier.window.0.max(1));
            counts[0] + counts[1] * i128::from(tier.rest.0) / window - i128::from(tier.max)
        }
        StepParams::Gcra(tiers) => {
            let tier = &tiers[index];
            let over = counts[0] - tier.latest_allowed.to_parts(tier.parts);
            over / tier.emission_interval.to_parts(tier.parts).max(1)
        }
        StepParams::Log(_) | StepParams::Slots(_) => 0,
    };
    let over = vector.iter().enumerate().map(over).max().unwrap_or(0);
    u64::try_from(over.max(0)).unwrap_or(u64::MAX)
}
