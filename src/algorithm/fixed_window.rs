//! fixed_window: one count per window, windows aligned to the epoch.

use super::{Reading, Until, window};
use crate::limit::{HITS_END, Tier};
use crate::step::{FixedWindowTier, TierResult};
use crate::time::Micros;

/// One tier's part of a step.
pub(super) fn plan(tier: &Tier, now: Micros) -> FixedWindowTier {
    let window = window(tier);
    let start = now.0 - now.0 % window;
    let max = tier.requests.min(HITS_END - 1);
    FixedWindowTier { start: Micros(start), end: Micros(start + window), max }
}

/// One tier's part of a decision. Reset is the end of the window, unless a denial is not this
/// tier's.
pub(super) fn read(
    tier: &FixedWindowTier,
    now: Micros,
    seen: &TierResult,
    until: Until,
) -> Reading {
    let window = tier.end.saturating_sub(tier.start);
    let end = Micros(seen.b).saturating_add(window);
    let at = match until {
        Until::Fits(hits) if seen.a.saturating_add(hits) <= tier.max => now,
        _ => end,
    };
    Reading { capacity: tier.max, used: seen.a, reset_after: at.saturating_sub(now) }
}
