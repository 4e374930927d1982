//! The bound on the lines that a log gets per second.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::Micros;

/// The bits of the count. The settings with a bound are at most a million.
const COUNT_BITS: u32 = 24;

/// Counts the lines of the current second.
pub(crate) struct LineRate {
    max: u64,
    /// The second since the epoch, and the lines in it.
    state: AtomicU64,
}

impl LineRate {
    /// A bound of `max` lines per second, below 2^24.
    pub(crate) fn new(max: u32) -> LineRate {
        LineRate { max: u64::from(max), state: AtomicU64::new(0) }
    }

    /// Whether a line at `at` is within the bound. An instant before the current second counts for the
    /// current one: requests are logged in the order of their ends.
    pub(crate) fn admits(&self, at: Micros) -> bool {
        let second = at.0 / Micros::SECOND.0;
        let next = |state: u64| {
            let (current, count) = (state >> COUNT_BITS, state & ((1 << COUNT_BITS) - 1));
            match (second > current, count < self.max) {
                (true, _) => Some((second << COUNT_BITS) + 1),
                (false, true) => Some(state + 1),
                (false, false) => None,
            }
        };
        self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_admits_the_bound() {
        let rate = LineRate::new(2);
        let second = Micros::SECOND.0;
        let start = 1_700_000_000 * second;
        for (at, admitted) in [
            (start, true),
            (start + second - 1, true),
            (start + second - 1, false),
            (start + second, true),
            (start, true),
            (start + second + 5, false),
            (start + 9 * second, true),
        ] {
            assert_eq!(rate.admits(Micros(at)), admitted, "{}", at - start);
        }
        let most = LineRate::new(1_000_000);
        assert!((0..1_000_000).all(|_| most.admits(Micros(start))));
        assert!(!most.admits(Micros(start)));
        assert!(most.admits(Micros(start + second)));
    }
}
