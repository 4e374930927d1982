//! A limit on calls that their client resets before the server has accepted them.
//!
//! A connection may have `RESETS_PER_PENDING * max_pending_resets` such resets in a row. Each call in between
//! that its client does not reset permits one more. A stall of the server causes fewer: the clients reset every
//! call that timed out meanwhile, and a socket holds about 30 000 calls. A flood of resets continues.

/// Premature resets that a connection may have in a row, per unit of `max_pending_resets`. By
/// default they are 32 768.
const RESETS_PER_PENDING: usize = 32;

/// Counts the premature resets of one connection.
#[derive(Debug)]
pub(crate) struct PrematureResets {
    left: usize,
    max: usize,
}

impl PrematureResets {
    /// A limit for `max_pending` resets at a time.
    pub(crate) fn new(max_pending: usize) -> PrematureResets {
        let max = max_pending.saturating_mul(RESETS_PER_PENDING);
        PrematureResets { left: max, max }
    }

    /// Counts a call. One that was not reset offsets one that was.
    pub(crate) fn record(&mut self, is_premature: bool) {
        self.left = match is_premature {
            true => self.left.saturating_sub(1),
            false => self.left.saturating_add(1).min(self.max),
        };
    }

    /// Whether the connection must close.
    pub(crate) fn are_too_many(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `times` calls, of which every `reset`th is reset, are too many resets for `max`.
    fn too_many(max: usize, times: usize, is_reset: impl Fn(usize) -> bool) -> bool {
        let mut resets = PrematureResets::new(max);
        (0..times).any(|call| {
            resets.record(is_reset(call));
            resets.are_too_many()
        })
    }

    #[test]
    fn only_resets_in_a_row_are_too_many() {
        assert!(!too_many(4, 127, |_| true));
        assert!(too_many(4, 128, |_| true));
        assert!(!too_many(4, 100_000, |call| call % 2 == 0));
        assert!(too_many(4, 1000, |call| call % 4 != 0));
        assert!(!too_many(4, 227, |call| call > 100), "earlier calls are no credit, and no debt");
        assert!(too_many(4, 229, |call| call > 100));
        assert!(!too_many(usize::MAX, 1000, |_| true));
    }
}
