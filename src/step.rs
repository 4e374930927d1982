//! The state machines: one message to one counter, integers only, the same in Rust and (in `lua/`) on Redis.
//!
//! A step arrives with everything computed that does not need the state, so what is left is
//! `+ - max <` on integers. A refused step and a peek leave the state as it was; the one exception is
//! a step that says `count_denied`. With several tiers all are checked first, then all are written.

use smallvec::SmallVec;

use crate::time::Micros;

mod count;

pub use count::{Count, CountTier};

/// One message to a store about one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The instant of the request.
    pub now: Micros,
    /// What it takes (positive), looks at (0) or gives back (negative), in hits.
    pub hits: i64,
    /// Denied hits are recorded as well.
    pub count_denied: bool,
    /// The state machine and its numbers, one set per tier.
    pub machine: Machine,
}

/// Which state machine, with its numbers per tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// fixed_window
    Count(SmallVec<[CountTier; 1]>),
}

/// What a store keeps for one counter: the machine's state per tier. Absent means empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// One per tier.
    Count(SmallVec<[Count; 1]>),
}

/// A store's answer to one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Every tier let the hits pass.
    pub allowed: bool,
    /// What each tier's state says after the step, for `algorithm::report`.
    pub tiers: SmallVec<[Seen; 1]>,
}

/// What one tier looks like after a step; the meaning of the numbers is its machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// This tier alone would have let the hits pass.
    pub allowed: bool,
    /// First number.
    pub a: u64,
    /// Second number.
    pub b: u64,
    /// Third number.
    pub c: u64,
}
