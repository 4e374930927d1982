//! The state of sliding_window: the hits of the current and of the previous window.

use super::tier::{Charge, TierParams, share};
use super::{State, TierStates};
use crate::time::Micros;

/// Exclusive upper bound of a window's count: half of what a double holds exactly, see `covers`.
pub const SLIDING_COUNT_END: u64 = 1 << 52;

/// The parameters of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindowTier {
    /// Start of the window of the step's instant.
    pub start: Micros,
    /// Length of a window, below 2^48 microseconds.
    pub window: Micros,
    /// The rest of that window at the step's instant, from 1 to `window`. The same length of the
    /// previous window overlaps the sliding window.
    pub rest: Micros,
    /// The limit: hits per window, below 2^52.
    pub max: u64,
}

/// The state of one tier. Counts stay below 2^52.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// Start of the window of `current`.
    pub start: Micros,
    /// Hits in that window.
    pub current: u64,
    /// Hits in the previous window.
    pub previous: u64,
}

impl SlidingWindowTier {
    /// The value of `max` for hits that another instance already allowed. They are counted without
    /// a limit, in the window of the step's instant, if that is the current or the previous one.
    pub const ALREADY_ADMITTED: u64 = SLIDING_COUNT_END;
}

impl TierParams for SlidingWindowTier {
    type State = SlidingWindow;

    fn advance(&self, kept: Option<SlidingWindow>) -> SlidingWindow {
        match kept {
            // A later window stays too. The clock was set back, and no count may be lost.
            Some(kept) if kept.start >= self.start => kept,
            Some(kept) if kept.start.saturating_add(self.window) == self.start => {
                SlidingWindow { start: self.start, current: 0, previous: kept.current }
            }
            _ => SlidingWindow { start: self.start, current: 0, previous: 0 },
        }
    }

    fn fits(&self, state: SlidingWindow, hits: u64) -> bool {
        // previous * rest / window + current + hits <= max, without dividing.
        let room = self.max as i64 - state.current as i64 - hits as i64;
        room >= 0 && covers(room, self.window, state.previous, self.overlap(state))
    }

    fn charge(&self, state: SlidingWindow, hits: u64) -> SlidingWindow {
        if self.max == SlidingWindowTier::ALREADY_ADMITTED && state.start > self.start {
            if state.start > self.start.saturating_add(self.window) {
                return state; // neither window has these hits
            }
            let room = SLIDING_COUNT_END - 1 - state.previous;
            return SlidingWindow { previous: state.previous + hits.min(room), ..state };
        }
        let room = SLIDING_COUNT_END - 1 - state.current;
        SlidingWindow { current: state.current + hits.min(room), ..state }
    }

    fn refund(&self, state: SlidingWindow, hits: u64) -> SlidingWindow {
        // The newest hits first, as in every algorithm. None of a window after the step's: the hits
        // were taken before it (the step's window is over, or the clock was set back).
        if state.start > self.start.saturating_add(self.window) {
            return state; // neither window has these hits
        }
        let newest = if state.start > self.start { 0 } else { state.current };
        let current = hits.min(newest);
        let previous = (hits - current).min(state.previous);
        SlidingWindow {
            current: state.current - current,
            previous: state.previous - previous,
            ..state
        }
    }

    fn settle(&self, state: SlidingWindow, charge: Charge, hits: u64) -> SlidingWindow {
        if hits >= charge.hits {
            return self.charge(state, hits - charge.hits);
        }
        let back = charge.hits - hits;
        if charge.at >= state.start {
            SlidingWindow { current: state.current - back.min(state.current), ..state }
        } else if charge.at.saturating_add(self.window) >= state.start {
            SlidingWindow { previous: state.previous - back.min(state.previous), ..state }
        } else {
            state // neither window has the charge
        }
    }

    fn latest_instant(&self, state: SlidingWindow) -> Micros {
        state.start
    }

    fn numbers(&self, state: SlidingWindow) -> [u64; 3] {
        [state.current, state.previous, state.start.0]
    }

    fn expires_at(&self, state: SlidingWindow) -> Micros {
        let edge = state.start.saturating_add(self.window);
        match (state.current, state.previous) {
            (0, 0) => state.start,
            (0, _) => edge,
            _ => edge.saturating_add(self.window),
        }
    }

    fn fullness(&self, state: SlidingWindow) -> u16 {
        share(state.current.saturating_add(self.weighted_previous(state)), self.max)
    }

    fn tiers(state: &State) -> Option<&TierStates<SlidingWindow>> {
        match state {
            State::SlidingWindow(tiers) => Some(tiers),
            _ => None,
        }
    }

