//! Applies a step (one operation on one counter) to the counter's state, in integers only.
//! `algorithm` plans the step from a limit.
//!
//! A step carries everything that can be computed without the state. What remains is `+ - max <` on
//! integers below 2^53, which doubles hold exactly too, so the Lua scripts in `lua/` do the same in
//! Redis. The only product is in `sliding_window`, split so that it stays below 2^53.
//!
//! Tests check these laws:
//! - A denied step and a peek leave the state unchanged, except denied hits under `count_denied`.
//! - All tiers are checked before any is written.
//! - Stored instants never move backwards, even if the clock does.
//! - A state that has expired counts as empty. So does one of another algorithm or another number
//!   of tiers, which a changed rule left.

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
pub use lease::{Lease, LeaseId, ParseLeaseIdError, gives_back};
pub use reservation::{RESERVATIONS_MAX, Reserved};
pub use sliding_window::{SLIDING_COUNT_END, SlidingWindow, SlidingWindowTier};

pub use crate::limit::TIERS_MAX;

/// Exclusive upper bound of the integers in a step or a state. Below it, doubles are exact.
pub const INTEGER_END: u64 = 1 << 53;

/// One operation on one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The instant of the request.
    pub now: Micros,
    /// Hits to take (positive) or to give back (negative); 0 is a peek.
    pub hits: i64,
    /// Whether denied hits are counted too.
    pub count_denied: bool,
    /// The lease that the step opens or closes.
    pub lease: Option<Lease>,
    /// The algorithm's parameters, one set per tier.
    pub params: StepParams,
}

/// Parameters of each tier, by kind of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepParams {
    /// fixed_window
    FixedWindow(SmallVec<[FixedWindowTier; 1]>),
    /// sliding_window
    SlidingWindow(SmallVec<[SlidingWindowTier; 1]>),
    /// token_bucket and leaky_bucket
    Gcra(SmallVec<[GcraTier; 1]>),
    /// sliding_window_log
    Log(SmallVec<[EntriesTier; 1]>),
    /// concurrency: units that belong to leases
    Slots(SmallVec<[EntriesTier; 1]>),
}

/// What a store keeps for one counter. No state means empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// fixed_window
    FixedWindow(TierStates<FixedWindow>),
    /// sliding_window
    SlidingWindow(TierStates<SlidingWindow>),
    /// token_bucket and leaky_bucket
    Gcra(TierStates<GcraTime>),
    /// sliding_window_log and concurrency: all tiers share the entries.
    Entries(Box<Entries>),
    /// The state of any algorithm except concurrency, while reservations are open.
    Reserved(Box<Reserved>),
}

/// One state per tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierStates<T> {
    /// The state of a rule with one tier.
    One(T),
    /// The states of a rule with several tiers.
    Many(Box<[T]>),
}

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether every tier allowed the hits.
    pub allowed: bool,
    /// Each tier's state after the step, for `algorithm::report`.
    pub tiers: SmallVec<[TierResult; 1]>,
}

/// One tier after a step: whether it allows the hits, and its state as the numbers that the scripts
/// reply. Their meaning depends on the kind of state, so each kind has a method that reads them:
///
/// | state | first | second | third | method |
/// | --- | --- | --- | --- | --- |
/// | fixed_window | hits | start of their window | 0 | [`fixed_window`](TierResult::fixed_window) |
/// | sliding_window | hits in the current window | hits in the previous window | start of the current window | [`sliding_window`](TierResult::sliding_window) |
/// | gcra | theoretical arrival time, whole microseconds | its part | 0 | [`arrival_time`](TierResult::arrival_time) |
/// | log, slots | units in use | instant at which enough units expire, or 0 | 0 | [`units`](TierResult::units) |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierResult {
    /// Whether this tier alone would have allowed the hits.
    pub allowed: bool,
    /// The state; the third number is 0 if it has two.
    pub numbers: [u64; 3],
}

impl TierResult {
    /// The state of a fixed_window tier.
    pub fn fixed_window(&self) -> FixedWindow {
        let [count, start, _] = self.numbers;
        FixedWindow { start: Micros(start), count }
    }

    /// The state of a sliding_window tier.
    pub fn sliding_window(&self) -> SlidingWindow {
        let [current, previous, start] = self.numbers;
        SlidingWindow { start: Micros(start), current, previous }
    }

    /// The theoretical arrival time of a token_bucket or leaky_bucket tier.
    pub fn arrival_time(&self) -> GcraTime {
        let [micros, part, _] = self.numbers;
        GcraTime { micros, part }
    }

