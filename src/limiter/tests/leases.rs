//! Tests of leases: slots and reservations, and how they are given back.

use super::*;
use crate::rules::DeniedRequests;
use crate::store::StoreError;
use crate::testing::{FakeResult, FakeStore};

const LEASING: &str = "
  - {key: slots, rate_limit: {algorithm: concurrency, max: 2, hold: 30s}}
  - {key: others, rate_limit: {algorithm: concurrency, max: 5, hold: 30s}}
  - {key: tokens, rate_limit: {unit: minute, requests_per_unit: 100, reserve: {hold: 10m}}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: full, rate_limit: {unit: minute, requests_per_unit: 0}}
";

/// One descriptor: its entries, and its signed hits.
pub(super) type Hits<'a> = (&'a [(&'a str, &'a str)], i64);

impl Bench {
    pub(super) fn send(&self, sent: &[Hits<'_>]) -> Verdict {
        let entries: Vec<Vec<Entry<'_>>> = sent
            .iter()
            .map(|(pairs, _)| pairs.iter().map(|&(key, value)| Entry { key, value }).collect())
            .collect();
        let descriptors: Vec<Descriptor<'_>> = sent
            .iter()
            .zip(&entries)
            .map(|((_, hits), entries)| Descriptor {
                entries,
                limit: None,
                hits_addend: Some(hits.unsigned_abs()),
                is_negative_hits: *hits < 0,
            })
            .collect();
        self.check(&with(&descriptors))
    }

    /// The remaining hits of `key`, by a peek.
    pub(super) fn left(&self, key: &str) -> u64 {
        self.send(&[(&[(key, "")], 0)]).statuses[0].remaining
    }
}

/// The lease in a response's metadata: id and hits.
pub(super) fn lease(verdict: &Verdict) -> Option<(String, u64)> {
    let lease = verdict.metadata.as_ref()?.get("lease")?;
    Some((lease["id"].as_str()?.to_owned(), lease["n"].as_u64()?))
}

/// Delivers the response, as a server does after writing it.
pub(super) fn deliver(mut verdict: Verdict) -> Verdict {
    if let Some(rollback) = verdict.rollback.take() {
        rollback.commit();
    }
    verdict
}

#[test]
fn a_slot_is_released_once_by_its_lease() {
    let bench = Bench::new(LEASING, ResponseSettings::default());
    let first = deliver(bench.send(&[(&[("slots", "")], 1)]));
    let (id, n) = lease(&first).expect("an acquire returns its lease");
    assert_eq!(n, 1);
    let second = deliver(bench.send(&[(&[("slots", "")], 1)]));
    assert_ne!(lease(&second).expect("every acquire has a lease").0, id);
    let denied = bench.send(&[(&[("slots", "")], 1)]);
    assert_eq!((denied.code, lease(&denied)), (Code::OverLimit, None));
    // Released twice: by negative hits, and by the entry alone, as an older Envoy does.
    for hits in [-1, 1] {
        let release = bench.send(&[(&[("slots", ""), ("lease", &id)], hits)]);
        assert_eq!((release.code, lease(&release)), (Code::Ok, None));
        assert_eq!(bench.left("slots"), 1, "the second release changes nothing");
    }
    for unknown in ["", "no id at all", "0123456789abcdef"] {
        let release = bench.send(&[(&[("slots", ""), ("lease", unknown)], -1)]);
        assert_eq!(release.code, Code::Ok);
    }
    assert_eq!(bench.left("slots"), 1);
    // Without an id the newest slots are released, and never more than are held.
    bench.send(&[(&[("slots", "")], -5)]);
    assert_eq!(bench.left("slots"), 2);
}

#[test]
fn an_undelivered_response_gives_back_its_hits() {
    let bench = Bench::new(LEASING, ResponseSettings::default());
    drop(bench.send(&[(&[("slots", "")], 1), (&[("tokens", "")], 40)]));
    assert_eq!((bench.left("slots"), bench.left("tokens")), (2, 100));
    deliver(bench.send(&[(&[("slots", "")], 1), (&[("tokens", "")], 40)]));
    assert_eq!((bench.left("slots"), bench.left("tokens")), (1, 60));
}

#[test]
fn every_algorithm_reserves_and_settles() {
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
        let bench = Bench::with(&rules, ResponseSettings::default(), &options);
        drop(bench.send(&[(&[("tokens", "")], 40)]));
        assert_eq!(bench.left("tokens"), 100, "{algorithm}: the response was not delivered");
        bench.send(&[(&[("tokens", "")], 40), (&[("full", "")], 1)]);
        assert_eq!(bench.left("tokens"), 100, "{algorithm}: denied for another reason");
        let mut left = 100;
        for cost in [30, 0, 45] {
            let (id, _) = lease(&deliver(bench.send(&[(&[("tokens", "")], 40)]))).expect("fits");
            assert_eq!(bench.left("tokens"), left - 40, "{algorithm}");
            bench.send(&[(&[("tokens", ""), ("lease", &id)], cost)]);
            left -= cost.unsigned_abs();
            assert_eq!(bench.left("tokens"), left, "{algorithm}: {cost} in the end");
        }
    }
}

