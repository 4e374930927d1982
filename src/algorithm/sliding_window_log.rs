//! The algorithms sliding_window_log and concurrency. Slots expire by the same rule as logged hits.
//!
//! A hit counts in `(now - window, now]`. A hit that is exactly one window old does not count.

use super::{TierUsage, window};
use crate::limit::{ENTRIES_MAX, Tier};
use crate::step::{EntriesTier, TierResult};
use crate::time::Micros;

/// Plans one tier of a step.
pub(super) fn plan(tier: &Tier, now: Micros) -> EntriesTier {
    let window = window(tier);
    EntriesTier {
        after: Micros((now.0 + 1).saturating_sub(window)),
        window: Micros(window),
        max: tier.requests.min(ENTRIES_MAX),
    }
}

/// The usage of one tier after a step.
pub(super) fn usage(tier: &EntriesTier, now: Micros, result: &TierResult) -> TierUsage {
    let (used, expire_at) = result.units();
    TierUsage { capacity: tier.max, used, reset_after: expire_at.saturating_sub(now) }
}
