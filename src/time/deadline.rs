//! A deadline: how long somebody will still wait, over several waits.

use std::time::Duration;

// Tokio's, so that it stands still where a test's time does.
use tokio::time::Instant;

/// When to stop waiting, if ever.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// `wait` from this moment on.
    pub fn after(wait: Option<Duration>) -> Deadline {
        // Further away than a clock can tell is never.
        Deadline(wait.and_then(|wait| Instant::now().checked_add(wait)))
    }

    /// What is left of it, if it ever comes; nothing once it is past.
    pub fn left(self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_runs_down_to_nothing_or_never() {
        let (soon, never) = (Deadline::after(Some(Duration::from_secs(3))), Deadline::after(None));
        for (left, later) in [(3, 1), (2, 2), (0, 9), (0, 0)] {
            assert_eq!(soon.left(), Some(Duration::from_secs(left)));
            assert_eq!(never.left(), None);
            tokio::time::advance(Duration::from_secs(later)).await;
        }
        assert_eq!(Deadline::after(Some(Duration::MAX)).left(), None);
    }
}
