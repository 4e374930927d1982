//! The state machines: one message to one counter, integers only, with twins in `lua/` for Redis.
//!
//! A step arrives with everything computed that does not need the state, so what is left is
//! `+ - max <` on integers below 2^53, which doubles hold exactly too. The one product is in
//! `pair`, split so that this stays true.
//!
//! Laws, which tests hold them to:
//! - A refused step and a peek leave the state as it was; the one exception is `count_denied`.
//! - All tiers are checked first, then all are written.
//! - Stored instants never move backwards, even when the clock does.
//! - A state that has expired, or that belongs to another algorithm or another number of tiers
//!   (the rule was changed), is as good as none.

use smallvec::SmallVec;

use crate::time::Micros;

mod entries;
mod fixed_window;
mod gcra;
mod lease;
mod reservation;
mod sliding_window;
mod tier;

pub use entries::{Entries, EntriesTier};
pub use fixed_window::{FixedWindow, FixedWindowTier};
pub use gcra::{GcraTier, GcraTime};
pub use lease::{Lease, LeaseId, ParseLeaseIdError};
pub use reservation::{RESERVATIONS_MAX, Reserved};
pub use sliding_window::{SLIDING_COUNT_END, SlidingWindow, SlidingWindowTier};

/// One past the largest integer in a step or a state: below it, doubles are exact.
pub const INTEGER_END: u64 = 1 << 53;

/// One message to a store about one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The instant of the request.
    pub now: Micros,
    /// What it takes (positive), looks at (0) or gives back (negative), in hits.
    pub hits: i64,
    /// Denied hits are recorded as well.
    pub count_denied: bool,
    /// The lease that the hits are taken under, or that they end.
    pub lease: Option<Lease>,
    /// The algorithm and its numbers, one set per tier.
    pub params: Params,
}

/// Which algorithm, with its numbers per tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Params {
    /// fixed_window
    FixedWindow(SmallVec<[FixedWindowTier; 1]>),
    /// sliding_window
    SlidingWindow(SmallVec<[SlidingWindowTier; 1]>),
    /// token_bucket and leaky_bucket
    Gcra(SmallVec<[GcraTier; 1]>),
    /// sliding_window_log
    Log(SmallVec<[EntriesTier; 1]>),
    /// concurrency: holds that have owners
    Slots(SmallVec<[EntriesTier; 1]>),
}

/// What a store keeps for one counter. Absent means empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// fixed_window
    FixedWindow(Tiers<FixedWindow>),
    /// sliding_window
    SlidingWindow(Tiers<SlidingWindow>),
    /// token_bucket and leaky_bucket
    Gcra(Tiers<GcraTime>),
    /// sliding_window_log and concurrency: all tiers share the entries.
    Entries(Box<Entries>),
    /// Any but concurrency, while reservations are open.
    Reserved(Box<Reserved>),
}

/// One state per tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tiers<T> {
    /// Of a rule with one tier.
    One(T),
    /// Of a rule with several.
    Many(Box<[T]>),
}

/// A store's answer to one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Every tier let the hits pass.
    pub allowed: bool,
    /// What each tier's state says after the step, for `algorithm::report`.
    pub tiers: SmallVec<[TierResult; 1]>,
}

/// What one tier looks like after a step; the meaning of the numbers is its algorithm's.
///
/// | algorithm | a | b | c |
/// | --- | --- | --- | --- |
/// | count | hits | start of their window | 0 |
/// | pair | hits in the present window | in the one before | start of the present one |
/// | tat | arrival time, whole microseconds | its part | 0 |
/// | log, slots | units in use | when the unit leaves that is waited for, or 0 | 0 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierResult {
    /// This tier alone would have let the hits pass.
    pub allowed: bool,
    /// First number.
    pub a: u64,
    /// Second number.
    pub b: u64,
    /// Third number.
    pub c: u64,
}

impl Step {
    /// The same step under a lease.
    pub fn with_lease(mut self, lease: Lease) -> Step {
        self.lease = Some(lease);
        self
    }

    /// Applies the step to a counter, in place.
    pub fn apply(&self, state: &mut Option<State>) -> Outcome {
        match &self.params {
            Params::Slots(tiers) => entries::apply(self, tiers, true, state),
            _ => reservation::apply(self, state),
        }
    }

