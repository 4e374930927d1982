//! Tests of what-if limits: their results, and that nothing else depends on them.

use std::sync::atomic::Ordering;

use futures_util::future::FutureExt;

use super::*;
use crate::decision::WhatIf;

/// Rules of each kind. `SHADOW` stands for a what-if limit, or for nothing.
const RULES: &str = "
  - {key: r, rate_limit: {unit: minute, requests_per_unit: 3SHADOW}}
  - {key: q1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2SHADOW}}
  - {key: q2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1SHADOW}}
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2SHADOW}}
  - {key: log, rate_limit: {algorithm: sliding_window_log, requests: 2, window: 1mSHADOW}}
  - {key: b, rate_limit: {algorithm: token_bucket, requests: 9, window: 1m, burst: 3SHADOW}}
  - {key: new, rate_limit: {replaces: [{name: old}], unit: day, requests_per_unit: 3SHADOW}}
  - {key: old, rate_limit: {name: old, unit: day, requests_per_unit: 1SHADOW}}
  - {key: leased, rate_limit: {mode: leased, unit: minute, requests_per_unit: 3SHADOW}}
  - {key: slots, rate_limit: {algorithm: concurrency, max: 2, hold: 30s}}
  - {key: u, rate_limit: {unlimited: true}}
";

const KEYS: [&str; 12] =
    ["r", "q1", "q2", "s", "log", "b", "new", "old", "leased", "slots", "u", "none"];

/// A bench with this `shadow` in every rule that can have one.
fn bench(shadow: &str, denied_requests: DeniedRequests) -> Bench {
    let config = ResponseSettings {
        headers: LimitHeaders::Both,
        decision_header: true,
        dynamic_metadata: true,
        ..ResponseSettings::default()
    };
    let options = Options { denied_requests, ..Options::default() };
    Bench::with(&RULES.replace("SHADOW", shadow), config, &options)
}

/// A limiter with the rules of `bench` and its counters in `store`.
fn over_redis(store: FakeStore) -> Limiter<FakeStore> {
    let modes = Modes::without_over_limit_cache(store);
    Limiter::new(Backend::Redis(modes), KeySeed::fixed([1, 2]), ResponseSettings::default())
}

