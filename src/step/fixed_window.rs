//! The state of fixed_window: the hits of the current window.

use super::tier::{Charge, TierParams, share};
use super::{INTEGER_END, State, TierStates};
use crate::time::Micros;

/// The parameters of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindowTier {
    /// Start of the window of the step's instant.
    pub start: Micros,
    /// End of that window.
    pub end: Micros,
    /// How long hits are kept from the start of their window: the length of the step's window, or of
    /// the next one if that is longer. The counter may be in the next one, if the step's clock is
    /// behind.
    pub kept_for: Micros,
    /// The limit: hits per window.
    pub max: u64,
}

/// The state of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    /// Start of the counted window.
    pub start: Micros,
    /// Hits in that window.
    pub count: u64,
}

impl FixedWindowTier {
    /// The value of `max` for hits that another instance already allowed. They are counted without
    /// a limit, in the window of the step's instant only.
    pub const ALREADY_ADMITTED: u64 = INTEGER_END;

    /// A window from `start`, among windows of one length.
    pub const fn new(start: Micros, length: Micros, max: u64) -> FixedWindowTier {
        FixedWindowTier { start, end: start.saturating_add(length), kept_for: length, max }
    }
}

impl TierParams for FixedWindowTier {
    type State = FixedWindow;

    fn advance(&self, kept: Option<FixedWindow>) -> FixedWindow {
        // A later window than the step's stays. The clock was set back, and no count may be lost.
        match kept {
            Some(kept) if kept.start >= self.start => kept,
            _ => FixedWindow { start: self.start, count: 0 },
        }
    }

    fn fits(&self, state: FixedWindow, hits: u64) -> bool {
        // Subtracted on the right, because count + hits may be inexact in a double.
        (state.count as i64) <= self.max as i64 - hits as i64
    }

    fn charge(&self, state: FixedWindow, hits: u64) -> FixedWindow {
        if self.max == FixedWindowTier::ALREADY_ADMITTED && state.start > self.start {
            return state; // the window of these hits is over
        }
        FixedWindow { count: state.count + hits.min(INTEGER_END - 1 - state.count), ..state }
    }

    fn refund(&self, state: FixedWindow, hits: u64) -> FixedWindow {
        if state.start > self.start {
            return state; // the window of these hits is over
        }
        subtract(state, hits)
    }

    fn settle(&self, state: FixedWindow, charge: Charge, hits: u64) -> FixedWindow {
        if hits >= charge.hits {
            self.charge(state, hits - charge.hits)
        } else if charge.at >= state.start {
            subtract(state, charge.hits - hits)
        } else {
            state // the charge's window is over
        }
    }

    fn latest_instant(&self, state: FixedWindow) -> Micros {
        state.start
    }

    fn numbers(&self, state: FixedWindow) -> [u64; 3] {
        [state.count, state.start.0, 0]
    }

    fn expires_at(&self, state: FixedWindow) -> Micros {
        let kept_for = if state.count == 0 { Micros::ZERO } else { self.kept_for };
        state.start.saturating_add(kept_for)
    }

    fn fullness(&self, state: FixedWindow) -> u16 {
        share(state.count, self.max)
    }

    fn tiers(state: &State) -> Option<&TierStates<FixedWindow>> {
        match state {
            State::FixedWindow(tiers) => Some(tiers),
            _ => None,
        }
    }

    fn tiers_mut(state: &mut State) -> Option<&mut TierStates<FixedWindow>> {
        match state {
            State::FixedWindow(tiers) => Some(tiers),
            _ => None,
        }
    }

    fn into_state(tiers: TierStates<FixedWindow>) -> State {
        State::FixedWindow(tiers)
    }
}

/// `state` without `hits`, at least 0.
fn subtract(state: FixedWindow, hits: u64) -> FixedWindow {
    FixedWindow { count: state.count - hits.min(state.count), ..state }
}
