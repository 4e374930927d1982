//! Assignments: a share as the token bucket that an Envoy gets.

use super::share::{Quota, SHARES};

/// The tokens per fill that keep the rounding error below 0.1 %.
const TOKENS_MIN: u128 = 1_000;

/// What an Envoy may do in one bucket. The rate of a bucket is `tokens_per_fill` per `fill_seconds`:
/// Envoy refills steadily, and not once per interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// All requests pass.
    AllowAll,
    /// No request passes.
    DenyAll,
    /// A token bucket.
    Bucket {
        /// The size of the bucket, which starts full. At least 1.
        max_tokens: u32,
        /// Tokens per `fill_seconds`. At least 1.
        tokens_per_fill: u32,
        /// Seconds, at least 1: Envoy ignores a shorter interval's limit.
        fill_seconds: u32,
    },
}

impl Assignment {
    /// The bucket with the rate and the burst of a share, at most of the whole quota. Its rate is
    /// never above that of the share, and less than 0.1 % below it up to `u32::MAX` per second.
    /// [`Assignment::DenyAll`] for a rate of 0, or below one hit in `u32::MAX` seconds, 136 years.
    ///
    /// A share of the burst below 1 counts as 1, because a smaller bucket would deny every request.
    pub fn of(quota: &Quota, share: u64) -> Assignment {
        let share = u128::from(share.min(SHARES));
        // The rate is `hits / seconds`, below 2^114 and 2^94.
        let hits = u128::from(quota.requests) * share * 1_000_000;
        let seconds = u128::from(SHARES) * u128::from(quota.window.0);
        if hits == 0 || seconds == 0 {
            return Assignment::DenyAll;
        }
        let (tokens, period) = if hits >= TOKENS_MIN * seconds {
            (hits / seconds, 1)
        } else if hits * TOKENS_MIN <= seconds {
            (1, seconds.div_ceil(hits))
        } else {
            let period = (TOKENS_MIN * seconds).div_ceil(hits);
            (hits * period / seconds, period)
        };
        let Ok(fill_seconds) = u32::try_from(period) else { return Assignment::DenyAll };
        let burst = u128::from(quota.burst) * share / u128::from(SHARES);
        Assignment::Bucket {
            max_tokens: saturated(burst).max(1),
            tokens_per_fill: saturated(tokens),
            fill_seconds,
        }
    }
}

fn saturated(number: u128) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
