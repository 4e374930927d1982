//! A limit on control frames: frames such as pings and settings that carry no call.
//!
//! Each of them takes one from a budget, which calls and time refill. A usual client sends a few per
//! call and a few per minute. Acknowledgements cost one too: the server sends few frames that need one.

use std::time::{Duration, Instant};

/// Frames that one call adds to the budget: window updates, a reset and a ping.
const FRAMES_PER_CALL: u32 = 4;

/// Frames that one second adds to the budget.
const FRAMES_PER_SECOND: u32 = 100;

/// The budget of one connection.
#[derive(Debug)]
pub(crate) struct ControlFrameBudget {
    left: u32,
    max: u32,
    filled_at: Option<Instant>,
}

impl ControlFrameBudget {
    /// A full budget of `max` frames.
    pub(crate) fn new(max: u32) -> ControlFrameBudget {
        ControlFrameBudget { left: max, max, filled_at: None }
    }

    /// Adds the frames of one call.
    pub(crate) fn add_call(&mut self) {
        self.left = self.left.saturating_add(FRAMES_PER_CALL).min(self.max);
    }

    /// Takes one frame. Returns false if the budget is spent.
    pub(crate) fn spend(&mut self, now: Instant) -> bool {
        if self.left == 0 {
            let since = self.filled_at.map_or(Duration::ZERO, |at| now.duration_since(at));
            let refill = u128::from(FRAMES_PER_SECOND) * since.as_millis() / 1000;
            self.left = u32::try_from(refill).unwrap_or(u32::MAX).min(self.max);
            self.filled_at = None;
        }
        self.filled_at.get_or_insert(now);
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many frames pass in a row, up to 1000.
    fn passing(budget: &mut ControlFrameBudget, at: Instant) -> usize {
        (0..1000).take_while(|_| budget.spend(at)).count()
    }

    #[test]
    fn calls_and_seconds_refill_the_budget() {
        let at = Instant::now();
        let mut budget = ControlFrameBudget::new(150);
        assert_eq!(passing(&mut budget, at), 150);
        budget.add_call();
        assert_eq!(passing(&mut budget, at), 4);
        assert_eq!(passing(&mut budget, at + Duration::from_millis(500)), 50);
        assert_eq!(passing(&mut budget, at + Duration::from_secs(60)), 150);
        (0..1000).for_each(|_| budget.add_call());
        assert_eq!(passing(&mut budget, at + Duration::from_secs(60)), 150);
    }
}
