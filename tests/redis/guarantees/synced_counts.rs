//! Counts of a single instance with synced rules, whose requests arrive while the first call of
//! their counter is in flight.

use std::time::Duration;

use super::timed_calls::send_timed;
use super::{ROUND_TRIPS, start, used, value};
use crate::support::load::LoadResult;
use crate::support::redis::delaying_proxy::DelayingProxy;
use crate::support::redis::server::Server;
use crate::support::rls::{descriptor, request};
use crate::support::schedule::exclusive;
use crate::support::wait::until;

const STORE_TIMEOUT: &str = "250ms";

/// Counters, each with its first request some time after that of the one before.
const COUNTERS: u32 = 25;
const STAGGER: Duration = Duration::from_millis(20);

/// Requests to each counter of a cold rule. The limit allows 10 of them.
const COLD_REQUESTS: u32 = 40;
const COLD_LIMIT: usize = 10;

fn rules(sync_interval: &str) -> String {
    let synced = format!("mode: synced, sync_interval: {sync_interval}");
    format!(
        "
domain: d
descriptors:
  - key: cold
    rate_limit: {{ unit: year, requests_per_unit: 10, {synced} }}
  - key: three
    rate_limit: {{ requests: 1000, window: 1000d, {synced} }}
  - key: eight
    rate_limit: {{ requests: 8, window: 1000d, {synced} }}
"
    )
}

/// A single instance never exceeds a limit, although the requests to each counter arrive before,
/// during and after its first call to Redis (docs/guides/modes.md, synced).
#[test]
fn one_synced_instance_never_exceeds_its_limit() {
    let _permit = exclusive();
    let server = Server::listening(&[]);
    for round_trip in ROUND_TRIPS {
        let proxy = DelayingProxy::to(server.address(), round_trip);
        let weir = start(proxy.address(), &rules("1s"), STORE_TIMEOUT, &["cold"]);
        let mut calls = Vec::new();
        for counter in 0..COUNTERS {
            let hit = request("d", vec![descriptor(&[("cold", &value(round_trip, counter))])]);
            for number in 0..COLD_REQUESTS {
                // Spread over four round trips.
                let after = round_trip * 4 * number / COLD_REQUESTS;
                calls.push((STAGGER * counter + after, hit.clone()));
            }
        }
        let results = send_timed(weir.grpc, calls);
        let mut all_counted = 0;
        for (counter, its) in results.chunks(COLD_REQUESTS as usize).enumerate() {
            let passed = its.iter().filter(|result| result.passed(0)).count();
            assert!(passed <= COLD_LIMIT, "{round_trip:?}, counter {counter}: {passed} passed");
            // A request that the fallback denied may have been counted.
            if its.iter().all(|result| result.fallback().is_none()) {
                assert_eq!(passed, COLD_LIMIT, "{round_trip:?}, counter {counter}");
                all_counted += 1;
            }
        }
        eprintln!("{round_trip:?}: {all_counted} of {COUNTERS} counters without a fallback");
        assert!(all_counted > 0, "{round_trip:?}: Redis never answers in time");
    }
}

/// Requests arrive before the first reply, which itself arrives later than the first exchange is due.
/// Redis counts each hit once, and no later request is denied early.
#[test]
fn synced_hits_count_once_and_deny_nothing_early() {
    const AT_ONCE: u32 = 3;
    const GAP: Duration = Duration::from_millis(4);
    const LATER: u32 = 13;
    let _permit = exclusive();
    let server = Server::listening(&[]);
    // The third value is the time between later requests: shorter than a replica lives without any.
    let table = [(6, "10ms", 4), (60, "100ms", 25)];
    for (round_trip, sync_interval, pause) in table {
        let [round_trip, pause] = [round_trip, pause].map(Duration::from_millis);
        let (proxy, rules) =
            (DelayingProxy::to(server.address(), round_trip), rules(sync_interval));
        let keys = ["three", "eight"];
        let weir = start(proxy.address(), &rules, STORE_TIMEOUT, &keys);
        let reader = start(server.address(), &rules, STORE_TIMEOUT, &keys);
        let mut calls = Vec::new();
        for counter in 0..COUNTERS {
            let value = value(round_trip, counter);
            let mut call = |key: &str, after: Duration| {
                let hit = request("d", vec![descriptor(&[(key, &value)])]);
                calls.push((STAGGER * counter + after, hit));
            };
            for number in 0..AT_ONCE {
                call("three", GAP * number);
                call("eight", GAP * number);
            }
            for number in 1..=LATER {
                call("eight", GAP * AT_ONCE + pause * number);
            }
        }
        let results = send_timed(weir.grpc, calls);
        assert_eq!(results.iter().find_map(LoadResult::fallback), None, "{round_trip:?}");
        // A replica is removed when it is idle and Redis has all of its hits.
        until("Redis has every hit", || weir.metric("weir_synced_counters", &[]) == 0);
        let per_counter = (2 * AT_ONCE + LATER) as usize;
        for (counter, its) in results.chunks(per_counter).enumerate() {
            let passed = its.iter().filter(|result| result.passed(0)).count();
            let value = value(round_trip, counter);
            let counted = keys.map(|key| used(&reader, key, &value));
            assert_eq!((passed, counted), (3 + 8, [3, 8]), "{round_trip:?}, counter {counter}");
        }
    }
}
