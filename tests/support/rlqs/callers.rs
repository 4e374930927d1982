//! Callers of ShouldRateLimit beside Envoys with shares of the same limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::rls::{Code, descriptor, request};
use crate::support::weir::Weir;

/// Calls `ShouldRateLimit` every 2 ms until `stop`. Returns when a request was allowed.
pub(crate) fn call(weir: &Weir, stop: &AtomicBool) -> Vec<(Instant, u64)> {
    let client = weir.client();
    let mut allowed = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let answer = client.check(request("d", vec![descriptor(&[("tenant", "a")])]));
        if answer.overall_code() == Code::Ok {
            allowed.push((Instant::now(), 1));
        }
        thread::sleep(Duration::from_millis(2));
    }
    allowed
}

/// Ends the calls also when an assertion fails.
pub(crate) struct StopOnDrop<'s>(pub(crate) &'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
