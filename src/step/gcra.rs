//! The generic cell rate algorithm (GCRA): the state of token_bucket and leaky_bucket.
//!
//! GCRA keeps one number per bucket, the theoretical arrival time (TAT): the instant at which a
//! leaky bucket has drained, and a token bucket is full again. Every hit moves it forward by
//! `window / requests`. That is seldom a whole number of microseconds, and rounding would let a
//! bucket of 3 hold 2. So these instants have a fraction, counted in parts of `1 / requests` of a
//! microsecond.
//!
//! ```text
//!    now           tat                     latest_allowed = now + burst * window / requests
//!     |--- level ---|------- tokens left -------|
//! ```

use super::tier::{BucketCost, Charge, TierParams, share};
use super::{INTEGER_END, State, TierStates};
use crate::time::Micros;

/// An instant or a duration, exact to a fraction of a microsecond. As the state of one tier, the
/// theoretical arrival time. Its methods take the tier's parts per microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GcraTime {
    /// Whole microseconds.
    pub micros: u64,
    /// A further `part / parts` of a microsecond, with the tier's `parts`; below `parts`.
    pub part: u64,
}

/// The parameters of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcraTier {
    /// The step's instant.
    pub now: Micros,
    /// Parts per microsecond: the tier's requests, at least 1.
    pub parts: u64,
    /// The duration by which the step's hits move the arrival time.
    pub cost: GcraTime,
    /// The duration by which one hit moves the arrival time.
    pub emission_interval: GcraTime,
    /// The latest arrival time within the limit.
    pub latest_allowed: GcraTime,
    /// The latest arrival time that denied hits can cause. Their debt is at most one full bucket;
    /// otherwise a flood of them would block the counter for years.
    pub latest_denied: GcraTime,
    /// The only arrival time to which a refund applies; `None` for every one.
    pub refund_only_at: Option<GcraTime>,
}

impl GcraTime {
    /// The last instant that is exact in a double, with any part.
    pub const LAST: GcraTime = GcraTime { micros: INTEGER_END - 2, part: 0 };

    /// `self + other`, at most [`GcraTime::LAST`].
    pub fn plus(self, other: GcraTime, parts: u64) -> GcraTime {
        let last = GcraTime::LAST.micros;
        if self.micros > last - other.micros.min(last) {
            return GcraTime::LAST;
        }
        let micros = self.micros + other.micros;
        // The sum of the parts may be inexact in a double, so `self.part` is compared with what
        // `other.part` lacks of a whole microsecond.
        let missing = parts - other.part;
        if self.part >= missing {
            GcraTime { micros: micros + 1, part: self.part - missing }
        } else {
            GcraTime { micros, part: self.part + other.part }
        }
    }

    /// `self - earlier`, where `earlier` is not larger.
    fn since(self, earlier: GcraTime, parts: u64) -> GcraTime {
        if self.part >= earlier.part {
            GcraTime { micros: self.micros - earlier.micros, part: self.part - earlier.part }
        } else {
            GcraTime {
                micros: self.micros - earlier.micros - 1,
                part: self.part + (parts - earlier.part),
            }
        }
    }

    /// This time as a number of parts. Steps do not use it, because it may exceed a double.
    pub fn to_parts(self, parts: u64) -> i128 {
        i128::from(self.micros) * i128::from(parts) + i128::from(self.part)
    }

    /// The time of `count` parts, at least 0 and at most [`GcraTime::LAST`].
    pub fn from_parts(count: i128, parts: u64) -> GcraTime {
        let (count, parts) = (count.max(0), i128::from(parts.max(1)));
        match u64::try_from(count / parts) {
            Ok(micros) if micros < GcraTime::LAST.micros => {
                GcraTime { micros, part: (count % parts) as u64 }
            }
            _ => GcraTime::LAST,
        }
    }
}

impl TierParams for GcraTier {
    type State = GcraTime;

    fn advance(&self, kept: Option<GcraTime>) -> GcraTime {
        let now = GcraTime { micros: self.now.0, part: 0 };
        kept.map_or(now, |kept| now.max(self.in_parts(kept)))
    }

    fn fits(&self, state: GcraTime, _hits: u64) -> bool {
        state.plus(self.cost, self.parts) <= self.latest_allowed
    }

    fn charge(&self, state: GcraTime, _hits: u64) -> GcraTime {
        state.plus(self.cost, self.parts).min(self.latest_denied.max(state))
    }

    fn refund(&self, state: GcraTime, _hits: u64) -> GcraTime {
        // What an instance drew last may be returned only while no other hit was charged after it.
        if self.refund_only_at.is_some_and(|only| only != state) {
            return state;
        }
        self.minus(state, self.cost)
    }

    fn settle(&self, state: GcraTime, charge: Charge, _hits: u64) -> GcraTime {
        // The actual cost is charged in full, because it was used even if it exceeds the limit.
        let charged = self.in_parts(charge.cost.length);
        if self.cost >= charged {
            state.plus(self.cost.since(charged, self.parts), self.parts)
        } else {
            // Only the part that has not drained can be given back, because later hits have used
            // the rest. The charge has drained at `drained` at the latest, so `drained - now`
            // bounds that part.
            let left = charge.cost.drained.saturating_sub(self.now);
            let left = GcraTime { micros: left.0, part: 0 };
            self.minus(state, charged.since(self.cost, self.parts).min(left))
        }
    }

    fn cost(&self, state: GcraTime) -> BucketCost {
        BucketCost { length: self.cost, drained: self.expires_at(state) }
    }

    fn drain_sooner(&self, before: GcraTime, after: GcraTime) -> Micros {
        if after >= before {
            return Micros::ZERO;
        }
        self.expires_at(before.since(after, self.parts))
    }

    fn latest_instant(&self, _state: GcraTime) -> Micros {
        Micros::ZERO
    }

    fn numbers(&self, state: GcraTime) -> [u64; 3] {
        [state.micros, state.part, 0]
    }

    fn expires_at(&self, state: GcraTime) -> Micros {
        Micros(state.micros + u64::from(state.part > 0))
    }

    fn fullness(&self, state: GcraTime) -> u16 {
        if self.latest_allowed == (GcraTime { micros: self.now.0, part: 0 }) {
            return 0; // nothing ever passes, so an eviction loses nothing
        }
        if state.plus(self.emission_interval, self.parts) > self.latest_allowed {
            return u16::MAX;
        }
        share(state.micros - self.now.0, self.latest_allowed.micros - self.now.0).min(u16::MAX - 1)
    }

    fn tiers(state: &State) -> Option<&TierStates<GcraTime>> {
        match state {
            State::Gcra(tiers) => Some(tiers),
            _ => None,
        }
    }

    fn tiers_mut(state: &mut State) -> Option<&mut TierStates<GcraTime>> {
        match state {
            State::Gcra(tiers) => Some(tiers),
            _ => None,
        }
    }

    fn into_state(tiers: TierStates<GcraTime>) -> State {
        State::Gcra(tiers)
    }
}

impl GcraTier {
    /// Rounds up a time whose part is too large, because the rule had more requests when it was
    /// stored.
    fn in_parts(&self, kept: GcraTime) -> GcraTime {
        if kept.part < self.parts { kept } else { GcraTime { micros: kept.micros + 1, part: 0 } }
    }

    /// `a - b`, at least the step's instant, at which the bucket is empty.
    fn minus(&self, a: GcraTime, b: GcraTime) -> GcraTime {
        let empty = GcraTime { micros: self.now.0, part: 0 };
        if a <= empty.plus(b, self.parts) { empty } else { a.since(b, self.parts) }
    }
}
