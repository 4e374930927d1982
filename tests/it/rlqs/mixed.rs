//! One rule, asked by calls of `ShouldRateLimit` and divided by RLQS: together they keep the limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{CONVERGED, assert_no_violation, envoy, serving, tenant, tenants};
use crate::support::rlqs::most_in_a_second;
use crate::support::rls::{Code, descriptor, request};
use crate::support::weir::Weir;

const LIMIT: u64 = 200;

/// Calls `ShouldRateLimit` every 2 ms until `stop`. Returns when a request was allowed.
fn call(weir: &Weir, stop: &AtomicBool) -> Vec<(Instant, u64)> {
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
struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn callers_and_envoys_share_one_limit() {
    let weir = serving(&tenants("second", LIMIT)).start();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let caller = scope.spawn(|| call(&weir, &stop));
        let stopping = StopOnDrop(&stop);
        let envoy = envoy(&weir, 500.0);
        envoy.until_rate(&tenant(), |rate| rate > 0.0);
        // The window that had begun before the division may be full.
        thread::sleep(CONVERGED);
        let since = Instant::now();
        thread::sleep(Duration::from_secs(5));
        drop(stopping);
        let calls = caller.join().expect("the caller");
        let by_envoy = envoy.allowed_since(since);
        let by_calls = calls.iter().filter(|(at, _)| *at >= since).count();
        assert!(by_envoy >= 300 && by_calls >= 200, "{by_envoy} and {by_calls} in 5 s");
        let most = most_in_a_second(&[&envoy], &calls, since);
        let bound = LIMIT + LIMIT / 5 + 2;
        assert!(most <= bound, "{most} in a second, at most {bound}");
    });
    assert_no_violation(&weir);
}
