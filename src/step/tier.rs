//! Applies steps to states of fixed size per tier: fixed_window, sliding_window and gcra.

use smallvec::SmallVec;

use super::{GcraTime, Outcome, State, Step, TierResult, TierStates};
use crate::time::Micros;

/// The parameters of one tier. `hits` and every result stay below 2^53, so that the Lua twin
/// computes the same in doubles.
pub(super) trait TierParams {
    /// The state of one tier.
    type State: Copy + PartialEq;

    /// The state at the step's instant; the empty state if there is none or it has expired.
    fn advance(&self, kept: Option<Self::State>) -> Self::State;
    /// Whether the hits fit into the limit. With 0 hits, whether the state is within the limit.
    fn fits(&self, state: Self::State, hits: u64) -> bool;
    /// The state with the hits added, even if they do not fit.
    fn charge(&self, state: Self::State, hits: u64) -> Self::State;
    /// The state with the hits given back, at least empty.
    fn refund(&self, state: Self::State, hits: u64) -> Self::State;
    /// The state after replacing the reserved `charge` by the actual hits.
    fn settle(&self, state: Self::State, charge: Charge, hits: u64) -> Self::State;
    /// The cost of the hits that were just charged to `state`, if it depends on more than their
    /// number.
    fn cost(&self, _state: Self::State) -> BucketCost {
        BucketCost::default()
    }
    /// How much earlier hits that were charged later have drained, after a settlement changed the
    /// state from `before` to `after`. In whole microseconds, rounded up.
    fn drain_sooner(&self, _before: Self::State, _after: Self::State) -> Micros {
        Micros::ZERO
    }
    /// The latest instant in the state.
    fn latest_instant(&self, state: Self::State) -> Micros;
    /// The state's numbers, for [`TierResult`].
    fn numbers(&self, state: Self::State) -> [u64; 3];
    /// The instant from which the state counts as empty.
    fn expires_at(&self, state: Self::State) -> Micros;
    /// The used share of the limit: see [`share`].
    fn fullness(&self, state: Self::State) -> u16;
    /// The tiers of `state`, if it is of this kind.
    fn tiers(state: &State) -> Option<&TierStates<Self::State>>;
    /// The tiers of `state` to be changed, if it is of this kind.
    fn tiers_mut(state: &mut State) -> Option<&mut TierStates<Self::State>>;
    /// The state of a counter with these tiers.
    fn into_state(tiers: TierStates<Self::State>) -> State;
}

/// The charge of a reservation to one tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    /// The instant of the charge.
    pub(super) at: Micros,
    /// The charged hits.
    pub(super) hits: u64,
    /// The cost of the hits at that time.
    pub(super) cost: BucketCost,
}

/// The cost of hits in a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BucketCost {
    /// The duration by which the hits moved the theoretical arrival time.
    pub(super) length: GcraTime,
    /// The instant at which the hits, and everything charged before them, have drained. A
    /// settlement of hits that were charged before moves it.
    pub(super) drained: Micros,
}

/// `used / max` scaled to 0..=65534, or 65535 from `max` on. 0 for a limit of 0, whose counters
/// hold nothing.
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

/// The states of `tiers`. `None` for a state of another kind or number of tiers, which is from an
/// older version of the rule and counts as empty.
pub(super) fn kept<'a, P: TierParams>(tiers: &[P], state: &'a State) -> Option<&'a [P::State]> {
    let kept = P::tiers(state)?.as_slice();
    (kept.len() == tiers.len()).then_some(kept)
}

/// The tiers before a step, advanced to its instant.
type Advanced<P> = SmallVec<[<P as TierParams>::State; 1]>;

fn advanced<P: TierParams>(tiers: &[P], state: Option<&State>) -> Advanced<P> {
    let kept = state.and_then(|state| kept(tiers, state));
    tiers.iter().enumerate().map(|(i, tier)| tier.advance(kept.map(|kept| kept[i]))).collect()
}

