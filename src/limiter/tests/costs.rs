//! Tests of rules with a cost: the hits that are taken, given back, reserved and settled.

use super::leases::{Hits, deliver, lease};
use super::*;
use crate::rules::DeniedRequests;

const COSTS: &str = r#"
  - {key: job, rate_limit: {name: jobs, unit: hour, requests_per_unit: 10, cost: 3}}
  - {key: half, rate_limit: {unit: hour, requests_per_unit: 10, cost: "1/2"}}
  - {key: plain, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: full, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: tokens, rate_limit: {requests: 1000, window: 1h, reserve: {hold: 10m}, cost: 0.25}}
  - key: user
    descriptors:
      - key: model
        value: "*"
        share_threshold: true
        rate_limit:
          requests: 1000
          window: 1h
          count_denied: false
          reserve: {hold: 10m}
          cost: {by: model, factors: {large: 10, small: "1/2", free: 0}, default: 2}
"#;

fn bench() -> Bench {
    Bench::new(COSTS, ResponseSettings::default())
}

/// The remaining hits after `hits` of one descriptor.
#[track_caller]
fn after(bench: &Bench, entries: &[(&str, &str)], hits: i64) -> u64 {
    let verdict = deliver(bench.send(&[(entries, hits)]));
    assert_eq!(verdict.code, Code::Ok);
    verdict.statuses[0].remaining
}

