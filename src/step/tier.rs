//! TierParams: one tier of an algorithm whose state has a fixed size, and the law that all of them follow.

use smallvec::SmallVec;

use super::{GcraTime, Outcome, State, Step, TierResult, Tiers};
use crate::time::Micros;

/// One tier's numbers. `hits` and all that a method computes stays below 2^53, so that its twin can
/// do the same in doubles.
pub(super) trait TierParams {
    /// What is kept for one tier.
    type State: Copy + PartialEq;

    /// The state as it stands at the step's instant. Absent and expired: the empty one.
    fn turn(&self, kept: Option<Self::State>) -> Self::State;
    /// The hits still pass. With 0: the state is within the limit.
    fn fits(&self, state: Self::State, hits: u64) -> bool;
    /// The state with the hits, which may not fit.
    fn charge(&self, state: Self::State, hits: u64) -> Self::State;
    /// The state with the hits given back, never below empty.
    fn refund(&self, state: Self::State, hits: u64) -> Self::State;
    /// The state with the reservation `made` brought to the hits.
    fn settle(&self, state: Self::State, made: Charge, hits: u64) -> Self::State;
    /// What the hits cost that were just charged to this state, if that is more than their number.
    fn cost(&self, _state: Self::State) -> BucketCost {
        BucketCost::default()
    }
    /// The latest instant the state speaks of.
    fn latest(&self, state: Self::State) -> Micros;
    /// The state's numbers.
    fn seen(&self, state: Self::State) -> [u64; 3];
    /// From when on the state is as good as none.
    fn expires(&self, state: Self::State) -> Micros;
    /// Share of the limit in use: see [`share`].
    fn fullness(&self, state: Self::State) -> u16;
    /// The tiers in `state`, if it is this algorithm's.
    fn tiers(state: &mut State) -> Option<&mut Tiers<Self::State>>;
    /// A counter's state of these tiers.
    fn keep(tiers: Tiers<Self::State>) -> State;
}

/// What one tier remembers of a reservation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    /// When it was charged.
    pub(super) at: Micros,
    /// The hits charged.
    pub(super) hits: u64,
    /// What they cost then.
    pub(super) cost: BucketCost,
}

/// What hits cost in a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BucketCost {
    /// How far they moved the arrival time.
    pub(super) length: GcraTime,
    /// When they will have drained, and with them all that was there before.
    pub(super) drained: Micros,
}

/// `used / max` as 0..=65534, or 65535 from `max` on. A limit of 0 forgets nothing: 0.
pub(super) fn share(used: u64, max: u64) -> u16 {
    if max == 0 {
        0
    } else if used >= max {
        u16::MAX
    } else if let Some(used) = used.checked_mul(u64::from(u16::MAX)) {
        (used / max) as u16
    } else {
        (u128::from(used) * u128::from(u16::MAX) / u128::from(max)) as u16
    }
}

/// The tiers as they are before a step, turned to its instant.
type Turned<M> = SmallVec<[<M as TierParams>::State; 1]>;

fn turned<M: TierParams>(tiers: &[M], state: &mut Option<State>) -> Turned<M> {
    // Of another algorithm or another number of tiers: the rule was changed, and nothing is known.
    let kept = state.as_mut().and_then(M::tiers).map(|kept| kept.as_slice());
    let kept = kept.filter(|kept| kept.len() == tiers.len());
    tiers.iter().enumerate().map(|(i, tier)| tier.turn(kept.map(|kept| kept[i]))).collect()
}

/// Takes, looks at or gives back the step's hits.
pub(super) fn apply<M: TierParams>(step: &Step, tiers: &[M], state: &mut Option<State>) -> Outcome {
    let hits = step.hits.unsigned_abs();
    let fits = |tier: &M, before| step.hits < 0 || tier.fits(before, hits);
    let after = |tier: &M, before, allowed: bool| match step.hits {
        ..=-1 => tier.refund(before, hits),
        1.. if allowed || step.count_denied => tier.charge(before, hits),
        _ => before,
    };
    if let [tier] = tiers {
        // Nearly every limit has one tier: no lists.
        let before = tier.turn(kept_one::<M>(state).copied());
        let allowed = fits(tier, before);
        let after = after(tier, before, allowed);
        if after != before {
            match kept_one::<M>(state) {
                Some(kept) => *kept = after,
                None => *state = Some(M::keep(Tiers::One(after))),
            }
        }
        return Outcome { allowed, tiers: SmallVec::from_buf([seen(tier, after, allowed)]) };
    }
    let before = turned(tiers, state);
    let pairs = || tiers.iter().zip(&before);
    let fits: SmallVec<[bool; 1]> = pairs().map(|(tier, &now)| fits(tier, now)).collect();
    let allowed = fits.iter().all(|&fits| fits);
    let after: Turned<M> = pairs().map(|(tier, &now)| after(tier, now, allowed)).collect();
    write::<M>(state, &before, &after);
    outcome(tiers, &after, &fits)
}

