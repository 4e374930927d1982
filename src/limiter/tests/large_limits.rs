//! Tests of the largest limits, to the last hit, with requests of 2^52 hits.

use super::leases::{deliver, lease};
use super::*;

/// The largest limits of the algorithms. Nothing refills or expires at one instant.
const LARGEST: &str = "
  - {key: window, rate_limit: {requests: 9007199254740991, window: 30d, count_denied: false}}
  - {key: token, rate_limit: {algorithm: token_bucket, requests: 9007199254740991, window: 30d}}
  - {key: leaky, rate_limit: {algorithm: leaky_bucket, requests: 9007199254740991, window: 30d}}
  - key: tiers
    rate_limit:
      count_denied: false
      tiers: [{requests: 9007199254740991, window: 30d}, {requests: 9007199254740991, window: 7d}]
  - {key: counted, rate_limit: {requests: 9007199254740991, window: 30d}}
  - {key: sliding, rate_limit: {algorithm: sliding_window, requests: 4503599627370495, window: 30d}}
  - key: tokens
    rate_limit:
      requests: 9007199254740991
      window: 30d
      count_denied: false
      reserve: {hold: 10m}
  - {key: million, rate_limit: {requests: 9007199254740991, window: 30d, cost: 1000000}}
";

const MAX: u64 = (1 << 53) - 1;
const HALF: i64 = 1 << 52;

/// A request of `hits`: whether it passes, and the remaining hits.
fn take(bench: &Bench, key: &str, hits: i64) -> (bool, u64) {
    let verdict = deliver(bench.send(&[(&[(key, "")], hits)]));
    (verdict.code == Code::Ok, verdict.statuses[0].remaining)
}

#[test]
fn every_algorithm_counts_to_its_last_hit() {
    let bench = Bench::new(LARGEST, ResponseSettings::default());
    for key in ["window", "token", "leaky", "tiers"] {
        assert_eq!(take(&bench, key, 0), (true, MAX), "{key}");
        assert_eq!(take(&bench, key, HALF), (true, MAX >> 1), "{key}");
        assert_eq!(take(&bench, key, HALF), (false, MAX >> 1), "one more than fits");
        assert_eq!(take(&bench, key, HALF - 2), (true, 1), "{key}");
        assert_eq!(take(&bench, key, 2), (false, 1), "{key}");
        assert_eq!(take(&bench, key, 1), (true, 0), "{key}");
        for hits in [1, HALF, MAX as i64] {
            assert_eq!(take(&bench, key, hits), (false, 0), "{key}");
        }
        assert_eq!(take(&bench, key, -HALF), (true, 1 << 52), "{key}");
        assert_eq!(take(&bench, key, HALF), (true, 0), "{key}");
        assert_eq!(take(&bench, key, -(MAX as i64)), (true, MAX), "{key}");
        assert_eq!(take(&bench, key, MAX as i64), (true, 0), "all at once");
    }
    // The largest limit of a sliding window is half as large.
    assert_eq!(take(&bench, "sliding", HALF), (false, MAX >> 1));
    assert_eq!(take(&bench, "sliding", HALF / 2), (true, (1 << 51) - 1));
    assert_eq!(take(&bench, "sliding", HALF / 2 - 1), (true, 0));
    assert_eq!(take(&bench, "sliding", 1), (false, 0));
}

/// With `count_denied`, denied hits count too, up to 2^53 - 1 in all.
#[test]
fn counted_denials_end_at_the_largest_number() {
    let bench = Bench::new(LARGEST, ResponseSettings::default());
    assert_eq!(take(&bench, "counted", HALF), (true, MAX >> 1));
    assert_eq!(take(&bench, "counted", HALF), (false, 0), "both are counted");
    for _ in 0..3 {
        assert_eq!(take(&bench, "counted", MAX as i64), (false, 0));
    }
    assert_eq!(take(&bench, "counted", -1), (true, 1));
    assert_eq!(take(&bench, "counted", 1), (true, 0));
}

#[test]
fn costs_end_at_the_largest_number_of_hits() {
    let bench = Bench::new(LARGEST, ResponseSettings::default());
    assert_eq!(take(&bench, "million", 9_007_199_254), (true, 740_991));
    assert_eq!(take(&bench, "million", -9_007_199_254), (true, MAX));
    assert_eq!(take(&bench, "million", MAX as i64), (true, 0), "2^53 - 1 are the most");
}

#[test]
fn reservations_over_32_bits_are_settled() {
    for cost in [5_000_000_001, MAX >> 1, MAX, 0] {
        let bench = Bench::new(LARGEST, ResponseSettings::default());
        let reserved = deliver(bench.send(&[(&[("tokens", "")], HALF)]));
        let (id, n) = lease(&reserved).expect("a reservation");
        assert_eq!((n, bench.left("tokens")), (1 << 52, MAX >> 1));
        bench.send(&[(&[("tokens", ""), ("lease", &id)], cost as i64)]);
        assert_eq!(MAX - bench.left("tokens"), cost);
    }
}

/// The headers have all digits, except that an integer of a structured field has at most 15.
#[test]
fn headers_have_all_digits() {
    let headers = LimitHeaders::Both;
    let envoy_ratelimit_headers = true;
    let config =
        ResponseSettings { headers, envoy_ratelimit_headers, ..ResponseSettings::default() };
    let bench = Bench::new(LARGEST, config);
    let verdict = bench.send(&[(&[("window", "")], 1)]);
    for (name, value) in [
        ("RateLimit-Limit", "9007199254740991"),
        ("RateLimit-Remaining", "9007199254740990"),
        ("x-ratelimit-limit", "9007199254740991, 9007199254740991;w=2592000"),
        ("x-ratelimit-remaining", "9007199254740990"),
        ("ratelimit-policy", "\"window\";q=999999999999999;w=2592000"),
    ] {
        assert_eq!(header(&verdict, name), Some(value), "{name}");
    }
    let limit = header(&verdict, "ratelimit").expect("switched on");
    assert!(limit.starts_with("\"window\";r=999999999999999;t="), "{limit}");
}
