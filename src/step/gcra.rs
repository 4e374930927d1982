//! GcraTime: the instant at which a bucket is empty again. The algorithm of token_bucket and
//! leaky_bucket.
//!
//! The generic cell rate algorithm keeps one number, the theoretical arrival time: every hit moves
//! it `window / requests` further. That is seldom a whole number of microseconds, and a rounded one
//! would let a bucket of 3 hold 2. So instants here have a fraction, counted in `requests`-ths.
//!
//! ```text
//!    now           tat                     horizon = now + burst * window / requests
//!     |--- level ---|------- tokens left -------|
//! ```

use super::tier::{BucketCost, Charge, TierParams, share};
use super::{INTEGER_END, State, Tiers};
use crate::time::Micros;

/// An instant or a length of time, exact to a fraction of a microsecond. As the state of one tier:
/// the theoretical arrival time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GcraTime {
    /// Whole microseconds.
    pub micros: u64,
    /// `part / parts` of a microsecond more, where `parts` is the tier's; less than `parts`.
    pub part: u64,
}

/// The numbers of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcraTier {
    /// The step's instant.
    pub now: Micros,
    /// How many parts make a microsecond: the tier's requests, at least 1.
    pub parts: u64,
    /// How far the step's hits move the arrival time.
    pub cost: GcraTime,
    /// How far one hit moves it.
    pub one: GcraTime,
    /// The latest arrival time that still passes.
    pub horizon: GcraTime,
    /// The latest arrival time that denied hits can lead to: they run up a debt of one full bucket
    /// at most, or a flood of them would shut the counter for years.
    pub most: GcraTime,
}

impl TierParams for GcraTier {
    type State = GcraTime;

    fn turn(&self, kept: Option<GcraTime>) -> GcraTime {
        let now = GcraTime { micros: self.now.0, part: 0 };
        kept.map_or(now, |kept| now.max(self.in_parts(kept)))
    }

    fn fits(&self, state: GcraTime, _hits: u64) -> bool {
        self.plus(state, self.cost) <= self.horizon
    }

    fn charge(&self, state: GcraTime, _hits: u64) -> GcraTime {
        self.plus(state, self.cost).min(self.most.max(state))
    }

    fn refund(&self, state: GcraTime, _hits: u64) -> GcraTime {
        self.minus(state, self.cost)
    }

    fn settle(&self, state: GcraTime, made: Charge, _hits: u64) -> GcraTime {
        // The true cost is charged whole: it has been used, whatever the bucket says.
        let charged = self.in_parts(made.cost.length);
        if self.cost >= charged {
            self.plus(state, self.length_between(charged, self.cost))
        } else {
            // What has drained since cannot come back. The charge drains after all that was there
            // before it, so this much of it is left; less if the bucket ran empty meanwhile.
            let left = made.cost.drained.saturating_sub(self.now);
            let left = GcraTime { micros: left.0, part: 0 };
            self.minus(state, self.length_between(self.cost, charged).min(left))
        }
    }

    fn cost(&self, state: GcraTime) -> BucketCost {
        BucketCost { length: self.cost, drained: self.expires(state) }
    }

    fn latest(&self, _state: GcraTime) -> Micros {
        Micros::ZERO
    }

    fn seen(&self, state: GcraTime) -> [u64; 3] {
        [state.micros, state.part, 0]
    }

    fn expires(&self, state: GcraTime) -> Micros {
        Micros(state.micros + u64::from(state.part > 0))
    }

    fn fullness(&self, state: GcraTime) -> u16 {
        if self.horizon == (GcraTime { micros: self.now.0, part: 0 }) {
            return 0; // nothing ever passes, so nothing is forgotten
        }
        if self.plus(state, self.one) > self.horizon {
            return u16::MAX;
        }
        share(state.micros - self.now.0, self.horizon.micros - self.now.0).min(u16::MAX - 1)
    }

    fn tiers(state: &mut State) -> Option<&mut Tiers<GcraTime>> {
        match state {
            State::Gcra(tiers) => Some(tiers),
            _ => None,
        }
    }

    fn keep(tiers: Tiers<GcraTime>) -> State {
        State::Gcra(tiers)
    }
}

impl GcraTier {
    /// A state or a cost from before the rule's rate was lowered, whose part is too large: rounded
    /// up.
    fn in_parts(&self, kept: GcraTime) -> GcraTime {
        if kept.part < self.parts { kept } else { GcraTime { micros: kept.micros + 1, part: 0 } }
    }

    /// `a + b`; stops at the last instant that a double can tell from the next.
    fn plus(&self, a: GcraTime, b: GcraTime) -> GcraTime {
        let last = INTEGER_END - 2;
        if a.micros > last - b.micros.min(last) {
            return GcraTime { micros: last, part: 0 };
        }
        let micros = a.micros + b.micros;
        // a.part + b.part may not be exact in a double: compared by what is missing to the next
        // whole.
        let missing = self.parts - b.part;
        if a.part >= missing {
            GcraTime { micros: micros + 1, part: a.part - missing }
        } else {
            GcraTime { micros, part: a.part + b.part }
        }
    }

    /// `a - b`, but not before the step's instant: a bucket is never emptier than empty.
    fn minus(&self, a: GcraTime, b: GcraTime) -> GcraTime {
        let empty = GcraTime { micros: self.now.0, part: 0 };
        if a <= self.plus(empty, b) { empty } else { self.length_between(b, a) }
    }

    /// `to - from`, where `from` is not larger.
    fn length_between(&self, from: GcraTime, to: GcraTime) -> GcraTime {
        if to.part >= from.part {
            GcraTime { micros: to.micros - from.micros, part: to.part - from.part }
        } else {
            GcraTime {
                micros: to.micros - from.micros - 1,
                part: to.part + (self.parts - from.part),
            }
        }
    }
}
