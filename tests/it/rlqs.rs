//! RLQS: weir divides limits among Envoys, which are small ones of `tests/support/rlqs.rs`.
//!
//! Each of them checks every message that it gets, and fails its test on drop.
//!
//! Some tests wait by the clock: they count what passes in a time, or show that nothing moves in it. That has
//! no event, and a process has no paused time.

use std::time::{Duration, Instant};

use crate::support::rlqs::{BucketName, SmallEnvoy, bucket, most_in_a_second};
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir};

mod assignment;
mod division;
mod hostile;
mod lifetime;
mod mixed;

/// The shortest `rlqs.assignment_ttl`.
const TTL: Duration = Duration::from_secs(10);

/// The time between a report and its effect on another Envoy: the next report, the grace of a lowered
/// share, two ticks, and a slow machine.
const CONVERGED: Duration = Duration::from_secs(8);

/// A weir with `rules` that assigns at once after its start.
fn serving(rules: &str) -> Setup {
    Weir::setup()
        .rules("rules.yaml", rules)
        .env("WEIR__RLQS__RELEARN", "false")
        .env("WEIR__RLQS__ASSIGNMENT_TTL", "10s")
}

/// Rules of domain `d` with one limit per tenant.
fn tenants(unit: &str, requests: u64) -> String {
    limited(&format!("rate_limit: {{ unit: {unit}, requests_per_unit: {requests} }}"))
}

/// Rules of domain `d` for the key `tenant`.
fn limited(fields: &str) -> String {
    format!("domain: d\ndescriptors:\n  - key: tenant\n    {fields}\n")
}

fn tenant() -> BucketName {
    bucket(&[("tenant", "a")])
}

/// An Envoy with `demand` requests per second of one tenant.
fn envoy(weir: &Weir, demand: f64) -> SmallEnvoy {
    let envoy = SmallEnvoy::start(weir.grpc, "d");
    envoy.demand(&tenant(), demand);
    envoy
}

/// The invariant was kept: weir itself has seen no violation.
fn assert_no_violation(weir: &Weir) {
    assert_eq!(weir.metric("weir_rlqs_violations_total", &[]), 0);
}

/// `envoys` together allowed at most `limit` in any second since `since`, and the burst of 20 %.
fn assert_within(envoys: &[&SmallEnvoy], limit: u64, since: Instant) {
    let most = most_in_a_second(envoys, &[], since);
    // Each Envoy may have one token that its part of the burst has not.
    let bound = limit + limit / 5 + envoys.len() as u64;
    assert!(most <= bound, "{most} in a second, at most {bound}");
}

/// Waits until `holds` has been true for a second.
fn until_stable(what: &str, mut holds: impl FnMut() -> bool) {
    let mut since = None;
    until(what, || {
        if !holds() {
            since = None;
            return false;
        }
        since.get_or_insert_with(Instant::now).elapsed() >= Duration::from_secs(1)
    });
}
