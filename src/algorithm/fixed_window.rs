//! The algorithm fixed_window: one count per window, with windows aligned to the epoch.

use super::{ResetOn, TierUsage, window};
use crate::limit::{HITS_END, Tier};
use crate::step::{FixedWindowTier, TierResult};
use crate::time::Micros;

/// Plans one tier of a step.
pub(super) fn plan(tier: &Tier, now: Micros) -> FixedWindowTier {
    let window = window(tier);
    let start = now.0 - now.0 % window;
    let max = tier.requests.min(HITS_END - 1);
    FixedWindowTier { start: Micros(start), end: Micros(start + window), max }
}

/// The usage of one tier after a step. Reset-after is the rest of the window, but 0 if another tier
/// denied.
pub(super) fn usage(
    tier: &FixedWindowTier,
    now: Micros,
    result: &TierResult,
    reset_on: ResetOn,
) -> TierUsage {
    let window = tier.end.saturating_sub(tier.start);
    let state = result.fixed_window();
    let end = state.start.saturating_add(window);
    let at = match reset_on {
        ResetOn::HitsFit(hits) if state.count.saturating_add(hits) <= tier.max => now,
        _ => end,
    };
    TierUsage { capacity: tier.max, used: state.count, reset_after: at.saturating_sub(now) }
}
