//! sliding_window: the count of the present window, plus the share of the one before that is still
//! in sight.
//!
//! ```text
//!   start - window          start      now          start + window
//!        |------ previous ----|-current-|--- rest ---|
//!                   |-- the window that slides ------|   previous shows rest / window of itself
//! ```
//!
//! `used = current + ceil(previous * rest / window)`: rounded up, so it never admits more than the
//! formula in real numbers.

use super::{Reading, Until, window};
use crate::limit::{SLIDING_REQUESTS_END, Tier};
use crate::step::{SlidingWindow, SlidingWindowTier, TierResult};
use crate::time::Micros;

/// One tier's part of a step.
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

/// One tier's part of a decision.
pub(super) fn read(
    tier: &SlidingWindowTier,
    now: Micros,
    seen: &TierResult,
    until: Until,
) -> Reading {
    let pair = SlidingWindow { current: seen.a, previous: seen.b, start: Micros(seen.c) };
    let used = pair.current + tier.shown(pair);
    let target = match until {
        // More than the limit: until empty.
        Until::Fits(hits) => Some(tier.max.saturating_sub(hits)),
        Until::Grows if used == 0 => None,
        Until::Grows => Some(used.min(tier.max).saturating_sub(1)),
    };
    let at = target.filter(|&target| target < used).map(|target| falls_to(tier, pair, target));
    let reset_after = at.unwrap_or(now).saturating_sub(now);
    Reading { capacity: tier.max, used, reset_after }
}

/// When no more than `target` hits are in sight, if none are added.
fn falls_to(tier: &SlidingWindowTier, pair: SlidingWindow, target: u64) -> Micros {
    // The most of `count`'s window that may still be in sight.
    let rest = |room: u64, count: u64| {
        let rest = u128::from(room) * u128::from(tier.window.0) / u128::from(count.max(1));
        Micros(u64::try_from(rest).unwrap_or(u64::MAX))
    };
    let edge = pair.start.saturating_add(tier.window);
    if pair.current <= target {
        edge.saturating_sub(rest(target - pair.current, pair.previous))
    } else {
        edge.saturating_add(tier.window).saturating_sub(rest(target, pair.current))
    }
}
