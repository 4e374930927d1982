//! Tests of tried requests: they agree with the decision of the same request, and take nothing.

use futures_util::future::FutureExt;
use proptest::prelude::*;

use super::changes::with_changes;
use super::leases::{deliver, lease};
use super::planned::plans_of;
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
  - {key: tokens, rate_limit: {unit: minute, requests_per_unit: 9, reserve: {hold: 30s}}}
  - key: planned
    rate_limit:
      name: planned
      unit: minute
      requests_per_unit: 1
      limit_from: {customer: planned, limit: calls}
  - key: basic
    rate_limit:
      name: basic
      unit: minute
      requests_per_unit: 1
      limit_from: {customer: basic, limit: calls, default: free}
";

/// The customers with a plan.
const CUSTOMERS: &[(&str, &str)] = &[("pro", "pro"), ("house", "house")];

/// A key with the value `x`, or a key with its value. `settle` and `release` give back the newest lease.
const KEYS: &[&str] = &[
    "fixed",
    "sliding",
    "log",
    "token",
    "slots",
    "tiers",
    "cost",
    "s",
    "q1",
    "q2",
    "u",
    "new",
    "old",
    "blocked",
    "passed",
    "raised",
    "none",
    "tokens",
    "settle",
    "release",
    "planned",
    "planned=pro",
    "planned=house",
    "basic=pro",
    "basic",
];

/// The entries of one of [`KEYS`]. `id` is the newest lease.
fn entries_of<'e>(key: &'e str, id: &'e str) -> Vec<Entry<'e>> {
    let (key, value, id) = match (key, key.split_once('=')) {
        ("settle", _) => ("tokens", "x", Some(id)),
        ("release", _) => ("slots", "x", Some(id)),
        (_, Some((key, value))) => (key, value, None),
        (_, None) => (key, "x", None),
    };
    let lease = id.map(|value| Entry { key: "lease", value });
    [Entry { key, value }].into_iter().chain(lease).collect()
}

/// A limiter with the plans of [`CUSTOMERS`].
fn with_plans<S: SharedStore>(limiter: Limiter<S>, rules: &RuleSet) -> Limiter<S> {
    let plans = plans_of(CUSTOMERS);
    plans.use_rules(rules);
    limiter.with_plans(plans, None)
}

/// A bench with temporary changes and plans.
fn changed() -> Bench {
    let changes = [
        ("blocked", r#""block":true"#),
        ("passed", r#""bypass":true"#),
        ("raised", r#""limit":4"#),
    ];
    let bench = with_changes(Bench::new(RULES, ResponseSettings::default()), &changes);
    let Bench { rules, limiter } = bench;
    Bench { limiter: with_plans(limiter, &rules), rules }
}

/// The same rules over a shared store.
fn over_shared_store() -> (RuleSet, Limiter<FakeStore>) {
    let Bench { rules, .. } = Bench::new(RULES, ResponseSettings::default());
    let backend = Backend::Redis(Modes::without_over_limit_cache(FakeStore::new()));
    let limiter = Limiter::new(backend, KeySeed::fixed([1, 2]), ResponseSettings::default());
    let limiter = with_plans(limiter, &rules);
    (rules, limiter)
}

/// Tries and then makes each request, of keys and hits. They must agree.
fn agree<S: SharedStore>(rules: &RuleSet, limiter: &Limiter<S>, requests: &[Vec<(usize, u64)>]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut newest = "no lease".to_owned();
    for (number, parts) in requests.iter().enumerate() {
        let now = NOW.saturating_add(Micros(number as u64 * 700_000));
        let id = newest.clone();
        let entries: Vec<Vec<Entry<'_>>> =
            parts.iter().map(|(key, _)| entries_of(KEYS[*key], &id)).collect();
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
        if let Some((id, _)) = lease(&verdict) {
            newest = id;
        }
        // The response is delivered, so its slots and reservations stay taken.
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
    /// with denied hits, or slots that the same request has just taken, have room again, nor what a lease
    /// holds. So none of these is here.
    #[test]
    fn a_tried_request_agrees_over_a_shared_store(mut requests in requests()) {
        let (rules, limiter) = over_shared_store();
        let is_shown = |key: usize| !["log", "slots", "settle", "release"].contains(&KEYS[key]);
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
