//! The acceptance of RLQS: real Envoys under load share one quota while demand moves, Envoys die and
//! weir restarts.
//!
//! The steps have the letters of the table in docs/design/rlqs.md. `make rlqs` runs all of them, with
//! four versions of Envoy, and `make test` the most important ones with the newest.

mod acceptance;
mod course;
mod many_buckets;
mod settling;

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::envoy::NEWEST;
use crate::support::on_redis::over;
use crate::support::quota_run::record::check;
use crate::support::quota_run::{DOMAIN, Run, full_quota};
use crate::support::schedule::exclusive;
use crate::support::weir::metrics::Metrics;
use crate::support::weir::{Setup, Weir};
use course::Course;

/// The quota of all Envoys, in requests per second. A fifth more may be admitted in a second.
const QUOTA: u32 = 300;

/// The life of an assignment of a weir that counts in memory: the shortest.
const TTL: Duration = Duration::from_secs(10);

/// One rule, for each tenant.
fn rules() -> String {
    format!(
        "
domain: {DOMAIN}
descriptors:
  - key: policy
    value: per-tenant
    descriptors:
      - key: tenant
        rate_limit: {{ name: tenant, unit: second, requests_per_unit: {QUOTA} }}
"
    )
}

/// A weir that counts in memory. Envoys may have assignments of a weir before it.
fn in_memory() -> Setup {
    Weir::setup().rules("rules.yaml", &rules()).env("WEIR__RLQS__ASSIGNMENT_TTL", "10s")
}

/// A weir that counts in memory, the first one.
fn first_in_memory() -> Weir {
    in_memory().env("WEIR__RLQS__RELEARN", "false").start()
}

/// A weir that counts in the Redis at `url`, with the default settings of RLQS.
fn on_redis(url: &str) -> Weir {
    over(url, &rules()).start()
}

/// Three Envoys with the demands of step A.
fn three(version: &str, service: SocketAddr) -> Course {
    let service: &[SocketAddr] = &[service];
    Course::begin(Run::start(version, &[(service, 400), (service, 100), (service, 50)]))
}

/// Fails unless weir kept its invariant: no quota was ever divided into more than itself.
fn check_invariant(weir: &Weir) -> Result<(), String> {
    let violations = weir.metric("weir_rlqs_violations_total", &[]);
    let sum = largest_sum(weir);
    check(violations == 0 && sum <= 1.0, || format!("{violations} violations, a sum of {sum}"))
}

/// The same after step A, which uses most of the quota: the sum shows that.
fn check_invariant_in_use(weir: &Weir) -> Result<(), String> {
    let sum = largest_sum(weir);
    check(sum > 0.9, || format!("a sum of {sum}, which is not more than 0.9"))?;
    check_invariant(weir)
}

/// The largest part of a quota that was in use at the same time.
fn largest_sum(weir: &Weir) -> f64 {
    Metrics::scrape(weir.admin).largest("weir_rlqs_share_in_use_max", &[])
}

/// Demand moves (A, B), an Envoy is killed (D), weir is killed and starts again while its assignments are
/// active (F), and weir is killed for good (E). Each message is checked (K).
#[test]
fn three_envoys_never_exceed_one_quota() -> Result<(), String> {
    let _alone = exclusive();
    let weir = first_in_memory();
    let mut course = three(NEWEST, weir.grpc);
    // Envoys report every 5 s from their first request on. A change of demand in the middle of that time
    // is in two reports, and takes 5 s longer.
    course.steady(10, 5)?;
    check_invariant_in_use(&weir)?;
    course.swapped(1)?;
    course.envoy_killed(2, 1, 220.0, TTL)?;
    course.check_sum()?;
    check_invariant(&weir)?;
    course.killed_before_restart(weir);
    let weir = course.restarted("F", 1, 220.0, || in_memory().start())?;
    check_invariant(&weir)?;
    course.weir_killed(weir)?;
    course.check_messages()?;
    course.check_admitted()?;
    course.run.check_counts()
}

/// The control: the same checks fail with a server that does not divide.
#[test]
fn a_full_quota_for_each_envoy_is_noticed() {
    let _alone = exclusive();
    let mut course = three(NEWEST, full_quota::start(QUOTA));
    let over = course.steady(1, 2).expect_err("450 per second are admitted");
    assert!(over.starts_with("over 360 in a second"), "{over}");
    assert!(course.check_sum().is_err(), "900 per second are assigned");
    assert!(course.check_admitted().is_err(), "450 per second are admitted");
    assert_eq!(course.check_messages(), Ok(()), "each message for itself is good");
}

/// The control of K: a server that answers the first report of a stream only.
#[test]
fn reports_without_an_answer_are_noticed() {
    let _alone = exclusive();
    let course = three(NEWEST, full_quota::start_answering_once(QUOTA));
    course.passed(0, 8);
    let error = course.check_messages().expect_err("the second report has no answer");
    assert!(error.contains("no answer to a report"), "{error}");
}