/// The only tier in `state`, if it is this algorithm's and there is one.
fn kept_one<M: TierParams>(state: &mut Option<State>) -> Option<&mut M::State> {
    match state.as_mut().and_then(M::tiers) {
        Some(Tiers::One(kept)) => Some(kept),
        _ => None,
    }
}

/// Brings the reservation that `made` tells of, tier by tier, to the step's hits.
pub(super) fn settle<M: TierParams>(
    step: &Step,
    tiers: &[M],
    state: &mut Option<State>,
    made: impl Fn(usize) -> Option<Charge>,
) -> Outcome {
    let before = turned(tiers, state);
    let settled = |(i, tier): (usize, &M)| match made(i) {
        Some(made) => tier.settle(before[i], made, step.hits.unsigned_abs()),
        None => before[i],
    };
    let after: Turned<M> = tiers.iter().enumerate().map(settled).collect();
    write::<M>(state, &before, &after);
    let fits: SmallVec<[bool; 1]> = tiers.iter().map(|_| true).collect();
    outcome(tiers, &after, &fits)
}

/// Keeps `after`, unless nothing but time has changed it: a refusal, a peek and a refund that finds
/// nothing leave the counter as it was, and create none.
fn write<M: TierParams>(state: &mut Option<State>, before: &[M::State], after: &[M::State]) {
    if before == after {
        return;
    }
    match state.as_mut().and_then(M::tiers) {
        Some(Tiers::Many(kept)) if kept.len() == after.len() => kept.copy_from_slice(after),
        _ => *state = Some(M::keep(Tiers::from_slice(after))),
    }
}

fn outcome<M: TierParams>(tiers: &[M], after: &[M::State], fits: &[bool]) -> Outcome {
    let pairs = tiers.iter().zip(after).zip(fits);
    let seen = pairs.map(|((tier, &state), &allowed)| seen(tier, state, allowed));
    Outcome { allowed: fits.iter().all(|&fits| fits), tiers: seen.collect() }
}

fn seen<M: TierParams>(tier: &M, state: M::State, allowed: bool) -> TierResult {
    let [a, b, c] = tier.seen(state);
    TierResult { allowed, a, b, c }
}

/// The latest instant any tier speaks of.
pub(super) fn latest<M: TierParams>(tiers: &[M], state: &mut Option<State>) -> Micros {
    let turned = turned(tiers, state);
    tiers.iter().zip(turned).map(|(tier, now)| tier.latest(now)).max().unwrap_or_default()
}

/// What the step's hits, just charged to `state`, cost in every tier.
pub(super) fn costs<M: TierParams>(
    tiers: &[M],
    state: &mut Option<State>,
) -> SmallVec<[BucketCost; 1]> {
    let turned = turned(tiers, state);
    tiers.iter().zip(turned).map(|(tier, now)| tier.cost(now)).collect()
}

/// From when on all tiers say nothing.
pub(super) fn expires<M: TierParams>(tiers: &[M], kept: &Tiers<M::State>) -> Micros {
    let kept = kept.as_slice();
    if kept.len() != tiers.len() {
        return Micros::ZERO;
    }
    tiers.iter().zip(kept).map(|(tier, &kept)| tier.expires(kept)).max().unwrap_or_default()
}

/// The fullest tier's share.
pub(super) fn fullness<M: TierParams>(tiers: &[M], kept: &Tiers<M::State>) -> u16 {
    let kept = kept.as_slice();
    if kept.len() != tiers.len() {
        return 0;
    }
    let share = |(tier, &kept): (&M, &M::State)| tier.fullness(tier.turn(Some(kept)));
    tiers.iter().zip(kept).map(share).max().unwrap_or_default()
}