/// A descriptor with `hits`; negative hits are given back.
fn descriptor<'a>(entries: &'a [Entry<'a>], hits: i64) -> Descriptor<'a> {
    let is_negative_hits = hits < 0;
    Descriptor { entries, limit: None, hits_addend: Some(hits.unsigned_abs()), is_negative_hits }
}

/// Everything of a verdict but the results of what-if limits.
fn visible(verdict: &Verdict) -> String {
    let Verdict { code, statuses, headers, metadata, shadowed, rollback, what_if: _ } = verdict;
    // The id of a lease is random.
    let lease = |key: &&String| *key != "lease";
    let metadata: Option<Vec<_>> =
        metadata.as_ref().map(|map| map.iter().filter(|(key, _)| lease(key)).collect());
    let rollback = rollback.is_some();
    format!("{code:?} {statuses:?} {headers:?} {metadata:?} {shadowed} {rollback}")
}

/// Requests of up to four descriptors, each with hits, a peek or a refund, with what-if limits that
/// always deny and that never deny, in memory and in Redis.
#[tokio::test]
async fn a_verdict_does_not_depend_on_what_if_limits() {
    for denied_requests in [DeniedRequests::Count, DeniedRequests::Free] {
        let plain = bench("", denied_requests);
        let strict = bench(", shadow: {requests: 0}", denied_requests);
        let wide = bench(", shadow: {requests: 99, window: 1h}", denied_requests);
        let of_redis = [&plain, &strict, &wide].map(|_| over_redis(FakeStore::new()));
        let (mut strict_results, mut wide_results) = (0, 0);
        for round in 0..300_usize {
            let entries: Vec<[Entry<'_>; 1]> = (0..=round % 4)
                .map(|place| KEYS[(round * 7 + place * 5) % KEYS.len()])
                .map(|key| [Entry { key, value: "" }])
                .collect();
            let hits = [1, 2, 0, -1][round / 4 % 4];
            let descriptors: Vec<_> = entries.iter().map(|one| descriptor(one, hits)).collect();
            let request = with(&descriptors);
            let now = NOW.saturating_add(Micros::from_millis(700 * round as u64));
            let decide = |bench: &Bench| {
                bench.limiter.check(&bench.rules, &request, now).now_or_never().expect("memory")
            };
            let verdicts = [&plain, &strict, &wide].map(decide);
            assert_eq!(visible(&verdicts[1]), visible(&verdicts[0]), "{round}: {request:?}");
            assert_eq!(visible(&verdicts[2]), visible(&verdicts[0]), "{round}: {request:?}");
            assert!(verdicts[0].what_if.is_empty());
            for one in &verdicts[1].what_if {
                // A peek is denied if denied hits were counted before.
                assert!(hits == 0 || one.denied == (hits > 0), "{round}: {request:?}");
                assert_eq!(one.hits, hits);
                strict_results += 1;
            }
            wide_results += verdicts[2].what_if.iter().filter(|one| !one.denied).count();
            let mut codes = Vec::new();
            for (bench, limiter) in [&plain, &strict, &wide].into_iter().zip(&of_redis) {
                codes.push(limiter.check(&bench.rules, &request, now).await.code);
            }
            assert_eq!((codes[1], codes[2]), (codes[0], codes[0]), "{round}: {request:?}");
        }
        assert!(strict_results > 300 && wide_results > 300, "{strict_results} {wide_results}");
    }
}

/// The what-if limit counts what the limit denies too.
#[test]
fn a_what_if_limit_counts_all_hits() {
    let rules = "
  - {key: k, rate_limit: {unit: minute, requests_per_unit: 2, shadow: {requests: 4}}}
  - {key: other, rate_limit: {unit: minute, requests_per_unit: 100}}
";
    let bench = Bench::new(rules, ResponseSettings::default());
    let entries = ["other", "k"].map(|key| [Entry { key, value: "" }]);
    // (hits, whether the limit denies, whether the what-if limit would)
    let table = [
        (1, false, false),
        (0, false, false),
        (1, false, false),
        (1, true, false),
        (1, true, false),
        (1, true, true),
        (-9, false, false),
        (2, false, false),
    ];
    for (hits, over, denied) in table {
        let descriptors = [descriptor(&entries[0], 1), descriptor(&entries[1], hits)];
        let verdict = bench.check(&with(&descriptors));
        assert_eq!(verdict.statuses[1].code == Code::OverLimit, over, "{hits}");
        assert_eq!(verdict.what_if[..], [WhatIf { descriptor: 1, rule: 0, hits, denied }]);
        let code = if denied { Code::OverLimit } else { Code::Ok };
        assert_eq!([0, 1].map(|index| verdict.what_if_code(index)), [None, Some(code)]);
    }
}

/// A limit of the request replaces the rule with its what-if limit.
#[test]
fn a_limit_of_the_request_has_no_what_if_limit() {
    let bench = bench(", shadow: {requests: 0}", DeniedRequests::Count);
    let entries = [Entry { key: "r", value: "" }];
    let sent = crate::limit::Override { requests_per_unit: 1, unit: crate::limit::Unit::Hour };
    let sent = Descriptor { limit: Some(sent), ..descriptor(&entries, 1) };
    assert!(bench.check(&with(&[sent])).what_if.is_empty());
    assert_eq!(bench.check(&with(&[descriptor(&entries, 1)])).what_if.len(), 1);
}

#[tokio::test]
async fn a_failed_store_gives_no_what_if_result() {
    let store = FakeStore::new().with_result(FakeResult::Rejected(StoreError::Unreachable));
    let limiter = over_redis(store);
    let bench = bench(", shadow: {requests: 0}", DeniedRequests::Count);
    let entries = [Entry { key: "r", value: "" }];
    let descriptors = [descriptor(&entries, 1)];
    let request = with(&descriptors);
    let verdict = limiter.check(&bench.rules, &request, NOW).await;
    assert!(matches!(verdict.statuses[0].reason, DecisionReason::Fallback { .. }));
    assert!(verdict.what_if.is_empty());
}

/// An error of one counter is not one of the other.
#[tokio::test]
async fn each_counter_has_its_own_error() {
    let bench = bench(", shadow: {requests: 0}", DeniedRequests::Count);
    let entries = [Entry { key: "r", value: "" }];
    let descriptors = [descriptor(&entries, 1)];
    let request = with(&descriptors);
    for (error_of, results) in [(0, 1), (1, 0)] {
        let store = FakeStore::new();
        for call in 0..2 {
            let lost = FakeResult::Lost(StoreError::Timeout);
            store.push_result(if call == error_of { lost } else { FakeResult::Applied });
        }
        let verdict = over_redis(store).check(&bench.rules, &request, NOW).await;
        let fell_back = matches!(verdict.statuses[0].reason, DecisionReason::Fallback { .. });
        assert_eq!((fell_back, verdict.what_if.len()), (error_of == 0, results));
    }
}

/// A request that may not wait is decided without its what-if limit.
#[test]
fn a_held_what_if_limit_is_left_out() {
    let bench = bench(", shadow: {requests: 0}", DeniedRequests::Count);
    let entries = [Entry { key: "r", value: "" }];
    let descriptors = [descriptor(&entries, 1)];
    let must_decide = AtomicBool::new(false);
    let request = Request { must_decide: Some(&must_decide), ..with(&descriptors) };
    let limiter = over_redis(FakeStore::new().holding());
    limiter.backend().shared_store().expect("Redis").release(0, 1);
    let mut check = Box::pin(limiter.check(&bench.rules, &request, NOW));
    assert!(check.as_mut().now_or_never().is_none(), "its what-if limit is held");
    must_decide.store(true, Ordering::Relaxed);
    let verdict = check.now_or_never().expect("no wait");
    assert!(matches!(verdict.statuses[0].reason, DecisionReason::Counted { .. }));
    assert!(verdict.what_if.is_empty());
}

#[tokio::test]
async fn a_what_if_counter_is_shown_and_deleted() {
    let bench = bench(", shadow: {requests: 5, window: 1h}", DeniedRequests::Count);
    let entries = [Entry { key: "r", value: "" }];
    let hit = [descriptor(&entries, 1)];
    assert_eq!(bench.limiter.check(&bench.rules, &with(&hit), NOW).await.code, Code::Ok);
    let counter = bench.limiter.counter(&bench.rules, "d", &entries).expect("a counter");
    let what_if = counter.what_if().expect("a what-if counter");
    let used = async |counter: &Counter<'_>| {
        let tiers = bench.limiter.inspect(counter, NOW).await.expect("memory");
        (tiers[0].used, tiers[0].limit)
    };
    assert_eq!((used(&counter).await, used(&what_if).await), ((1, 3), (1, 5)));
    assert!(bench.limiter.delete(&counter).await.expect("memory"));
    assert_eq!((used(&counter).await, used(&what_if).await), ((0, 3), (0, 5)));
    let slots = [Entry { key: "slots", value: "" }];
    let slots = bench.limiter.counter(&bench.rules, "d", &slots).expect("a counter");
    assert!(slots.what_if().is_none());
}
