//! Hostile input: every kind is rejected or decided within bounds, and weir keeps serving.

mod client_memory;

use tonic::Code as Grpc;

use crate::support::http::{get, post};
use crate::support::rls::{
    Client, RateLimitDescriptor, RateLimitOverride, costing, descriptor, request,
};
use crate::support::weir::Weir;
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 5 }
";

/// Maximum growth in KiB after requests whose payloads add up to many times this.
const GROWTH_KIB: u64 = 32 * 1024;

/// The code of the response, or the error.
fn outcome(client: &Client, descriptors: Vec<RateLimitDescriptor>) -> Result<i32, Grpc> {
    let answer = client.try_check(request("d", descriptors));
    answer.map(|answer| answer.overall_code).map_err(|status| status.code())
}

fn user() -> RateLimitDescriptor {
    descriptor(&[("user", "ann")])
}

#[test]
fn an_undecidable_request_is_an_invalid_argument() {
    within_an_hour(|| {
        let mut weir = Weir::start(RULES);
        let client = weir.client();
        let long = "v".repeat(1 << 20);
        let limited = |unit| RateLimitDescriptor {
            limit: Some(RateLimitOverride { requests_per_unit: 1, unit }),
            ..user()
        };
        let deep = vec![("user", "ann"); 10_000];
        let refused = [
            ("no descriptors", vec![]),
            ("an empty key", vec![user(), descriptor(&[("", "x")])]),
            ("2^63 hits", vec![costing(1 << 63, user())]),
            ("the most hits", vec![costing(u64::MAX, user())]),
            ("an unset unit", vec![limited(0)]),
            ("an unknown unit", vec![limited(99)]),
            ("a negative unit", vec![limited(-1)]),
            ("10 000 descriptors", vec![user(); 10_000]),
            ("10 000 entries", vec![descriptor(&deep)]),
            ("a value of 1 MiB", vec![descriptor(&[("user", &long)])]),
            ("a key of 1 MiB", vec![descriptor(&[(&long, "x")])]),
        ];
        for (what, descriptors) in refused {
            let answer = outcome(&client, descriptors);
            assert_eq!(answer, Err(Grpc::InvalidArgument), "{what}");
        }
        let nowhere = client.try_check(request("", vec![user()])).map_err(|status| status.code());
        assert_eq!(nowhere.err(), Some(Grpc::InvalidArgument), "an empty domain");
        let far = client.try_check(request(&long, vec![user()])).map_err(|status| status.code());
        assert_eq!(far.err(), Some(Grpc::InvalidArgument), "a domain of 1 MiB");

        // None of them was counted.
        let answer = client.check(request("d", vec![user()]));
        assert_eq!(answer.statuses[0].limit_remaining, 4);
        assert!(weir.process().is_alive());
    });
}

/// The message names the problem and, where there is one, the bound.
#[test]
fn a_refusal_names_the_cause() {
    let weir = Weir::start(RULES);
    let client = weir.client();
    let reason = |domain: &str, descriptors| {
        let answer = client.try_check(request(domain, descriptors));
        answer.expect_err("it is refused").message().to_owned()
    };
    assert!(reason("", vec![user()]).contains("domain"));
    assert!(reason("d", vec![]).contains("descriptors"));
    assert!(reason("d", vec![user(); 10_000]).contains("10000"));
    assert!(reason("d", vec![costing(1 << 63, user())]).contains("2^53"));
}

/// A message over the size limit is rejected for its size, and weir serves the next call.
#[test]
fn an_oversized_message_is_refused() {
    let mut weir = Weir::start(RULES);
    let client = weir.client();
    let huge = "v".repeat(64 << 20);
    let answer = client.try_check(request("d", vec![descriptor(&[("user", &huge)])]));
    assert!(answer.is_err(), "64 MiB were accepted");
    let too_large = weir.metric("weir_grpc_calls_aborted_total", &[r#"reason="too_large""#]);
    assert_eq!(too_large, 1);
    assert_eq!(outcome(&weir.client(), vec![user()]), Ok(1));
    assert!(weir.process().is_alive());
}

#[test]
fn a_flood_of_large_requests_keeps_memory_flat() {
    let mut weir = Weir::start(RULES);
    let client = weir.client();
    let long = "v".repeat(1 << 20);
    let large = || vec![descriptor(&[("user", &long)]); 3];
    let many = || vec![user(); 10_000];
    let json = format!(r#"{{"domain": "{long}"}}"#);
    let round = |weir: &Weir| {
        assert_eq!(outcome(&client, large()), Err(Grpc::InvalidArgument));
        assert_eq!(outcome(&client, many()), Err(Grpc::InvalidArgument));
        assert!(matches!(post(weir.http, "/json", &json).status, 400 | 413));
    };
    // The first rounds fill buffers and allocator caches that stay.
    for _ in 0..20 {
        round(&weir);
    }
    let before = weir.process().resident_kib();
    for _ in 0..100 {
        round(&weir);
    }
    let grown = weir.process().resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB, "grown by {grown} KiB while refusing 400 MiB");
}

#[test]
fn a_flood_of_keys_stays_within_the_bound() {
    const BOUND: usize = 1000;
    within_an_hour(|| {
        let weir = Weir::setup().rules("d.yaml", RULES);
        let weir = weir.env("WEIR__STORE__MAX_COUNTERS", &BOUND.to_string());
        let mut weir = weir.start();
        let client = weir.client();
        // New clients do not evict a client at its limit.
        assert_eq!(outcome(&client, vec![costing(6, user())]), Ok(2));
        let before = weir.process().resident_kib();
        let mut passed = 0;
        for batch in 0..400 {
            let name = |index| format!("{batch}-{index}");
            let flood = (0..250).map(|index| descriptor(&[("user", &name(index))])).collect();
            passed += usize::from(outcome(&client, flood) == Ok(1));
        }
        assert_eq!(passed, 400, "100 000 first visits of 1000 counters must all pass");
        assert_eq!(outcome(&client, vec![user()]), Ok(2), "the limited client was let go");
        let counters = weir.metric("weir_memory_counters", &[]);
        assert!((1..=BOUND as u64).contains(&counters), "{counters} counters");
        let grown = weir.process().resident_kib().saturating_sub(before);
        assert!(grown < GROWTH_KIB, "grown by {grown} KiB for {BOUND} counters");
    });
}

#[test]
fn a_flood_of_long_values_counts_as_overflow() {
    const DETAILED: &str = "
domain: d
descriptors:
  - key: user
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
";
    let mut weir = Weir::start(DETAILED);
    let client = weir.client();
    let before = weir.process().resident_kib();
    for batch in 0..20 {
        let long = |index| format!("{batch}-{index}-{}", "z".repeat(60_000));
        let flood = (0..60).map(|index| descriptor(&[("user", &long(index))])).collect();
        assert_eq!(outcome(&client, flood), Ok(1));
    }
    let page = get(weir.admin, "/metrics").body;
    assert!(page.len() < 1 << 20, "a page of {} bytes", page.len());
    assert!(page.contains("weir_detailed_overflow_decisions_total 1200"), "{page}");
    let grown = weir.process().resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB, "grown by {grown} KiB for one series");
}
