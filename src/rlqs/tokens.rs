//! A token bucket of the size and rate of an assignment, for callers of this process.
//!
//! It holds billionths of a hit as integers, so that slow rates lose nothing when they are asked often.

use crate::quota::Assignment;
use crate::time::Micros;

/// Parts of one hit.
const PARTS: u128 = 1_000_000_000;

/// The longest time that is refilled at once: half a year. It keeps the products below 2^128.
const REFILL_MAX: Micros = Micros(1 << 44);

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens {
    /// Size in hits.
    max: u64,
    /// Hits per `window`.
    per_window: u64,
    /// Microseconds.
    window: u64,
    /// Parts that are left. Negative: debt.
    level: i128,
    /// Refilled until this instant.
    at: Micros,
}

/// The result of taking hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Whether the hits were taken.
    pub(super) allowed: bool,
    /// Whole hits that are left.
    pub(super) remaining: u64,
    /// The size of the bucket in hits.
    pub(super) max: u64,
    /// If denied, the time until the same hits fit, or until the bucket is full if they never fit. If
    /// allowed, the time until `remaining` next grows, or 0 in a full bucket.
    pub(super) reset_after: Micros,
}

impl Tokens {
    /// A full bucket of `assignment`.
    pub(super) fn full(assignment: Assignment, now: Micros) -> Tokens {
        Tokens::with(assignment, 0, now)
    }

    /// A bucket of `assignment` with `hits`, or full if these are fewer. What exceeds the size stays until it is
    /// taken, or until the next assignment.
    pub(super) fn with(assignment: Assignment, hits: u64, now: Micros) -> Tokens {
        let (max, per_window, window) = numbers(assignment);
        Tokens { max, per_window, window, level: parts(max.max(hits)), at: now }
    }

    /// Changes the size and the rate. The tokens stay, up to the new size.
    pub(super) fn assign(&mut self, assignment: Assignment, now: Micros) {
        if numbers(assignment) == (self.max, self.per_window, self.window) {
            return;
        }
        self.refill(now);
        (self.max, self.per_window, self.window) = numbers(assignment);
        self.level = self.level.min(parts(self.max));
        self.at = self.at.max(now);
    }

    /// Takes `hits` if they fit. A full bucket also allows up to `most` hits, and is then in debt: a
    /// caller with more hits than the bucket holds would never pass otherwise.
    pub(super) fn take(&mut self, hits: u64, most: u64, now: Micros) -> Taken {
        self.refill(now);
        let is_full = self.level >= parts(self.max) && self.max > 0;
        let allowed = parts(hits) <= self.level.max(0) || (is_full && hits <= most);
        if allowed {
            self.level -= parts(hits);
        }
        let wanted = match allowed {
            false if hits <= self.max => parts(hits),
            false => parts(self.max),
            true if self.level >= parts(self.max) => self.level,
            true => (self.level.div_euclid(PARTS as i128) + 1) * PARTS as i128,
        };
        Taken { allowed, reset_after: self.time_until(wanted, now), ..self.left() }
    }

    /// Takes `hits` that were allowed elsewhere, also if they do not fit. The debt is at most `most` hits, or
    /// as much as before.
    pub(super) fn charge(&mut self, hits: u64, most: u64, now: Micros) {
        self.refill(now);
        let floor = self.level.min(-parts(most));
        self.level = (self.level - parts(hits)).max(floor);
    }

    /// Takes the hits of the time since the last call, evenly distributed, or as many as the rate and
    /// the saved tokens pass. Returns how many were missing.
    pub(super) fn take_evenly(&mut self, hits: u64, now: Micros) -> u64 {
        let elapsed = now.saturating_sub(self.at).min(REFILL_MAX);
        let added = u128::from(elapsed.0) * self.rate() / u128::from(self.window);
        let available = self.level.max(0).unsigned_abs().saturating_add(added);
        let taken = hits.min(u64::try_from(available / PARTS).unwrap_or(u64::MAX));
        let left = available - u128::from(taken) * PARTS;
        self.level = i128::try_from(left).unwrap_or(i128::MAX).min(parts(self.max));
        self.at = self.at.max(now);
        hits - taken
    }

    /// Gives hits back, up to the size.
    pub(super) fn give_back(&mut self, hits: u64, now: Micros) -> Taken {
        self.refill(now);
        self.level = (self.level + parts(hits)).min(parts(self.max).max(self.level));
        self.left()
    }

    /// Whether the bucket is full.
    pub(super) fn is_full(&mut self, now: Micros) -> bool {
        self.refill(now);
        self.level >= parts(self.max)
    }

    /// Parts per window.
    fn rate(&self) -> u128 {
        u128::from(self.per_window) * PARTS
    }

    fn left(&self) -> Taken {
        let remaining = u64::try_from(self.level.max(0) / PARTS as i128).unwrap_or(u64::MAX);
        Taken { allowed: true, remaining, max: self.max, reset_after: Micros::ZERO }
    }

    /// Adds the parts of the time until `now`.
    fn refill(&mut self, now: Micros) {
        let elapsed = now.saturating_sub(self.at).min(REFILL_MAX);
        let missing = parts(self.max) - self.level;
        if missing <= 0 || self.per_window == 0 {
            self.at = self.at.max(now);
            return;
        }
        // Below 2^32 (hits) * 2^30 (parts) * 2^44 (time).
        let rate = self.rate();
        let added = u128::from(elapsed.0) * rate / u128::from(self.window);
        if i128::try_from(added).is_ok_and(|added| added < missing) {
            self.level += added as i128;
            // Only the time that these parts take: the rest of a part counts at the next call.
            let used = (added * u128::from(self.window)).div_ceil(rate);
            self.at = self.at.saturating_add(Micros(u64::try_from(used).unwrap_or(0)));
        } else {
            self.level = parts(self.max);
            self.at = self.at.max(now);
        }
    }

    /// The time from `now` until the bucket has `wanted` parts. Bounded by the time to refill it.
    fn time_until(&self, wanted: i128, now: Micros) -> Micros {
        let missing = u128::try_from(wanted.min(parts(self.max)) - self.level).unwrap_or(0);
        let rate = self.rate();
        if missing == 0 || rate == 0 {
            return Micros::ZERO;
        }
        // A debt may be large: a saturated product is a wait of centuries.
        let needed = missing.saturating_mul(u128::from(self.window)).div_ceil(rate);
        let ready = self.at.saturating_add(Micros(u64::try_from(needed).unwrap_or(u64::MAX)));
        ready.saturating_sub(now)
    }
}

/// Size, hits per window, and window in microseconds.
fn numbers(assignment: Assignment) -> (u64, u64, u64) {
    match assignment {
        Assignment::AllowAll => (u64::from(u32::MAX), u64::from(u32::MAX), Micros::SECOND.0),
        Assignment::DenyAll => (0, 0, Micros::SECOND.0),
        Assignment::Bucket { max_tokens, tokens_per_fill, fill_seconds } => {
            let window = Micros::from_secs(u64::from(fill_seconds.max(1)));
            (u64::from(max_tokens), u64::from(tokens_per_fill), window.0)
        }
    }
}

fn parts(hits: u64) -> i128 {
    i128::from(hits) * PARTS as i128
}

#[cfg(test)]
mod tests;
