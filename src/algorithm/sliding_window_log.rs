//! sliding_window_log: every admission's instant; and concurrency, whose slots leave by the same
//! rule.
//!
//! An admission counts in `(now - window, now]`: one that is exactly a window old is out.

use super::{Reading, window};
use crate::limit::{ENTRIES_MAX, Tier};
use crate::step::{EntriesTier, TierResult};
use crate::time::Micros;

/// One tier's part of a step.
pub(super) fn plan(tier: &Tier, now: Micros) -> EntriesTier {
    let window = window(tier);
    EntriesTier {
        after: Micros((now.0 + 1).saturating_sub(window)),
        window: Micros(window),
        max: tier.requests.min(ENTRIES_MAX),
    }
}

/// One tier's part of a decision.
pub(super) fn read(tier: &EntriesTier, now: Micros, seen: &TierResult) -> Reading {
    Reading { capacity: tier.max, used: seen.a, reset_after: Micros(seen.b).saturating_sub(now) }
}
