//! The algorithm sliding_window: the count of the current window, plus a share of the previous one.
//!
//! ```text
//!   start - window          start      now          start + window
//!        |------ previous ----|-current-|--- rest ---|
//!                   |-- the window that slides ------|   previous counts by rest / window
//! ```
//!
//! `used = current + ceil(previous * rest / window)`. The sum is rounded up, so it never admits
//! more than the formula in real numbers.

use super::{ResetOn, TierUsage, window};
use crate::limit::{SLIDING_REQUESTS_END, Tier};
use crate::step::{SlidingWindow, SlidingWindowTier, TierResult};
use crate::time::Micros;

/// Plans one tier of a step.
pub(super) fn plan(tier: &Tier, now: Micros) -> SlidingWindowTier {
    let window = window(tier);
    let elapsed = now.0 % window;
    SlidingWindowTier {
        start: Micros(now.0 - elapsed),
        window: Micros(window),
        rest: Micros(window - elapsed),
        max: tier.requests.min(SLIDING_REQUESTS_END - 1),
    }
}

/// The usage of one tier after a step.
pub(super) fn usage(
    tier: &SlidingWindowTier,
    now: Micros,
    result: &TierResult,
    reset_on: ResetOn,
) -> TierUsage {
    let state = result.sliding_window();
    let used = state.current + tier.weighted_previous(state);
    let target = match reset_on {
        // More hits than the limit wait for the empty counter.
        ResetOn::HitsFit(hits) => Some(tier.max.saturating_sub(hits)),
        ResetOn::MoreRemaining if used == 0 => None,
        ResetOn::MoreRemaining => Some(used.min(tier.max).saturating_sub(1)),
    };
    let at = target.filter(|&target| target < used).map(|target| falls_to(tier, state, target));
    let reset_after = at.unwrap_or(now).saturating_sub(now);
    TierUsage { capacity: tier.max, used, reset_after }
}

/// The instant at which at most `target` hits are used, if none are added.
fn falls_to(tier: &SlidingWindowTier, state: SlidingWindow, target: u64) -> Micros {
    // The longest part of `count`'s window that may still count.
    let rest = |room: u64, count: u64| {
        let rest = u128::from(room) * u128::from(tier.window.0) / u128::from(count.max(1));
        Micros(u64::try_from(rest).unwrap_or(u64::MAX))
    };
    let edge = state.start.saturating_add(tier.window);
    if state.current <= target {
        edge.saturating_sub(rest(target - state.current, state.previous))
    } else {
        edge.saturating_add(tier.window).saturating_sub(rest(target, state.current))
    }
}
