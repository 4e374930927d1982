//! FixedWindow: how many hits fell into the present window. The algorithm of fixed_window.

use super::tier::{Charge, TierParams, share};
use super::{INTEGER_END, State, Tiers};
use crate::time::Micros;

/// The numbers of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindowTier {
    /// Start of the window that the step's instant falls into.
    pub start: Micros,
    /// End of that window.
    pub end: Micros,
    /// Hits that pass per window.
    pub max: u64,
}

/// The state of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    /// Start of the window that was counted.
    pub start: Micros,
    /// Hits in it.
    pub count: u64,
}

impl FixedWindowTier {
    /// In the place of `max`: hits that were let pass elsewhere are counted whatever the limit, each
    /// in the window of the step's instant, and not in a later one.
    pub const UNLIMITED: u64 = INTEGER_END;
}

impl TierParams for FixedWindowTier {
    type State = FixedWindow;

    fn turn(&self, kept: Option<FixedWindow>) -> FixedWindow {
        // A later window than the step's stays: the clock was set back, and no count may be lost.
        match kept {
            Some(kept) if kept.start >= self.start => kept,
            _ => FixedWindow { start: self.start, count: 0 },
        }
    }

    fn fits(&self, state: FixedWindow, hits: u64) -> bool {
        // Subtracted on the right, because count + hits may not be exact in a double.
        (state.count as i64) <= self.max as i64 - hits as i64
    }

    fn charge(&self, state: FixedWindow, hits: u64) -> FixedWindow {
        if self.max == FixedWindowTier::UNLIMITED && state.start > self.start {
            return state; // their window is over
        }
        FixedWindow { count: state.count + hits.min(INTEGER_END - 1 - state.count), ..state }
    }

    fn refund(&self, state: FixedWindow, hits: u64) -> FixedWindow {
        if state.start > self.start {
            return state; // what is given back was taken in a window that is over
        }
        less(state, hits)
    }

    fn settle(&self, state: FixedWindow, made: Charge, hits: u64) -> FixedWindow {
        if hits >= made.hits {
            self.charge(state, hits - made.hits)
        } else if made.at >= state.start {
            less(state, made.hits - hits)
        } else {
            state // its window is over, and with it the charge
        }
    }

    fn latest(&self, state: FixedWindow) -> Micros {
        state.start
    }

    fn seen(&self, state: FixedWindow) -> [u64; 3] {
        [state.count, state.start.0, 0]
    }

    fn expires(&self, state: FixedWindow) -> Micros {
        let window = if state.count == 0 { Micros::ZERO } else { self.window() };
        state.start.saturating_add(window)
    }

    fn fullness(&self, state: FixedWindow) -> u16 {
        share(state.count, self.max)
    }

    fn tiers(state: &mut State) -> Option<&mut Tiers<FixedWindow>> {
        match state {
            State::FixedWindow(tiers) => Some(tiers),
            _ => None,
        }
    }

    fn keep(tiers: Tiers<FixedWindow>) -> State {
        State::FixedWindow(tiers)
    }
}

/// `state` with that many hits less, but not below none.
fn less(state: FixedWindow, hits: u64) -> FixedWindow {
    FixedWindow { count: state.count - hits.min(state.count), ..state }
}

impl FixedWindowTier {
    fn window(&self) -> Micros {
        self.end.saturating_sub(self.start)
    }
}
