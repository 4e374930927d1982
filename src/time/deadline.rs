//! A deadline: the remaining time that several calls share.

use std::time::Duration;

// Tokio's clock, because tests can pause it.
use tokio::time::Instant;

/// The instant at which to stop waiting, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// A deadline `timeout` from now; no deadline for `None`.
    pub fn after(timeout: Option<Duration>) -> Deadline {
        // A timeout that the clock cannot represent means no deadline.
        Deadline(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// The remaining time, zero after the deadline; `None` without a deadline.
    pub fn left(self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_runs_down_to_zero() {
        let (soon, never) = (Deadline::after(Some(Duration::from_secs(3))), Deadline::after(None));
        for (left, later) in [(3, 1), (2, 2), (0, 9), (0, 0)] {
            assert_eq!(soon.left(), Some(Duration::from_secs(left)));
            assert_eq!(never.left(), None);
            tokio::time::advance(Duration::from_secs(later)).await;
        }
        assert_eq!(Deadline::after(Some(Duration::MAX)).left(), None);
    }
}