/// The weighted hits of the first status.
fn counted(verdict: &Verdict) -> i64 {
    match verdict.statuses[0].reason {
        DecisionReason::Counted { hits, .. } => hits,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hits_count_with_their_cost() {
    let bench = bench();
    for left in [7, 4, 1] {
        assert_eq!(after(&bench, &[("job", "")], 1), left);
    }
    let denied = bench.send(&[(&[("job", "")], 1)]);
    assert_eq!((denied.code, counted(&denied)), (Code::OverLimit, 3));
    assert_eq!(denied.statuses[0].limit.as_ref().map(|limit| limit.requests), Some(10));
    assert_eq!(bench.left("half"), 10, "a peek counts nothing");
    assert_eq!(after(&bench, &[("half", "")], 3), 8, "1.5 is rounded up");
    assert_eq!(after(&bench, &[("half", "")], -3), 9, "1.5 is rounded down");
    assert_eq!(after(&bench, &[("half", "")], -1), 9, "0.5 too");
    assert_eq!(after(&bench, &[("plain", "")], 3), 7);
}

/// The values of the entry share a counter.
#[test]
fn each_value_has_its_cost_on_one_counter() {
    let bench = bench();
    for (model, hits, left) in [
        ("large", 20, 800),
        ("small", 3, 798),
        ("other", 4, 790),
        ("free", 50, 790),
        ("", 1, 788),
        ("large", -1, 798),
        ("small", 0, 798),
    ] {
        assert_eq!(after(&bench, &[("user", "a"), ("model", model)], hits), left, "{model} {hits}");
    }
    assert_eq!(after(&bench, &[("user", "b"), ("model", "large")], 1), 990);
    let denied = bench.send(&[(&[("user", "a"), ("model", "large")], 80)]);
    assert_eq!((denied.code, counted(&denied)), (Code::OverLimit, 800));
    assert_eq!(after(&bench, &[("user", "a"), ("model", "small")], 80), 758);
}

#[test]
fn headers_show_weighted_hits() {
    let config = ResponseSettings { headers: LimitHeaders::Both, ..ResponseSettings::default() };
    let bench = Bench::new(COSTS, config);
    let verdict = bench.hit(&[("job", "")]);
    assert_eq!(header(&verdict, "x-ratelimit-limit"), Some("10, 10;w=3600;name=\"jobs\""));
    assert_eq!(header(&verdict, "x-ratelimit-remaining"), Some("7"));
    assert_eq!(header(&verdict, "ratelimit-policy"), Some("\"jobs\";q=10;w=3600"));
    let limit = header(&verdict, "ratelimit").expect("switched on");
    assert!(limit.starts_with("\"jobs\";r=7;t="), "{limit}");
}

#[test]
fn reservations_and_settlements_are_weighed() {
    for (cost, left) in [(10, 997), (101, 974), (400, 900), (0, 1_000)] {
        let bench = bench();
        let reserved = deliver(bench.send(&[(&[("tokens", "")], 101)]));
        let (id, n) = lease(&reserved).expect("a reservation");
        assert_eq!((n, counted(&reserved), bench.left("tokens")), (26, 26, 974));
        // The entry with the lease may be anywhere.
        for _ in 0..2 {
            let settled = bench.send(&[(&[("lease", &id), ("tokens", "")], cost)]);
            assert_eq!((settled.code, counted(&settled)), (Code::Ok, 0));
            assert_eq!(bench.left("tokens"), left, "{cost}");
        }
    }
    let bench = bench();
    drop(bench.send(&[(&[("tokens", "")], 101)]));
    assert_eq!(bench.left("tokens"), 1_000, "the response was not delivered");
}

/// Two reservations of one request have one lease. Their sum is settled by two descriptors of one
/// later request, whatever their order, each with the factor of its value.
#[test]
fn two_costs_of_a_request_are_settled_together() {
    let large = |hits| -> Hits<'static> { (&[("user", "a"), ("model", "large")], hits) };
    let small = |hits| -> Hits<'static> { (&[("user", "a"), ("model", "small")], hits) };
    for swapped in [false, true] {
        let bench = bench();
        let reserved = deliver(bench.send(&[large(20), small(100)]));
        let (id, n) = lease(&reserved).expect("a reservation");
        assert_eq!(n, 200, "the hits of the first descriptor");
        assert_eq!(after(&bench, &[("user", "a"), ("model", "")], 0), 750);
        let entries =
            ["large", "small"].map(|model| [("user", "a"), ("model", model), ("lease", &*id)]);
        let mut settlement = [(&entries[0][..], 7), (&entries[1][..], 33)];
        if swapped {
            settlement.reverse();
        }
        for _ in 0..2 {
            assert_eq!(bench.send(&settlement).code, Code::Ok);
            let left = after(&bench, &[("user", "a"), ("model", "")], 0);
            assert_eq!(left, 1_000 - 70 - 17, "{swapped}");
        }
    }
}

/// A descriptor whose factor is 0 reserves nothing, so it must not settle the reservation of another one.
#[test]
fn a_factor_of_0_settles_nothing() {
    let free = |hits| -> Hits<'static> { (&[("user", "a"), ("model", "free")], hits) };
    let large = |hits| -> Hits<'static> { (&[("user", "a"), ("model", "large")], hits) };
    for swapped in [false, true] {
        let bench = bench();
        let mut sent = [free(50), large(20)];
        if swapped {
            sent.reverse();
        }
        let reserved = deliver(bench.send(&sent));
        let (id, n) = lease(&reserved).expect("a reservation");
        assert_eq!(n, 200);
        let entries =
            ["free", "large"].map(|model| [("user", "a"), ("model", model), ("lease", &*id)]);
        let mut settlement = [(&entries[0][..], 30), (&entries[1][..], 7)];
        if swapped {
            settlement.reverse();
        }
        for _ in 0..2 {
            assert_eq!(bench.send(&settlement).code, Code::Ok);
            let left = after(&bench, &[("user", "a"), ("model", "")], 0);
            assert_eq!(left, 1_000 - 70, "{swapped}");
        }
    }
}

/// What a denied request gives back is what it has taken, not the hits that it sent.
#[test]
fn a_denied_request_returns_weighted_hits() {
    let sent: &[Hits<'_>] = &[
        (&[("job", "")], 2),
        (&[("half", "")], 3),
        (&[("tokens", "")], 101),
        (&[("full", "")], 1),
    ];
    for (denied_requests, left) in
        [(DeniedRequests::Count, [4, 8, 974]), (DeniedRequests::Free, [10, 10, 1_000])]
    {
        let options = Options { denied_requests, ..Options::default() };
        let bench = Bench::with(COSTS, ResponseSettings::default(), &options);
        assert_eq!(bench.send(sent).code, Code::OverLimit);
        assert_eq!(["job", "half", "tokens"].map(|key| bench.left(key)), left);
    }
}

/// The fallback counts weighted hits too.
#[test]
fn local_counters_count_weighted_hits() {
    let rules = bench().rules;
    let local = LocalCounters::new(MemoryStore::new(100), 1);
    let config = ResponseSettings::default();
    let limiter = unreachable_limiter(config).with_on_error(OnError::Local).with_local(local);
    let entries = [Entry { key: "job", value: "" }];
    let one =
        Descriptor { entries: &entries, limit: None, hits_addend: None, is_negative_hits: false };
    let descriptors = [one];
    let request = with(&descriptors);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let codes = [(); 4].map(|()| runtime.block_on(limiter.check(&rules, &request, NOW)).code);
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit], "3, 6 and 9 of 10");
}