/// A release whose response is lost is sent again. It must not free a part of the lease each time.
#[test]
fn a_release_frees_all_slots_of_its_lease() {
    let bench = Bench::new(LEASING, ResponseSettings::default());
    let (id, n) = lease(&deliver(bench.send(&[(&[("others", "")], 3)]))).expect("three slots");
    deliver(bench.send(&[(&[("others", "")], 1)]));
    assert_eq!((n, bench.left("others")), (3, 1));
    bench.send(&[(&[("others", ""), ("lease", &id)], 0)]);
    assert_eq!(bench.left("others"), 1, "a peek releases nothing");
    for _ in 0..2 {
        bench.send(&[(&[("others", ""), ("lease", &id)], -1)]);
        assert_eq!(bench.left("others"), 4, "the other lease has its slot");
    }
}

#[test]
fn one_request_has_one_lease_id() {
    let bench = Bench::new(LEASING, ResponseSettings::default());
    let verdict = deliver(bench.send(&[
        (&[("plain", "")], 1),
        (&[("slots", "")], 2),
        (&[("others", "")], 1),
    ]));
    let (id, n) = lease(&verdict).expect("slots were taken");
    assert_eq!(n, 2, "the hits of the first descriptor with leases");
    assert_eq!((bench.left("slots"), bench.left("others")), (0, 4));
    bench.send(&[(&[("slots", ""), ("lease", &id)], -2), (&[("others", ""), ("lease", &id)], -2)]);
    assert_eq!(
        (bench.left("slots"), bench.left("others")),
        (2, 5),
        "each counter releases its own"
    );
}

#[test]
fn a_reservation_is_settled_once() {
    for (cost, left) in [(10, 90), (70, 30), (0, 100)] {
        let bench = Bench::new(LEASING, ResponseSettings::default());
        let (id, n) = lease(&deliver(bench.send(&[(&[("tokens", "")], 40)]))).expect("reserved");
        assert_eq!((n, bench.left("tokens")), (40, 60));
        for _ in 0..2 {
            let settled = bench.send(&[(&[("tokens", ""), ("lease", &id)], cost)]);
            assert_eq!((settled.code, lease(&settled)), (Code::Ok, None));
            assert_eq!(bench.left("tokens"), left, "charged {cost} for 40 reserved");
        }
    }
}

#[test]
fn a_denied_request_keeps_hits_unless_free() {
    let sent: &[Hits<'_>] = &[
        (&[("slots", "")], 1),
        (&[("tokens", "")], 40),
        (&[("plain", "")], 2),
        (&[("full", "")], 1),
    ];
    for (denied_requests, tokens, plain) in
        [(DeniedRequests::Count, 60, 1), (DeniedRequests::Free, 100, 3)]
    {
        let options = Options { denied_requests, ..Options::default() };
        let bench = Bench::with(LEASING, ResponseSettings::default(), &options);
        let denied = bench.send(sent);
        assert_eq!((denied.code, lease(&denied)), (Code::OverLimit, None));
        assert_eq!(bench.left("slots"), 2, "{denied_requests:?}");
        assert_eq!(bench.left("tokens"), tokens, "{denied_requests:?}");
        assert_eq!(bench.left("plain"), plain, "{denied_requests:?}");
    }
}