    /// The units in use of a tier of a log or of slots, and the instant at which enough of them
    /// expire, or 0.
    pub fn units(&self) -> (u64, Micros) {
        let [used, expires, _] = self.numbers;
        (used, Micros(expires))
    }
}

impl Step {
    /// Returns this step with a lease.
    pub fn with_lease(mut self, lease: Lease) -> Step {
        self.lease = Some(lease);
        self
    }

    /// Whether the step gives hits or a lease back, so that a full counter may have room.
    pub fn gives_back(&self) -> bool {
        gives_back(self.hits, self.lease)
    }

    /// Applies the step to a counter, in place.
    pub fn apply(&self, state: &mut Option<State>) -> Outcome {
        match &self.params {
            StepParams::Slots(tiers) => entries::apply(self, tiers, true, state),
            StepParams::FixedWindow(_)
            | StepParams::SlidingWindow(_)
            | StepParams::Gcra(_)
            | StepParams::Log(_) => reservation::apply(self, state),
        }
    }

    /// The counter's state after this step, from its `outcome`: advanced to the step's instant, and
    /// without reservations. `None` for a log and for slots, whose outcomes lack the entries.
    pub fn state_after(&self, outcome: &Outcome) -> Option<State> {
        let results = &outcome.tiers;
        let state = match &self.params {
            StepParams::FixedWindow(_) => {
                State::FixedWindow(TierStates::from_results(results, TierResult::fixed_window))
            }
            StepParams::SlidingWindow(_) => {
                State::SlidingWindow(TierStates::from_results(results, TierResult::sliding_window))
            }
            StepParams::Gcra(_) => {
                State::Gcra(TierStates::from_results(results, TierResult::arrival_time))
            }
            StepParams::Log(_) | StepParams::Slots(_) => return None,
        };
        Some(state)
    }

    /// The instant from which `state` affects no decision: an empty counter gives the same outcome.
    pub fn expires_at(&self, state: &State) -> Micros {
        match (&self.params, state) {
            (_, State::Reserved(reserved)) => {
                let counted = reserved.counted.as_ref();
                counted.map_or(Micros::ZERO, |state| self.expires_at(state)).max(reserved.until)
            }
            (StepParams::FixedWindow(tiers), _) => tier::expires_at(tiers, state),
            (StepParams::SlidingWindow(tiers), _) => tier::expires_at(tiers, state),
            (StepParams::Gcra(tiers), _) => tier::expires_at(tiers, state),
            (StepParams::Log(tiers) | StepParams::Slots(tiers), _) => {
                entries::expires_at(tiers, state)
            }
        }
    }

    /// The used share of the limit at the step's instant, which an eviction would lose: 0..=65534
    /// for the fullest tier, 65535 when a tier is at or over its limit.
    pub fn fullness(&self, state: &State) -> u16 {
        match (&self.params, state) {
            (_, State::Reserved(reserved)) => {
                reserved.counted.as_ref().map_or(0, |state| self.fullness(state))
            }
            (StepParams::FixedWindow(tiers), _) => tier::fullness(tiers, state),
            (StepParams::SlidingWindow(tiers), _) => tier::fullness(tiers, state),
            (StepParams::Gcra(tiers), _) => tier::fullness(tiers, state),
            (StepParams::Log(tiers) | StepParams::Slots(tiers), _) => {
                entries::fullness(tiers, state)
            }
        }
    }
}

impl State {
    /// Heap memory of the state in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            State::FixedWindow(tiers) => tiers.heap_bytes(),
            State::SlidingWindow(tiers) => tiers.heap_bytes(),
            State::Gcra(tiers) => tiers.heap_bytes(),
            State::Entries(entries) => entries.heap_bytes(),
            State::Reserved(reserved) => {
                reserved.heap_bytes() + reserved.counted.as_ref().map_or(0, State::heap_bytes)
            }
        }
    }
}

impl<T: Copy> TierStates<T> {
    /// The states `tiers`.
    pub fn from_slice(tiers: &[T]) -> TierStates<T> {
        match tiers {
            [one] => TierStates::One(*one),
            many => TierStates::Many(many.into()),
        }
    }

    fn from_results(results: &[TierResult], state: impl Fn(&TierResult) -> T) -> TierStates<T> {
        match results {
            [one] => TierStates::One(state(one)),
            many => TierStates::Many(many.iter().map(state).collect()),
        }
    }

    /// Every tier's state, in the rule's order.
    pub fn as_slice(&self) -> &[T] {
        match self {
            TierStates::One(one) => std::slice::from_ref(one),
            TierStates::Many(many) => many,
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            TierStates::One(_) => 0,
            TierStates::Many(many) => size_of_val(&**many),
        }
    }
}
