//! What is taken under a lease, and how it comes back.

use super::*;
use crate::key::Key;
use crate::rules::DeniedRequests;
use crate::step::{Outcome, Step};
use crate::store::StoreError;

const LEASING: &str = "
  - {key: slots, rate_limit: {algorithm: concurrency, max: 2, hold: 30s}}
  - {key: others, rate_limit: {algorithm: concurrency, max: 5, hold: 30s}}
  - {key: tokens, rate_limit: {unit: minute, requests_per_unit: 100, reserve: {hold: 10m}}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: full, rate_limit: {unit: minute, requests_per_unit: 0}}
";

/// One descriptor: its entries, and its signed hits.
type CounterCheck<'a> = (&'a [(&'a str, &'a str)], i64);

impl Bench {
    fn asks(&self, asks: &[CounterCheck<'_>]) -> Verdict {
        let entries: Vec<Vec<Entry<'_>>> = asks
            .iter()
            .map(|(pairs, _)| pairs.iter().map(|&(key, value)| Entry { key, value }).collect())
            .collect();
        let descriptors: Vec<Descriptor<'_>> = asks
            .iter()
            .zip(&entries)
            .map(|((_, hits), entries)| Descriptor {
                entries,
                limit: None,
                hits_addend: Some(hits.unsigned_abs()),
                is_negative_hits: *hits < 0,
            })
            .collect();
        self.check(&Request {
            domain: "d",
            descriptors: &descriptors,
            hits_addend: 0,
            timeout: None,
            caller: Default::default(),
        })
    }

    /// What is left on the counter of `key`, by a peek.
    fn left(&self, key: &str) -> u64 {
        self.asks(&[(&[(key, "")], 0)]).statuses[0].remaining
    }
}

/// The lease an answer grants, as its caller reads it.
fn lease(verdict: &Verdict) -> Option<(String, u64)> {
    let lease = verdict.metadata.as_ref()?.get("lease")?;
    Some((lease["id"].as_str()?.to_owned(), lease["n"].as_u64()?))
}

/// Takes delivery of an answer, as a server does that has written it.
fn deliver(mut verdict: Verdict) -> Verdict {
    if let Some(grant) = verdict.grant.take() {
        grant.delivered();
    }
    verdict
}

#[test]
fn a_slot_is_held_until_its_lease_comes_back_once() {
    let bench = Bench::new(LEASING, ResponseConfig::default());
    let first = deliver(bench.asks(&[(&[("slots", "")], 1)]));
    let (id, n) = lease(&first).expect("an acquire tells its lease");
    assert_eq!(n, 1);
    let second = deliver(bench.asks(&[(&[("slots", "")], 1)]));
    assert_ne!(lease(&second).expect("every acquire has a lease").0, id);
    let denied = bench.asks(&[(&[("slots", "")], 1)]);
    assert_eq!((denied.code, lease(&denied)), (Code::OverLimit, None));
    // Released twice: by negative hits, and as an older Envoy does, by the entry alone.
    for hits in [-1, 1] {
        let release = bench.asks(&[(&[("slots", ""), ("lease", &id)], hits)]);
        assert_eq!((release.code, lease(&release)), (Code::Ok, None));
        assert_eq!(bench.left("slots"), 1, "the second release changes nothing");
    }
    for unknown in ["", "no id at all", "0123456789abcdef"] {
        let release = bench.asks(&[(&[("slots", ""), ("lease", unknown)], -1)]);
        assert_eq!(release.code, Code::Ok);
    }
    assert_eq!(bench.left("slots"), 1);
    // Without an id the newest goes, and then nothing is below empty.
    bench.asks(&[(&[("slots", "")], -5)]);
    assert_eq!(bench.left("slots"), 2);
}

#[test]
fn an_answer_that_does_not_arrive_gives_back_what_it_took() {
    let bench = Bench::new(LEASING, ResponseConfig::default());
    drop(bench.asks(&[(&[("slots", "")], 1), (&[("tokens", "")], 40)]));
    assert_eq!((bench.left("slots"), bench.left("tokens")), (2, 100));
    deliver(bench.asks(&[(&[("slots", "")], 1), (&[("tokens", "")], 40)]));
    assert_eq!((bench.left("slots"), bench.left("tokens")), (1, 60));
}

#[test]
fn every_algorithm_reserves_settles_and_takes_back() {
    for algorithm in
        ["fixed_window", "sliding_window", "sliding_window_log", "token_bucket", "leaky_bucket"]
    {
        let rules = format!(
            "
  - key: tokens
    rate_limit:
      algorithm: {algorithm}
      tiers: [{{requests: 100, window: 24h}}, {{requests: 1000, window: 7d}}]
      reserve: {{hold: 10m}}
  - {{key: full, rate_limit: {{unit: minute, requests_per_unit: 0}}}}
"
        );
        let options = Options { denied_requests: DeniedRequests::Free, ..Options::default() };
        let bench = Bench::with(&rules, ResponseConfig::default(), &options);
        drop(bench.asks(&[(&[("tokens", "")], 40)]));
        assert_eq!(bench.left("tokens"), 100, "{algorithm}: the answer did not arrive");
        bench.asks(&[(&[("tokens", "")], 40), (&[("full", "")], 1)]);
        assert_eq!(bench.left("tokens"), 100, "{algorithm}: denied for another reason");
        let mut left = 100;
        for cost in [30, 0, 45] {
            let (id, _) = lease(&deliver(bench.asks(&[(&[("tokens", "")], 40)]))).expect("fits");
            assert_eq!(bench.left("tokens"), left - 40, "{algorithm}");
            bench.asks(&[(&[("tokens", ""), ("lease", &id)], cost)]);
            left -= cost.unsigned_abs();
            assert_eq!(bench.left("tokens"), left, "{algorithm}: {cost} in the end");
        }
    }
}

#[test]
fn one_request_has_one_lease_for_all_that_it_takes() {
    let bench = Bench::new(LEASING, ResponseConfig::default());
    let verdict = deliver(bench.asks(&[
        (&[("plain", "")], 1),
        (&[("slots", "")], 2),
        (&[("others", "")], 1),
    ]));
    let (id, n) = lease(&verdict).expect("slots were taken");
    assert_eq!(n, 2, "the hits of the first that leases");
    assert_eq!((bench.left("slots"), bench.left("others")), (0, 4));
    bench.asks(&[(&[("slots", ""), ("lease", &id)], -2), (&[("others", ""), ("lease", &id)], -2)]);
    assert_eq!((bench.left("slots"), bench.left("others")), (2, 5), "each gives what it held");
}

#[test]
fn a_reservation_is_settled_to_the_true_cost_once() {
    for (cost, left) in [(10, 90), (70, 30), (0, 100)] {
        let bench = Bench::new(LEASING, ResponseConfig::default());
        let (id, n) = lease(&deliver(bench.asks(&[(&[("tokens", "")], 40)]))).expect("reserved");
        assert_eq!((n, bench.left("tokens")), (40, 60));
        for _ in 0..2 {
            let settled = bench.asks(&[(&[("tokens", ""), ("lease", &id)], cost)]);
            assert_eq!((settled.code, lease(&settled)), (Code::Ok, None));
            assert_eq!(bench.left("tokens"), left, "charged {cost} for 40 reserved");
        }
    }
}

#[test]
fn a_denied_request_holds_no_slot_and_keeps_hits_unless_they_are_free() {
    let asks: &[CounterCheck<'_>] = &[
        (&[("slots", "")], 1),
        (&[("tokens", "")], 40),
        (&[("plain", "")], 2),
        (&[("full", "")], 1),
    ];
    for (denied_requests, tokens, plain) in
        [(DeniedRequests::Count, 60, 1), (DeniedRequests::Free, 100, 3)]
    {
        let options = Options { denied_requests, ..Options::default() };
        let bench = Bench::with(LEASING, ResponseConfig::default(), &options);
        let denied = bench.asks(asks);
        assert_eq!((denied.code, lease(&denied)), (Code::OverLimit, None));
        assert_eq!(bench.left("slots"), 2, "{denied_requests:?}");
        assert_eq!(bench.left("tokens"), tokens, "{denied_requests:?}");
        assert_eq!(bench.left("plain"), plain, "{denied_requests:?}");
    }
}

#[test]
fn in_global_shadow_mode_nothing_is_given_back_because_nothing_was_denied() {
    let options = Options { denied_requests: DeniedRequests::Free, ..Options::default() };
    let answer = ResponseConfig { shadow_mode: true, ..ResponseConfig::default() };
    let bench = Bench::with(LEASING, answer, &options);
    let passed =
        deliver(bench.asks(&[(&[("slots", "")], 1), (&[("plain", "")], 1), (&[("full", "")], 1)]));
    assert!(passed.shadowed && lease(&passed).is_some());
    assert_eq!((bench.left("slots"), bench.left("plain")), (1, 2));
}

#[test]
fn a_lease_entry_is_a_key_like_any_other_where_nothing_is_leased() {
    let nested = "
  - key: car
    rate_limit: {unit: minute, requests_per_unit: 9}
    descriptors:
    - {key: lease, rate_limit: {unit: minute, requests_per_unit: 5}}
";
    let bench = Bench::new(nested, ResponseConfig::default());
    let verdict = bench.asks(&[(&[("car", "x"), ("lease", "monthly")], 1)]);
    assert_eq!(verdict.statuses[0].remaining, 4);
}

/// The denying descriptor follows `count_denied`, whatever becomes of the others.
#[test]
fn what_denies_a_request_is_not_given_back() {
    let options = Options { denied_requests: DeniedRequests::Free, ..Options::default() };
    let rules = "
  - {key: tight, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 3}}
";
    let bench = Bench::with(rules, ResponseConfig::default(), &options);
    assert_eq!(bench.asks(&[(&[("tight", "")], 2)]).code, Code::Ok);
    let denied = bench.asks(&[(&[("tight", "")], 1), (&[("plain", "")], 1)]);
    assert_eq!((denied.code, bench.left("plain")), (Code::OverLimit, 3));
    bench.asks(&[(&[("tight", "")], -1)]);
    assert_eq!(bench.left("tight"), 0, "three were counted, one was given back");
}

