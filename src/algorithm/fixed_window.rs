//! The algorithm fixed_window: one count per window. Windows are aligned to the epoch, or to the
//! calendar of a zone.

use super::{ResetOn, TierUsage, window};
use crate::limit::{CalendarSpan, HITS_END, Tier};
use crate::step::{FixedWindowTier, TierResult};
use crate::time::Micros;

/// Plans one tier of a step.
pub(super) fn plan(tier: &Tier, now: Micros) -> FixedWindowTier {
    let max = tier.requests.min(HITS_END - 1);
    if let Some(calendar) = &tier.calendar {
        let CalendarSpan { start, end, next_end } = calendar.span_at(now);
        let kept_for = end.saturating_sub(start).max(next_end.saturating_sub(end));
        return FixedWindowTier { start, end, kept_for, max };
    }
    let window = window(tier);
    FixedWindowTier::new(Micros(now.0 - now.0 % window), Micros(window), max)
}

/// The end of the window that starts at `start`, as the counter's state has it. It is a later window
/// than `planned` if the step's clock is behind.
pub(crate) fn window_end(tier: &Tier, planned: &FixedWindowTier, start: Micros) -> Micros {
    if start == planned.start {
        return planned.end;
    }
    match &tier.calendar {
        Some(calendar) => calendar.window_at(start).1,
        None => start.saturating_add(planned.end.saturating_sub(planned.start)),
    }
}

/// The usage of one tier after a step. Reset-after is the rest of the window, but 0 if another tier
/// denied.
pub(super) fn usage(
    tier: &Tier,
    planned: &FixedWindowTier,
    now: Micros,
    result: &TierResult,
    reset_on: ResetOn,
) -> TierUsage {
    let state = result.fixed_window();
    let at = match reset_on {
        ResetOn::HitsFit(hits) if state.count.saturating_add(hits) <= planned.max => now,
        _ => window_end(tier, planned, state.start),
    };
    TierUsage { capacity: planned.max, used: state.count, reset_after: at.saturating_sub(now) }
}