    fn tiers_mut(state: &mut State) -> Option<&mut TierStates<SlidingWindow>> {
        match state {
            State::SlidingWindow(tiers) => Some(tiers),
            _ => None,
        }
    }

    fn into_state(tiers: TierStates<SlidingWindow>) -> State {
        State::SlidingWindow(tiers)
    }
}

impl SlidingWindowTier {
    /// The length of the previous window that counts: all of it when the clock was set back.
    pub(crate) fn overlap(&self, state: SlidingWindow) -> Micros {
        if state.start > self.start { self.window } else { self.rest }
    }

    /// The hits of the previous window that count, rounded up. For reports only: it divides, so it
    /// has no Lua twin.
    pub(crate) fn weighted_previous(&self, state: SlidingWindow) -> u64 {
        let product = u128::from(state.previous) * u128::from(self.overlap(state).0);
        product.div_ceil(u128::from(self.window.0.max(1))) as u64
    }
}

/// `a * x >= b * y`, exactly, in numbers that are exact in a double.
///
/// The products have up to 100 bits. Each factor is split at bit 24, and the difference is summed
/// column by column; the carry is rounded down, which keeps its sign. With `a, b < 2^52` and
/// `x, y < 2^48` every column and every partial sum stays below 2^53. The upper half of `a` has 28
/// bits and every other half 24, so the widest column is `2^28 * 2^24 + 2^24 * 2^24 + carry < 2^53`.
/// In Lua `>> 24` is `floor(n / 2^24)`, and the lower half is the remainder.
fn covers(a: i64, x: Micros, b: u64, y: Micros) -> bool {
    let split = |n: i64| (n >> 24, n & 0xff_ffff);
    let (a1, a0) = split(a);
    let (x1, x0) = split(x.0 as i64);
    let (b1, b0) = split(b as i64);
    let (y1, y0) = split(y.0 as i64);
    let low = a0 * x0 - b0 * y0;
    let middle = a1 * x0 + a0 * x1 - b1 * y0 - b0 * y1 + (low >> 24);
    let high = a1 * x1 - b1 * y1 + (middle >> 24);
    high >= 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW_END: u64 = 1 << 48;

    /// `covers` computed in doubles, as the Lua twin does it; `None` if a result is inexact.
    fn covers_in_doubles(a: i64, x: u64, b: u64, y: u64) -> Option<bool> {
        let radix = 16_777_216.0_f64;
        let exact = std::cell::Cell::new(true);
        let check = |n: f64| {
            exact.set(exact.get() && n.abs() < 9_007_199_254_740_992.0);
            n
        };
        let split = |n: f64| ((n / radix).floor(), n - (n / radix).floor() * radix);
        let (a1, a0) = split(a as f64);
        let (x1, x0) = split(x as f64);
        let (b1, b0) = split(b as f64);
        let (y1, y0) = split(y as f64);
        let low = check(check(a0 * x0) - check(b0 * y0));
        let mut middle = check(check(a1 * x0) + check(a0 * x1));
        middle = check(middle - check(b1 * y0));
        middle = check(middle - check(b0 * y1));
        middle = check(middle + (low / radix).floor());
        let high = check(check(check(a1 * x1) - check(b1 * y1)) + (middle / radix).floor());
        exact.get().then_some(high >= 0.0)
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 10_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn covers_is_exact_in_doubles(
            a in prop_oneof![0..SLIDING_COUNT_END, Just(SLIDING_COUNT_END - 1), 0..100u64],
            b in prop_oneof![0..SLIDING_COUNT_END, Just(SLIDING_COUNT_END - 1), 0..100u64],
            x in prop_oneof![1..WINDOW_END, Just(WINDOW_END - 1), 1..100u64],
            y in prop_oneof![1..WINDOW_END, Just(WINDOW_END - 1), 1..100u64],
        ) {
            let wide = u128::from(a) * u128::from(x) >= u128::from(b) * u128::from(y);
            prop_assert_eq!(covers(a as i64, Micros(x), b, Micros(y)), wide);
            prop_assert_eq!(covers_in_doubles(a as i64, x, b, y), Some(wide));
        }

        #[test]
        fn covers_is_exact_at_equal_products(
            a in 1..SLIDING_COUNT_END, x in 1..WINDOW_END - 1, b in 1..SLIDING_COUNT_END,
        ) {
            let (a, b) = (a.min(b), a.max(b));
            let edge = u128::from(a) * u128::from(x) / u128::from(b);
            prop_assert!(covers(a as i64, Micros(x), b, Micros(edge as u64)));
            prop_assert!(!covers(a as i64, Micros(x), b, Micros(edge as u64 + 1)));
        }
    }
}
