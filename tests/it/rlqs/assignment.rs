//! What one Envoy is assigned for a rule.

use std::time::{Duration, Instant};

use super::{assert_no_violation, assert_within, envoy, limited, serving, tenant, tenants};
use crate::support::rlqs::{Assigned, SmallEnvoy, bucket};
use crate::support::wait::until;
use crate::support::weir::write;

/// The relative error of an assigned rate.
const ERROR_MAX: f64 = 0.001;

/// The assignment of a single Envoy under `rules`.
fn assigned(rules: &str) -> Assigned {
    let weir = serving(rules).start();
    let envoy = envoy(&weir, 20.0);
    let assigned = envoy.until_assigned(&tenant());
    assert_no_violation(&weir);
    assigned
}

fn assert_rate(assigned: Assigned, rate: f64) {
    let error = 1.0 - assigned.rate() / rate;
    // Below the rate, but for the rounding of this division.
    assert!((-1e-9..ERROR_MAX).contains(&error), "{assigned:?}: not {rate} per second");
}

#[test]
fn one_envoy_gets_the_whole_quota() {
    let weir = serving(&tenants("second", 300)).start();
    let began = Instant::now();
    let envoy = envoy(&weir, 1000.0);
    let assigned = envoy.until_assigned(&tenant());
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_rate(assigned, 300.0);
    let Assigned::Bucket { max_tokens, .. } = assigned else { panic!("{assigned:?}") };
    assert_eq!(max_tokens, 60, "20 % of the limit");
    let since = Instant::now();
    until("1000 requests pass", || envoy.allowed_since(since) > 1000);
    assert!(since.elapsed() > Duration::from_millis(2500), "{:?}", since.elapsed());
    assert!(envoy.denied() > 1000);
    assert_within(&[&envoy], 300, began);
    assert_no_violation(&weir);
}

/// Rates from a hit per day to the largest limit of the protocol.
#[test]
fn rates_of_any_size_are_assigned() {
    for (unit, requests, seconds) in [
        ("day", 5, 86_400.0),
        ("hour", 7, 3600.0),
        ("minute", 61, 60.0),
        ("second", 999, 1.0),
        ("second", 1001, 1.0),
        ("second", 123_456, 1.0),
        ("second", 4_000_000_000_u64, 1.0),
    ] {
        let assigned = assigned(&tenants(unit, requests));
        assert_rate(assigned, requests as f64 / seconds);
        let Assigned::Bucket { max_tokens, .. } = assigned else { panic!("{assigned:?}") };
        assert_eq!(u64::from(max_tokens), (requests / 5).max(1), "{requests} per {unit}");
    }
}

#[test]
fn a_limit_of_zero_denies() {
    assert_eq!(assigned(&tenants("second", 0)), Assigned::DenyAll);
}

/// No limit applies, or it only counts.
#[test]
fn what_has_no_limit_is_allowed() {
    let shadow = "shadow_mode: true\n    rate_limit: { unit: hour, requests_per_unit: 1 }";
    assert_eq!(assigned(&limited(shadow)), Assigned::AllowAll);
    assert_eq!(assigned(&limited("rate_limit: { unlimited: true }")), Assigned::AllowAll);
    assert_eq!(assigned(&tenants("hour", 1).replace("tenant", "user")), Assigned::AllowAll);
    assert_eq!(assigned(&tenants("hour", 1).replace("domain: d", "domain: e")), Assigned::AllowAll);
}

/// A bucket id with several keys is a descriptor, in the order of the setting and then of the keys.
#[test]
fn keys_become_a_descriptor_in_order() {
    let rules = "
domain: d
descriptors:
  - key: policy
    value: gold
    descriptors:
      - key: alpha
        rate_limit: { unit: second, requests_per_unit: 50 }
";
    let weir = serving(rules).env("WEIR__RLQS__KEY_ORDER", "policy").start();
    let envoy = SmallEnvoy::start(weir.grpc, "d");
    let gold = bucket(&[("alpha", "x"), ("policy", "gold")]);
    envoy.demand(&gold, 10.0);
    assert_rate(envoy.until_assigned(&gold), 50.0);
}

#[test]
fn each_bucket_has_its_quota() {
    let weir = serving(&tenants("second", 100)).start();
    let envoy = SmallEnvoy::start(weir.grpc, "d");
    let tenants: Vec<_> = (0..300).map(|n| bucket(&[("tenant", &n.to_string())])).collect();
    for tenant in &tenants {
        envoy.demand(tenant, 1.0);
    }
    for tenant in &tenants {
        assert_rate(envoy.until_assigned(tenant), 100.0);
    }
    assert_eq!(weir.metric("weir_rlqs_buckets", &[]), 300);
    assert_eq!(weir.metric("weir_rlqs_streams", &[]), 1);
    assert_no_violation(&weir);
}

/// A reload changes the assignments within seconds, also to a lower limit and to none.
#[test]
fn a_reload_changes_assignments() {
    let weir = serving(&tenants("second", 300)).start();
    let envoy = envoy(&weir, 1000.0);
    let tenant = tenant();
    assert_rate(envoy.until_assigned(&tenant), 300.0);
    let file = weir.rules_folder().join("rules.yaml");
    for limit in [30, 600] {
        write(&file, &tenants("second", limit));
        envoy.until_rate(&tenant, |rate| (rate / limit as f64 - 1.0).abs() < 0.02);
    }
    write(&file, &tenants("hour", 1).replace("tenant", "user"));
    envoy.until_rate(&tenant, f64::is_infinite);
    write(&file, &tenants("second", 0));
    until("nothing is allowed", || envoy.assigned(&tenant) == Some(Assigned::DenyAll));
    assert!(envoy.ended().is_empty(), "{:?}", envoy.ended());
}

/// `concurrency` counts requests in flight, which an Envoy does not report.
#[test]
fn concurrency_gets_no_assignment() {
    let rules = "
domain: d
descriptors:
  - key: tenant
    rate_limit: { algorithm: concurrency, max: 5, hold: 10s }
  - key: user
    rate_limit: { unit: second, requests_per_unit: 100 }
";
    let weir = serving(rules).start();
    let envoy = envoy(&weir, 10.0);
    let user = bucket(&[("user", "b")]);
    envoy.demand(&user, 10.0);
    envoy.until_assigned(&user);
    until("both were reported twice", || weir.metric("weir_rlqs_reports_total", &[]) >= 4);
    assert_eq!(envoy.assigned(&tenant()), None);
}