/// A shadow rule counts hits that it denies and passes; only what was counted comes back.
#[test]
fn what_a_shadow_rule_counted_is_given_back_and_no_more() {
    let options = Options { denied_requests: DeniedRequests::Free, ..Options::default() };
    for (algorithm, left) in [
        ("algorithm: fixed_window", 1),
        ("algorithm: fixed_window, reserve: {hold: 1m}", 1),
        ("algorithm: sliding_window, count_denied: true", 1),
        ("algorithm: sliding_window_log, count_denied: true", 0),
        ("algorithm: token_bucket, count_denied: true", 0),
        ("algorithm: token_bucket", 1),
    ] {
        let rules = format!(
            "
  - key: watched
    shadow_mode: true
    rate_limit: {{{algorithm}, unit: hour, requests_per_unit: 5}}
  - {{key: full, rate_limit: {{unit: minute, requests_per_unit: 0}}}}
"
        );
        let bench = Bench::with(&rules, ResponseConfig::default(), &options);
        deliver(bench.asks(&[(&[("watched", "")], 4)]));
        let denied = bench.asks(&[(&[("watched", "")], 6), (&[("full", "")], 1)]);
        assert_eq!(denied.code, Code::OverLimit);
        assert_eq!(bench.left("watched"), left, "{algorithm}");
    }
}

