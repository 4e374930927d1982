//! One rule, asked by calls of `ShouldRateLimit` and divided by RLQS: together they keep the limit.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use super::{CONVERGED, assert_no_violation, envoy, serving, tenant, tenants};
use crate::support::rlqs::{StopOnDrop, call, most_in_a_second};

const LIMIT: u64 = 200;

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
