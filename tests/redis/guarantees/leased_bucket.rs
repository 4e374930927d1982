//! Leased buckets of a single instance, beside exact ones that get the same requests.
//!
//! One instance allows exactly what `exact` allows, at any rate (docs/guides/modes.md, leased). Calls
//! that are slower than the credits expire must not lose credits that a later burst needs.

use std::thread;
use std::time::Duration;

use super::timed_calls::send_timed;
use super::{ROUND_TRIPS, start, value};
use crate::support::load::LoadResult;
use crate::support::redis::delaying_proxy::DelayingProxy;
use crate::support::redis::server::Server;
use crate::support::rls::{descriptor, request};
use crate::support::schedule::shared;
use crate::support::weir::Weir;

const RULES: &str = "
domain: d
descriptors:
  - key: minute_exact
    rate_limit: { algorithm: token_bucket, requests: 60, window: 1m }
  - key: minute_leased
    rate_limit: { algorithm: token_bucket, requests: 60, window: 1m, mode: leased }
  - key: day_exact
    rate_limit: { algorithm: token_bucket, requests: 100, window: 1d }
  - key: day_leased
    rate_limit: { algorithm: token_bucket, requests: 100, window: 1d, mode: leased }
";

/// No credits are drawn ahead in the first store timeout, so it is much shorter than the slow calls.
/// It is long enough for a busy machine.
const STORE_TIMEOUT: &str = "2s";

/// The same limit exact and leased, and the slow calls: their number and the time between two.
type Bucket = ([&'static str; 2], u32, Duration);

/// The minute's calls are slower than its rate, 1 per second. The day's are faster.
const BUCKETS: [Bucket; 2] = [
    (["minute_exact", "minute_leased"], 12, Duration::from_millis(1_150)),
    (["day_exact", "day_leased"], 45, Duration::from_millis(300)),
];

/// Calls of the burst, more than any of the limits.
const BURST: u32 = 120;

/// Time between two calls of the burst. Many are in flight at a time.
const BURST_GAP: Duration = Duration::from_millis(10);

#[test]
fn one_leased_instance_allows_what_exact_allows() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let instances = ROUND_TRIPS.map(|round_trip| {
        let proxy = DelayingProxy::to(server.address(), round_trip);
        let keys = BUCKETS.map(|(keys, ..)| keys).concat();
        (round_trip, start(proxy.address(), RULES, STORE_TIMEOUT, &keys), proxy)
    });
    thread::scope(|scope| {
        for (round_trip, weir, _) in &instances {
            for bucket in BUCKETS {
                scope.spawn(move || compare(weir, bucket, *round_trip));
            }
        }
    });
    for (round_trip, weir, _) in &instances {
        let spent = weir.metric("weir_leased_credits_total", &[r#"state="spent""#]);
        assert!(spent > 0, "{round_trip:?}: no request was decided by a credit");
    }
}

/// Sends slow calls and then a burst, each to both buckets. As both decide a request as of the same
/// instant, their counts may differ only by a token that became free between two of the calls.
fn compare(weir: &Weir, (keys, slow, gap): Bucket, round_trip: Duration) {
    let value = value(round_trip, "x");
    let both = request("d", keys.map(|key| descriptor(&[(key, value.as_str())])).to_vec());
    let times = (0..slow).map(|number| gap * number);
    let times = times.chain((0..BURST).map(|number| gap * slow + BURST_GAP * number));
    let results = send_timed(weir.grpc, times.map(|time| (time, both.clone())).collect());
    let fallback = results.iter().find_map(LoadResult::fallback);
    assert_eq!(fallback, None, "{keys:?}, {round_trip:?}");
    let passed = |index: usize| results.iter().filter(|result| result.passed(index)).count();
    let (exact, leased) = (passed(0), passed(1));
    eprintln!("{keys:?}, {round_trip:?}: {exact} exact, {leased} leased of {}", results.len());
    assert!(exact < results.len(), "{keys:?}, {round_trip:?}: the burst is too short");
    assert!(exact.abs_diff(leased) <= 1, "{keys:?}, {round_trip:?}: {exact} and {leased}");
}