/// Takes or gives back the step's hits, or peeks.
pub(super) fn apply<P: TierParams>(step: &Step, tiers: &[P], state: &mut Option<State>) -> Outcome {
    let hits = step.hits.unsigned_abs();
    let fits = |tier: &P, before| step.hits < 0 || tier.fits(before, hits);
    let after = |tier: &P, before, allowed: bool| match step.hits {
        ..=-1 => tier.refund(before, hits),
        1.. if allowed || step.count_denied => tier.charge(before, hits),
        _ => before,
    };
    if let [tier] = tiers {
        // Nearly every limit has one tier, which needs no lists.
        let before = tier.advance(kept_one::<P>(state).copied());
        let allowed = fits(tier, before);
        let after = after(tier, before, allowed);
        if after != before {
            match kept_one::<P>(state) {
                Some(kept) => *kept = after,
                None => *state = Some(P::into_state(TierStates::One(after))),
            }
        }
        return Outcome { allowed, tiers: SmallVec::from_buf([tier_result(tier, after, allowed)]) };
    }
    let before = advanced(tiers, state.as_ref());
    let pairs = || tiers.iter().zip(&before);
    let fits: SmallVec<[bool; 1]> = pairs().map(|(tier, &now)| fits(tier, now)).collect();
    let allowed = fits.iter().all(|&fits| fits);
    let after: Advanced<P> = pairs().map(|(tier, &now)| after(tier, now, allowed)).collect();
    write::<P>(state, &before, &after);
    outcome(tiers, &after, &fits)
}

/// The tier of `state`, if it is of this kind and has one tier.
fn kept_one<P: TierParams>(state: &mut Option<State>) -> Option<&mut P::State> {
    match state.as_mut().and_then(P::tiers_mut) {
        Some(TierStates::One(kept)) => Some(kept),
        _ => None,
    }
}

/// Replaces what a reservation charged, as `charge` returns it per tier, by the step's hits. Also
/// returns [`TierParams::drain_sooner`] per tier.
pub(super) fn settle<P: TierParams>(
    step: &Step,
    tiers: &[P],
    state: &mut Option<State>,
    charge: impl Fn(usize) -> Option<Charge>,
) -> (Outcome, SmallVec<[Micros; 1]>) {
    let before = advanced(tiers, state.as_ref());
    let settled = |(i, tier): (usize, &P)| match charge(i) {
        Some(charge) => tier.settle(before[i], charge, step.hits.unsigned_abs()),
        None => before[i],
    };
    let after: Advanced<P> = tiers.iter().enumerate().map(settled).collect();
    write::<P>(state, &before, &after);
    let pairs = tiers.iter().zip(before.iter().zip(&after));
    let sooner = pairs.map(|(tier, (&before, &after))| tier.drain_sooner(before, after)).collect();
    let fits: SmallVec<[bool; 1]> = tiers.iter().map(|_| true).collect();
    (outcome(tiers, &after, &fits), sooner)
}

/// Stores `after` if the step changed it. A denial, a peek and a refund of nothing leave the
/// counter unchanged, and create none.
fn write<P: TierParams>(state: &mut Option<State>, before: &[P::State], after: &[P::State]) {
    if before == after {
        return;
    }
    match state.as_mut().and_then(P::tiers_mut) {
        Some(TierStates::Many(kept)) if kept.len() == after.len() => kept.copy_from_slice(after),
        _ => *state = Some(P::into_state(TierStates::from_slice(after))),
    }
}

fn outcome<P: TierParams>(tiers: &[P], after: &[P::State], fits: &[bool]) -> Outcome {
    let pairs = tiers.iter().zip(after).zip(fits);
    let results = pairs.map(|((tier, &state), &allowed)| tier_result(tier, state, allowed));
    Outcome { allowed: fits.iter().all(|&fits| fits), tiers: results.collect() }
}

fn tier_result<P: TierParams>(tier: &P, state: P::State, allowed: bool) -> TierResult {
    TierResult { allowed, numbers: tier.numbers(state) }
}

/// The latest instant in any tier.
pub(super) fn latest_instant<P: TierParams>(tiers: &[P], state: Option<&State>) -> Micros {
    let advanced = advanced(tiers, state);
    tiers.iter().zip(advanced).map(|(tier, now)| tier.latest_instant(now)).max().unwrap_or_default()
}

/// The cost in every tier of the step's hits, which were just charged to `state`.
pub(super) fn costs<P: TierParams>(
    tiers: &[P],
    state: Option<&State>,
) -> SmallVec<[BucketCost; 1]> {
    let advanced = advanced(tiers, state);
    tiers.iter().zip(advanced).map(|(tier, now)| tier.cost(now)).collect()
}

/// The instant from which all tiers count as empty.
pub(super) fn expires_at<P: TierParams>(tiers: &[P], state: &State) -> Micros {
    let kept = kept(tiers, state).unwrap_or_default();
    tiers.iter().zip(kept).map(|(tier, &kept)| tier.expires_at(kept)).max().unwrap_or_default()
}

/// The share of the fullest tier.
pub(super) fn fullness<P: TierParams>(tiers: &[P], state: &State) -> u16 {
    let kept = kept(tiers, state).unwrap_or_default();
    let share = |(tier, &kept): (&P, &P::State)| tier.fullness(tier.advance(Some(kept)));
    tiers.iter().zip(kept).map(share).max().unwrap_or_default()
}
