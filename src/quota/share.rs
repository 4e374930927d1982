//! Shares of a quota, and the quota of a limit.

use std::cmp::Ordering;

use crate::limit::{Indivisible, Limit, Tier};
use crate::time::Micros;

/// All shares of a quota: one share is a billionth of it.
pub const SHARES: u64 = 1_000_000_000;

/// The largest demand, in shares. Larger ones count as this one.
pub const SHARE_MAX: u64 = 1 << 52;

/// What all holders of one counter together may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Hits per window. 0 denies all.
    pub requests: u64,
    /// The window. Never zero if it comes from a valid limit.
    pub window: Micros,
    /// Hits that all holders together may have saved up.
    pub burst: u64,
}

impl Quota {
    /// The quota of a limit: the tier with the lowest rate, and the smallest burst of all tiers. The
    /// burst of a window is `burst_percent` of its requests, at least 1.
    ///
    /// # Errors
    ///
    /// The limit has slots or windows of the calendar.
    pub fn of(limit: &Limit, burst_percent: u64) -> Result<Quota, Indivisible> {
        if limit.counts_slots() {
            return Err(Indivisible::Slots);
        }
        if limit.has_calendar() {
            return Err(Indivisible::Calendar);
        }
        let burst = |tier: &Tier| {
            if limit.algorithm.has_burst() {
                return tier.burst;
            }
            let part = u128::from(tier.requests) * u128::from(burst_percent) / 100;
            u64::try_from(part).unwrap_or(u64::MAX).max(1)
        };
        let tightest = limit.tiers.iter().min_by(|a, b| compare_rates(a, b));
        let burst = limit.tiers.iter().map(burst).min();
        let (Some(tightest), Some(burst)) = (tightest, burst) else {
            return Err(Indivisible::NoRate);
        };
        Ok(Quota { requests: tightest.requests, window: tightest.window, burst })
    }

    /// The share that passes `hits` in `elapsed`, rounded up, at most [`SHARE_MAX`]. It is for
    /// demands: above 2^50 shares its error can exceed one share.
    pub fn share_of(&self, hits: u64, elapsed: Micros) -> u64 {
        if hits == 0 {
            return 0;
        }
        let passed = self.requests as f64 * elapsed.0 as f64;
        if passed == 0.0 {
            return SHARE_MAX;
        }
        let share = hits as f64 * SHARES as f64 * self.window.0 as f64 / passed;
        // The cast saturates.
        (share.ceil() as u64).min(SHARE_MAX)
    }

    /// Whether its rate is lower than that of `other`.
    pub fn is_lower_than(&self, other: &Quota) -> bool {
        let product = |x: u64, y: Micros| u128::from(x) * u128::from(y.0);
        product(self.requests, other.window) < product(other.requests, self.window)
    }

    /// Its rate in hits per second, for pages only.
    pub fn rate(&self) -> f64 {
        self.rate_of(SHARES)
    }

    /// The rate of a share in hits per second, for metrics and pages only.
    pub fn rate_of(&self, share: u64) -> f64 {
        if self.window == Micros::ZERO {
            return 0.0;
        }
        let seconds = self.window.0 as f64 / 1e6;
        self.requests as f64 / seconds * (share as f64 / SHARES as f64)
    }
}

/// The order of two tiers by their rate.
fn compare_rates(a: &Tier, b: &Tier) -> Ordering {
    let product = |x: u64, y: Micros| u128::from(x) * u128::from(y.0);
    product(a.requests, b.window).cmp(&product(b.requests, a.window))
}

#[cfg(test)]
mod tests;