#[test]
fn global_shadow_mode_gives_nothing_back() {
    let options = Options { denied_requests: DeniedRequests::Free, ..Options::default() };
    let config = ResponseSettings { shadow_mode: true, ..ResponseSettings::default() };
    let bench = Bench::with(LEASING, config, &options);
    let passed =
        deliver(bench.send(&[(&[("slots", "")], 1), (&[("plain", "")], 1), (&[("full", "")], 1)]));
    assert!(passed.shadowed && lease(&passed).is_some());
    assert_eq!((bench.left("slots"), bench.left("plain")), (1, 2));
}

#[test]
fn without_leases_a_lease_entry_is_a_plain_key() {
    let nested = "
  - key: car
    rate_limit: {unit: minute, requests_per_unit: 9}
    descriptors:
    - {key: lease, rate_limit: {unit: minute, requests_per_unit: 5}}
";
    let bench = Bench::new(nested, ResponseSettings::default());
    let verdict = bench.send(&[(&[("car", "x"), ("lease", "monthly")], 1)]);
    assert_eq!(verdict.statuses[0].remaining, 4);
}

/// The descriptor that denies follows `count_denied`; the other descriptors' hits are given back.
#[test]
fn hits_of_the_denying_counter_are_kept() {
    let options = Options { denied_requests: DeniedRequests::Free, ..Options::default() };
    let rules = "
  - {key: tight, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 3}}
";
    let bench = Bench::with(rules, ResponseSettings::default(), &options);
    assert_eq!(bench.send(&[(&[("tight", "")], 2)]).code, Code::Ok);
    let denied = bench.send(&[(&[("tight", "")], 1), (&[("plain", "")], 1)]);
    assert_eq!((denied.code, bench.left("plain")), (Code::OverLimit, 3));
    bench.send(&[(&[("tight", "")], -1)]);
    assert_eq!(bench.left("tight"), 0, "three were counted, one was given back");
}

/// A shadow rule passes hits that its counter denied; only counted hits are given back.
#[test]
fn a_shadow_rule_gives_back_only_counted_hits() {
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
        let bench = Bench::with(&rules, ResponseSettings::default(), &options);
        deliver(bench.send(&[(&[("watched", "")], 4)]));
        let denied = bench.send(&[(&[("watched", "")], 6), (&[("full", "")], 1)]);
        assert_eq!(denied.code, Code::OverLimit);
        assert_eq!(bench.left("watched"), left, "{algorithm}");
    }
}

#[test]
fn a_settlement_counts_no_hits() {
    let bench = Bench::new(LEASING, ResponseSettings::default());
    let (id, _) = lease(&deliver(bench.send(&[(&[("tokens", "")], 40)]))).expect("reserved");
    let settled = bench.send(&[(&[("tokens", ""), ("lease", &id)], 70)]);
    assert!(matches!(settled.statuses[0].reason, DecisionReason::Counted { hits: 0, .. }));
}

/// Slots that the fallback grants have a lease too, so that they can be released.
#[test]
fn a_slot_of_the_fallback_is_released_by_its_lease() {
    let bench = Bench::new(LEASING, ResponseSettings::default());
    let config = ResponseSettings::default();
    let store = FakeStore::new().with_result(FakeResult::Rejected(StoreError::Unreachable));
    let backend = Backend::Redis(Modes::new(store));
    let limiter = Limiter::new(backend, KeySeed::fixed([1, 2]), config)
        .with_on_error(OnError::Local)
        .with_local(LocalCounters::new(MemoryStore::new(100), 1));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let send = |entries: &[Entry<'_>], hits: i64| {
        let hits_addend = Some(hits.unsigned_abs());
        let one = [Descriptor { entries, limit: None, hits_addend, is_negative_hits: hits < 0 }];
        let request = with(&one);
        runtime.block_on(limiter.check(&bench.rules, &request, NOW))
    };
    let slots = Entry { key: "slots", value: "" };
    let (id, n) = lease(&deliver(send(&[slots], 1))).expect("an acquire returns its lease");
    assert_eq!(n, 1);
    deliver(send(&[slots], 1));
    assert_eq!(send(&[slots], 1).code, Code::OverLimit);
    send(&[slots, Entry { key: "lease", value: &id }], -1);
    drop(send(&[slots], 1)); // the response was not delivered
    assert_eq!(deliver(send(&[slots], 1)).code, Code::Ok);
    assert_eq!(send(&[slots], 1).code, Code::OverLimit);
}