    /// The state that the counter was left in, as far as `outcome` of this step tells it: turned to
    /// the step's instant, and without reservations. `None` for a log and for slots, whose outcomes
    /// do not.
    pub fn state_after(&self, outcome: &Outcome) -> Option<State> {
        let seen = &outcome.tiers;
        let state = match &self.params {
            Params::FixedWindow(_) => State::FixedWindow(Tiers::each(seen, |seen| FixedWindow {
                start: Micros(seen.b),
                count: seen.a,
            })),
            Params::SlidingWindow(_) => State::SlidingWindow(Tiers::each(seen, |seen| {
                SlidingWindow { start: Micros(seen.c), current: seen.a, previous: seen.b }
            })),
            Params::Gcra(_) => {
                State::Gcra(Tiers::each(seen, |seen| GcraTime { micros: seen.a, part: seen.b }))
            }
            Params::Log(_) | Params::Slots(_) => return None,
        };
        Some(state)
    }

    /// From when on `state` says nothing any more: a counter without it would answer the same.
    pub fn expires_at(&self, state: &State) -> Micros {
        match (&self.params, state) {
            (Params::FixedWindow(tiers), State::FixedWindow(kept)) => tier::expires(tiers, kept),
            (Params::SlidingWindow(tiers), State::SlidingWindow(kept)) => {
                tier::expires(tiers, kept)
            }
            (Params::Gcra(tiers), State::Gcra(kept)) => tier::expires(tiers, kept),
            (Params::Log(tiers) | Params::Slots(tiers), State::Entries(holds)) => {
                holds.expires(tiers)
            }
            (_, State::Reserved(reserved)) => {
                let counted = reserved.counted.as_ref();
                counted.map_or(Micros::ZERO, |state| self.expires_at(state)).max(reserved.until)
            }
            _ => Micros::ZERO,
        }
    }

    /// How much of the limit `state` holds at the step's instant, and so how much would be
    /// forgotten
    /// without it: 0..=65534 for the fullest tier's share, 65535 when one is at or over its limit.
    pub fn fullness(&self, state: &State) -> u16 {
        match (&self.params, state) {
            (Params::FixedWindow(tiers), State::FixedWindow(kept)) => tier::fullness(tiers, kept),
            (Params::SlidingWindow(tiers), State::SlidingWindow(kept)) => {
                tier::fullness(tiers, kept)
            }
            (Params::Gcra(tiers), State::Gcra(kept)) => tier::fullness(tiers, kept),
            (Params::Log(tiers) | Params::Slots(tiers), State::Entries(holds)) => {
                holds.fullness(tiers)
            }
            (_, State::Reserved(reserved)) => {
                reserved.counted.as_ref().map_or(0, |state| self.fullness(state))
            }
            _ => 0,
        }
    }
}

impl State {
    /// Memory that the state holds beside its own size.
    pub fn heap_bytes(&self) -> usize {
        match self {
            State::FixedWindow(tiers) => tiers.heap_bytes(),
            State::SlidingWindow(tiers) => tiers.heap_bytes(),
            State::Gcra(tiers) => tiers.heap_bytes(),
            State::Entries(holds) => holds.heap_bytes(),
            State::Reserved(reserved) => {
                reserved.heap_bytes() + reserved.counted.as_ref().map_or(0, State::heap_bytes)
            }
        }
    }
}

impl<T: Copy> Tiers<T> {
    /// These tiers.
    pub fn from_slice(tiers: &[T]) -> Tiers<T> {
        match tiers {
            [one] => Tiers::One(*one),
            many => Tiers::Many(many.into()),
        }
    }

    fn each(seen: &[TierResult], state: impl Fn(&TierResult) -> T) -> Tiers<T> {
        match seen {
            [one] => Tiers::One(state(one)),
            many => Tiers::Many(many.iter().map(state).collect()),
        }
    }

    /// Every tier's state, in the rule's order.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Tiers::One(one) => std::slice::from_ref(one),
            Tiers::Many(many) => many,
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Tiers::One(_) => 0,
            Tiers::Many(many) => size_of_val(&**many),
        }
    }
}
