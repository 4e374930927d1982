//! Tests of tried requests: they agree with the decision of the same request, and take nothing.

use futures_util::future::FutureExt;
use proptest::prelude::*;

use super::changes::with_changes;
use super::leases::deliver;
use super::*;
use crate::limit::TierNumbers;

const RULES: &str = "
  - {key: fixed, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: sliding, rate_limit: {algorithm: sliding_window, unit: minute, requests_per_unit: 5}}
  - {key: log, rate_limit: {algorithm: sliding_window_log, unit: minute, requests_per_unit: 5}}
  - key: token
    rate_limit: {algorithm: token_bucket, unit: minute, requests_per_unit: 5, burst: 7}
  - {key: slots, rate_limit: {algorithm: concurrency, max: 5, hold: 30s}}
  - key: tiers
    rate_limit: {tiers: [{requests: 3, window: 1s}, {requests: 5, window: 1h}]}
  - {key: cost, rate_limit: {unit: minute, requests_per_unit: 5, cost: 2}}
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: q1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: q2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: u, rate_limit: {unlimited: true}}
  - {key: new, rate_limit: {name: new, replaces: [{name: old}], unit: day, requests_per_unit: 3}}
  - {key: old, rate_limit: {name: old, unit: day, requests_per_unit: 2}}
  - {key: blocked, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: passed, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: raised, rate_limit: {unit: minute, requests_per_unit: 1}}
";

const KEYS: &[&str] = &[
    "fixed", "sliding", "log", "token", "slots", "tiers", "cost", "s", "q1", "q2", "u", "new",
    "old", "blocked", "passed", "raised", "none",
];

/// A bench with temporary changes.
fn changed() -> Bench {
    let changes = [
        ("blocked", r#""block":true"#),
        ("passed", r#""bypass":true"#),
        ("raised", r#""limit":4"#),
    ];
    with_changes(Bench::new(RULES, ResponseSettings::default()), &changes)
}

/// The same rules over a shared store.
fn over_shared_store() -> (RuleSet, Limiter<FakeStore>) {
    let Bench { rules, .. } = Bench::new(RULES, ResponseSettings::default());
    let backend = Backend::Redis(Modes::without_over_limit_cache(FakeStore::new()));
    let limiter = Limiter::new(backend, KeySeed::fixed([1, 2]), ResponseSettings::default());
    (rules, limiter)
}

/// Tries and then makes each request, of keys and hits. They must agree.
fn agree<S: SharedStore>(rules: &RuleSet, limiter: &Limiter<S>, requests: &[Vec<(usize, u64)>]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (number, parts) in requests.iter().enumerate() {
        let now = NOW.saturating_add(Micros(number as u64 * 700_000));
        let entries: Vec<[Entry<'_>; 1]> =
            parts.iter().map(|(key, _)| [Entry { key: KEYS[*key], value: "x" }]).collect();
        let descriptors: Vec<Descriptor<'_>> = entries
            .iter()
            .zip(parts)
            .map(|(entries, (_, hits))| Descriptor {
                entries,
                limit: None,
                hits_addend: Some(*hits),
                is_negative_hits: false,
            })
            .collect();
        let request = with(&descriptors);
        let numbers = [TierNumbers { requests: 1, burst: None }];
        let attempt =
            || runtime.block_on(limiter.try_request(rules, &request, Some(&numbers), now));
        let (first, again) = (attempt(), attempt());
        let verdict = runtime.block_on(limiter.check(rules, &request, now));
        for tried in [first, again] {
            assert_eq!(tried.code, verdict.code, "{parts:?}");
            for (one, status) in tried.descriptors.iter().zip(&verdict.statuses) {
                let seen = (one.status.code, one.status.remaining, one.status.reset_after);
                assert_eq!(seen, (status.code, status.remaining, status.reset_after), "{parts:?}");
                assert_eq!(one.status.reason.name(), status.reason.name());
                assert_eq!(one.status.limit, status.limit);
            }
        }
        // The response is delivered, so its slots stay taken.
        deliver(verdict);
    }
}

fn requests() -> impl Strategy<Value = Vec<Vec<(usize, u64)>>> {
    let part = (0..KEYS.len(), 0_u64..5);
    prop::collection::vec(prop::collection::vec(part, 1..4), 1..25)
}

proptest! {
    #[test]
    fn a_tried_request_agrees_with_a_call(requests in requests()) {
        let bench = changed();
        agree(&bench.rules, &bench.limiter, &requests);
    }

    /// A peek has to suffice, because states are not read from a shared store. It does not show when a log
    /// with denied hits, or slots that the same request has just taken, have room again. So neither is here.
    #[test]
    fn a_tried_request_agrees_over_a_shared_store(mut requests in requests()) {
        let (rules, limiter) = over_shared_store();
        let is_shown = |key: usize| !["log", "slots"].contains(&KEYS[key]);
        requests.iter_mut().for_each(|parts| parts.retain(|(key, _)| is_shown(*key)));
        requests.retain(|parts| !parts.is_empty());
        agree(&rules, &limiter, &requests);
    }
}

/// Other numbers decide on the same counter, which also counts denied hits.
#[test]
fn other_numbers_decide_on_the_same_counter() {
    let bench = changed();
    let entries = [Entry { key: "fixed", value: "x" }];
    let descriptors = [Descriptor {
        entries: &entries,
        limit: None,
        hits_addend: Some(3),
        is_negative_hits: false,
    }];
    let request = with(&descriptors);
    let attempt = |numbers: &[TierNumbers]| {
        let tried = bench.limiter.try_request(&bench.rules, &request, Some(numbers), NOW);
        tried.now_or_never().expect("memory does not wait")
    };
    assert_eq!(bench.check(&request).code, Code::Ok);
    for (requests, allowed, remaining) in [(5, false, 0), (6, true, 0), (9, true, 3)] {
        let tried = attempt(&[TierNumbers { requests, burst: None }]);
        assert_eq!(tried.code, Code::OverLimit, "the rule decides");
        let other = tried.descriptors[0].with_limit.clone().expect("a limit").expect("it fits");
        assert_eq!((other.allowed, other.remaining), (allowed, remaining), "{requests}");
    }
    let two = [TierNumbers { requests: 5, burst: None }; 2];
    let tried = attempt(&two);
    let problem = tried.descriptors[0].with_limit.clone().expect("a limit").expect_err("two tiers");
    assert!(problem.contains("write one per tier"), "{problem}");
}

/// The largest hits are denied without an overflow.
#[test]
fn the_largest_hits_are_denied() {
    let bench = changed();
    let parts: Vec<Vec<(usize, u64)>> =
        (0..7).map(|key| vec![(key, crate::limit::HITS_END - 1)]).collect();
    agree(&bench.rules, &bench.limiter, &parts);
    let (rules, limiter) = over_shared_store();
    agree(&rules, &limiter, &parts);
}
