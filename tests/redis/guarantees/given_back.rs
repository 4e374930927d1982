//! Hits that one instance gives back after another one has denied a request for lack of them.
//!
//! The other instance denies from memory for at most one second after Redis has room
//! (docs/guides/modes.md, over-limit cache), whatever the length of the window.

use std::thread;
use std::time::{Duration, Instant};

use super::{ROUND_TRIPS, passed, start, value};
use crate::slots::lease;
use crate::support::redis::delaying_proxy::DelayingProxy;
use crate::support::redis::server::Server;
use crate::support::rls::{Client, RateLimitRequest, costing, descriptor, request};
use crate::support::schedule::exclusive;
use crate::support::wait::until;
use crate::support::weir::Weir;

const RULES: &str = "
domain: d
descriptors:
  - key: fixed_window
    rate_limit: { requests: 10, window: 1000d, count_denied: false, reserve: { hold: 1h } }
  - key: sliding_window
    rate_limit:
      { algorithm: sliding_window, requests: 10, window: 1000d, reserve: { hold: 1h } }
  - key: sliding_window_log
    rate_limit:
      { algorithm: sliding_window_log, requests: 10, window: 1000d, reserve: { hold: 1h } }
  - key: token_bucket
    rate_limit: { algorithm: token_bucket, requests: 10, window: 1000d, reserve: { hold: 1h } }
---
domain: free
denied_requests: free
descriptors:
  - key: budget
    rate_limit: { algorithm: sliding_window, requests: 10, window: 1000d }
  - key: blocked
    rate_limit: { unit: day, requests_per_unit: 0 }
";

/// The keys of domain `d`.
const ALGORITHMS: [&str; 4] =
    ["fixed_window", "sliding_window", "sliding_window_log", "token_bucket"];

/// A store timeout that no call reaches.
const STORE_TIMEOUT: &str = "20s";

/// The longest time for which weir denies from memory.
const DENIAL_TTL: Duration = Duration::from_secs(1);

/// Time that a busy machine may add.
const SLACK: Duration = Duration::from_secs(2);

/// Pause between two polls.
const PAUSE: Duration = Duration::from_millis(20);

/// The round trip of an instance whose hits stay in Redis for a while before they are rolled back.
const SLOW: Duration = Duration::from_millis(600);

/// Sends `wanted` until it passes. Redis has had room for it since `freed`.
fn assert_passes_soon(
    client: &Client,
    wanted: &RateLimitRequest,
    freed: Instant,
    round_trip: Duration,
    what: &str,
) {
    let most = DENIAL_TTL + round_trip + SLACK;
    while !passed(&client.check(wanted.clone())) {
        let waited = freed.elapsed();
        assert!(waited < most, "{what}, {round_trip:?}: denied {waited:?} after Redis has room");
        thread::sleep(PAUSE);
    }
    eprintln!("{what}, {round_trip:?}: passes {:?} after Redis has room", freed.elapsed());
}

/// One instance reserves all hits of a counter, another one is denied, and the reservations are
/// settled with less. Then the other instance allows again.
#[test]
fn settled_reservations_make_room_elsewhere() {
    let _permit = exclusive();
    let server = Server::listening(&[]);
    let pairs = ROUND_TRIPS.map(|round_trip| {
        let proxy = DelayingProxy::to(server.address(), round_trip);
        let weirs = [(); 2].map(|()| start(proxy.address(), RULES, STORE_TIMEOUT, &ALGORITHMS));
        (round_trip, weirs, proxy)
    });
    thread::scope(|scope| {
        for (round_trip, [first, second], _) in &pairs {
            for algorithm in ALGORITHMS {
                scope.spawn(move || ask_after_settlement(first, second, algorithm, *round_trip));
            }
        }
    });
}

fn ask_after_settlement(first: &Weir, second: &Weir, algorithm: &str, round_trip: Duration) {
    let (first, second) = (first.client(), second.client());
    let value = value(round_trip, "reserved");
    let counter = (algorithm, value.as_str());
    let reserve = request("d", vec![costing(5, descriptor(&[counter]))]);
    let leases = [(); 2].map(|()| lease(&first.check(reserve.clone())).expect("5 of 10 hits"));
    let one = request("d", vec![descriptor(&[counter])]);
    assert!(!passed(&second.check(one.clone())), "{algorithm}: all hits are reserved");
    for id in &leases {
        let settle = request("d", vec![descriptor(&[counter, ("lease", id.as_str())])]);
        assert!(passed(&first.check(settle)), "{algorithm}: a settlement never fails");
    }
    assert_passes_soon(&second, &one, Instant::now(), round_trip, algorithm);
}

/// A request takes the last hits of a counter, is denied by another descriptor, and gives them
/// back. Another instance that was denied in between allows again.
#[test]
fn undone_requests_make_room_elsewhere() {
    let _permit = exclusive();
    let server = Server::listening(&[]);
    let slow = DelayingProxy::to(server.address(), SLOW);
    let first = start(slow.address(), RULES, STORE_TIMEOUT, &ALGORITHMS);
    let others = ROUND_TRIPS.map(|round_trip| {
        let proxy = DelayingProxy::to(server.address(), round_trip);
        (round_trip, start(proxy.address(), RULES, STORE_TIMEOUT, &ALGORITHMS), proxy)
    });
    thread::scope(|scope| {
        for (round_trip, other, _) in &others {
            let first = &first;
            scope.spawn(move || ask_after_rollback(first, other, *round_trip));
        }
    });
}

fn ask_after_rollback(first: &Weir, other: &Weir, round_trip: Duration) {
    let client = other.client();
    let value = value(round_trip, "rolled_back");
    let budget = [("budget", value.as_str())];
    let take = |hits: u64| request("free", vec![costing(hits, descriptor(&budget))]);
    assert!(passed(&client.check(take(8))), "8 of 10 hits");
    thread::scope(|scope| {
        let denied = scope.spawn(|| {
            let blocked = descriptor(&[("blocked", value.as_str())]);
            let both = vec![costing(2, descriptor(&budget)), blocked];
            first.client().check(request("free", both))
        });
        until("the counter is full", || client.remaining("free", &budget) == 0);
        assert!(!passed(&client.check(take(2))), "the counter is full");
        assert!(!passed(&denied.join().expect("an answer")), "one descriptor is blocked");
    });
    until("the hits are back in Redis", || client.remaining("free", &budget) == 2);
    assert_passes_soon(&client, &take(2), Instant::now(), round_trip, "request rolled back");
}