#[test]
fn a_settlement_is_not_counted_as_another_request() {
    let bench = Bench::new(LEASING, ResponseConfig::default());
    let (id, _) = lease(&deliver(bench.asks(&[(&[("tokens", "")], 40)]))).expect("reserved");
    let settled = bench.asks(&[(&[("tokens", ""), ("lease", &id)], 70)]);
    assert!(matches!(settled.statuses[0].cause, Cause::Counted { hits: 0, .. }));
}

/// A store that is not there.
struct Away;

impl Store for Away {
    async fn apply(&self, _: &Key, _: &Step) -> Result<Outcome, StoreError> {
        Err(StoreError::Unreachable)
    }

    fn apply_detached(&self, _: &Key, _: Step) {}

    async fn forget(&self, _: &Key) -> Result<bool, StoreError> {
        Err(StoreError::Unreachable)
    }
}

/// Slots that the fallback grants are told by a lease as well, or nobody could give them back.
#[test]
fn a_slot_of_the_fallback_comes_back_by_its_lease() {
    let bench = Bench::new(LEASING, ResponseConfig::default());
    let answer = ResponseConfig { on_error: OnError::Local, ..ResponseConfig::default() };
    let limiter = Limiter::new(Away, ManualClock::at(NOW), KeySeed::fixed([1, 2]), answer)
        .with_local(LocalCounters::new(MemoryStore::new(100), 1));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ask = |entries: &[Entry<'_>], hits: i64| {
        let hits_addend = Some(hits.unsigned_abs());
        let one = Descriptor { entries, limit: None, hits_addend, is_negative_hits: hits < 0 };
        let (hits_addend, timeout, caller) = (0, None, Default::default());
        let request = Request { domain: "d", descriptors: &[one], hits_addend, timeout, caller };
        runtime.block_on(limiter.check(&bench.rules, &request, NOW))
    };
    let slots = Entry { key: "slots", value: "" };
    let (id, n) = lease(&deliver(ask(&[slots], 1))).expect("an acquire tells its lease");
    assert_eq!(n, 1);
    deliver(ask(&[slots], 1));
    assert_eq!(ask(&[slots], 1).code, Code::OverLimit);
    ask(&[slots, Entry { key: "lease", value: &id }], -1);
    drop(ask(&[slots], 1)); // its answer did not arrive
    assert_eq!(deliver(ask(&[slots], 1)).code, Code::Ok);
    assert_eq!(ask(&[slots], 1).code, Code::OverLimit);
}
