//! The algorithms token_bucket and leaky_bucket, which share their arithmetic.
//!
//! The tokens missing from a token bucket are the level of a leaky bucket. Both change by
//! `requests` per window, and hits fit while `level + hits <= burst`. The state is the instant at
//! which the level is 0.

use super::{ResetOn, TierUsage, window};
use crate::limit::{FILL_MAX, HITS_END, Tier};
use crate::step::{GcraTier, GcraTime, TierResult};
use crate::time::Micros;

/// A duration of 142 years, longer than any bucket takes to fill, so it never fits.
const NEVER: u64 = 1 << 52;

/// Plans one tier of a step.
pub(super) fn plan(tier: &Tier, signed: i64, now: Micros, count_denied: bool) -> GcraTier {
    let hits = signed.unsigned_abs();
    let rate = tier.requests.min(HITS_END - 1);
    let parts = rate.max(1);
    let cost = length(hits, tier, parts);
    let emission_interval = if hits == 1 { cost } else { length(1, tier, parts) };
    // A limit of 0 requests blocks everything, so it has no burst.
    let burst = if rate == 0 { 0 } else { tier.burst.min(HITS_END - 1) };
    let full = length(burst, tier, parts).min(GcraTime { micros: FILL_MAX.0, part: 0 });
    let latest_allowed = GcraTime { micros: now.0 + full.micros, part: full.part };
    let latest_denied =
        if count_denied { latest_allowed.plus(full, parts) } else { latest_allowed };
    GcraTier {
        now,
        parts,
        cost,
        emission_interval,
        latest_allowed,
        latest_denied,
        refund_only_at: None,
    }
}

/// `hits * window / requests`, exactly.
fn length(hits: u64, tier: &Tier, parts: u64) -> GcraTime {
    let window = window(tier);
    if hits == parts {
        return GcraTime { micros: window, part: 0 };
    }
    let (micros, part) = match hits.checked_mul(window) {
        Some(total) => (u128::from(total / parts), total % parts),
        None => {
            let total = u128::from(hits) * u128::from(window);
            (total / u128::from(parts), (total % u128::from(parts)) as u64)
        }
    };
    match u64::try_from(micros) {
        Ok(micros) if micros < NEVER => GcraTime { micros, part },
        _ => GcraTime { micros: NEVER, part: 0 },
    }
}

/// The usage of one tier, computed in parts of a microsecond.
pub(super) fn usage(tier: &GcraTier, result: &TierResult, reset_on: ResetOn) -> TierUsage {
    let parts = u128::from(tier.parts);
    let in_parts = |time: GcraTime| time.to_parts(tier.parts).unsigned_abs();
    let interval = in_parts(tier.emission_interval).max(1);
    let now = u128::from(tier.now.0) * parts;
    let arrival = in_parts(result.arrival_time()).max(now);
    let full = in_parts(tier.latest_allowed).saturating_sub(now);
    let level = arrival - now;

    let room = full.saturating_sub(level) / interval;
    let (capacity, used) = (full / interval, level.div_ceil(interval));
    let wanted = match reset_on {
        ResetOn::MoreRemaining if level == 0 => 0,
        ResetOn::MoreRemaining => (room + 1) * interval,
        ResetOn::HitsFit(hits) => u128::from(hits) * interval,
    };
    // The level at which the wanted hits fit; 0 if they exceed the bucket.
    let allowed_level = full.saturating_sub(wanted);
    let wait = level.saturating_sub(allowed_level);
    // The level falls by `parts` per microsecond, from a whole one: `now` has no part.
    let reset_after = Micros(to_u64(wait.div_ceil(parts)));
    TierUsage { capacity: to_u64(capacity), used: to_u64(used), reset_after }
}

fn to_u64(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
