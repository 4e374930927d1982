//! Waiting for an event in another process.
//!
//! Tests do not sleep for a fixed time. They wait for a log line, an exit, an answer, or for a
//! condition that they poll. After [`TIMEOUT`] a test fails and shows the other process's output.

use std::thread;
use std::time::{Duration, Instant};

/// How long an event may take before the test fails. No event needs nearly as long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls `condition` until it holds. Fails with `what` after [`TIMEOUT`].
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        thread::sleep(POLL_INTERVAL);
    }
}
