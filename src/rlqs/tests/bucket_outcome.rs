//! What `weir explain --bucket` says of a bucket: the same as what a stream does.

use super::*;
use crate::descriptor::ParsedDescriptor;
use crate::quota::Quota;

const LIMITS: &str = "
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 30}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: token, rate_limit: {algorithm: token_bucket, requests: 10, window: 1s, burst: 7}}
  - {key: tiers, rate_limit: {tiers: [{requests: 10, window: 1s}, {requests: 1000, window: 1h}]}}
  - {key: zero, rate_limit: {unit: second, requests_per_unit: 0}}
  - {key: open, rate_limit: {unlimited: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 10}}
  - {key: quiet, shadow_mode: true, rate_limit: {algorithm: concurrency, max: 5, hold: 60s}}
  - {key: slots, rate_limit: {algorithm: concurrency, max: 5, hold: 60s}}
  - {key: held, rate_limit: {requests: 9, window: 1d, count_denied: false, reserve: {hold: 10m}}}
  - {key: month, rate_limit: {requests: 5, window: {calendar: month}}}
  - {key: cost, rate_limit: {unit: second, requests_per_unit: 100, cost: 2}}
  - {key: plan, rate_limit: {name: calls, requests: 5, window: 1m, limit_from: {customer: plan}}}
  - key: quiet_plan
    shadow_mode: true
    rate_limit: {name: quiet-calls, requests: 5, window: 1m, limit_from: {customer: quiet_plan}}
  - {key: most, rate_limit: {unit: second, requests_per_unit: 4294967295}}
";

const ASSIGNED: &str = "ALLOW_ALL is assigned, and";
const UNASSIGNED: &str = "Envoy's no_assignment_behavior decides";
const AMONG: &str = "among all Envoys with buckets of this counter";

/// A bucket, the line about it, and what a lone Envoy gets.
fn cases() -> Vec<(&'static str, String, Option<Got>)> {
    let divided = |numbers: &str| format!("divided: {numbers}, {AMONG}");
    let undivided = |what: &str| format!("not divided ({what}): {UNASSIGNED}");
    let allowed = |why: &str, what: &str| format!("allows all ({why}): {ASSIGNED} {what}");
    let (day, hour) = (5.0 / 86_400.0, 1000.0 / 3600.0);
    vec![
        ("minute=1", divided("0.5 per second, burst 6"), Some(Got::Rate(0.5, 6))),
        ("day=1", divided("0.0000578703 per second, burst 1"), Some(Got::Rate(day, 1))),
        ("token=1", divided("10 per second, burst 7"), Some(Got::Rate(10.0, 7))),
        ("tiers=1", divided("0.277777 per second, burst 2"), Some(Got::Rate(hour, 2))),
        ("zero=1", "denies all (a limit of 0): DENY_ALL is assigned".into(), Some(Got::Deny)),
        ("open=1", allowed("unlimited", "the rule counts the requests"), Some(Got::Allow)),
        ("none=1", allowed("no rule", "no rule counts the requests"), Some(Got::Allow)),
        (
            "shadow=1",
            allowed("shadow mode", "what the limit would deny is counted"),
            Some(Got::Allow),
        ),
        (
            "quiet=1",
            allowed("shadow mode", "what a concurrency limit would deny is not counted"),
            Some(Got::Allow),
        ),
        ("slots=1", undivided("a concurrency limit"), None),
        ("held=1", undivided("a limit with reservations"), None),
        ("month=1", undivided("a limit with a calendar window"), None),
        ("cost=1", undivided("a limit with a cost"), None),
        ("plan=1", undivided("a limit with plans"), None),
        (
            "quiet_plan=1",
            allowed("shadow mode", "what a limit with plans would deny is not counted"),
            Some(Got::Allow),
        ),
        (
            "most=1",
            divided("4294967295 per second, burst 858993459"),
            Some(Got::Rate(4_294_967_295.0, 858_993_459)),
        ),
    ]
}

fn outcome(process: &Process, id: &str) -> BucketOutcome {
    let written = match id {
        "" => ParsedDescriptor(Vec::new()),
        id => id.parse().expect("an id"),
    };
    let id = WrittenBucketId::read(&written).expect("each key once");
    let rules = process.rules.rules.lock().expect("no panic").clone();
    BucketOutcome::of(&rules, &process.engine.config, "d", &id)
}

#[test]
fn an_outcome_is_what_a_stream_does() {
    let process = Process::new(config());
    process.reload(LIMITS);
    process.settle();
    let mut stream = process.open(None);
    for (id, line, expected) in cases() {
        assert_eq!(outcome(&process, id).to_string(), line, "{id}");
        stream.report(&report("d", &[(id, 1)])).expect("valid");
        process.settle();
        let got = newest(&mut stream).get(id).copied();
        match (got, expected) {
            (Some(Got::Rate(rate, burst)), Some(Got::Rate(whole, whole_burst))) => {
                assert_eq!(burst, whole_burst, "{id}");
                assert!((0.999..=1.000_001).contains(&(rate / whole)), "{id}: {rate} of {whole}");
            }
            _ => assert_eq!(got, expected, "{id}"),
        }
    }
}

/// What is refused, and what is just within the bounds.
#[test]
fn an_id_is_refused_as_a_stream_refuses_it() {
    let bounds = RequestBounds { max_descriptors: 9, max_entries: 4, max_text_bytes: 5_000 };
    let long = |bytes: usize| format!("k={}", "x".repeat(bytes));
    for (id, error, reason) in [
        (String::new(), "the id has no key", Some(RefusedReason::EmptyId)),
        ("a=1,b=2,c=3,d=4".into(), "", None),
        (
            "a=1,b=2,c=3,d=4,e=5".into(),
            "the id has 5 keys, at most 4 (request.max_entries)",
            Some(RefusedReason::LongId),
        ),
        (
            long(5_001),
            "a key or a value of the id has 5001 bytes, at most 5000 (request.max_text_bytes)",
            Some(RefusedReason::LongId),
        ),
        (
            long(4_088),
            "the id has 4097 bytes, encoded as Envoy sends it, at most 4096",
            Some(RefusedReason::LongId),
        ),
        (long(4_087), "", None),
    ] {
        let process = Process::new(RlqsConfig { bounds, ..config() });
        let shown = outcome(&process, &id);
        let shown = match shown {
            BucketOutcome::Refused(error) => error.to_string(),
            _ => String::new(),
        };
        assert_eq!(shown, error);
        process.open(None).report(&report("d", &[(&id, 1)])).expect("a report");
        for kind in RefusedReason::ALL {
            let refused = process.engine.metrics.refused(kind);
            assert_eq!(refused, u64::from(reason == Some(kind)), "{error}: {kind:?}");
        }
    }
}

/// Whole numbers are exact, and others are at most the limit.
#[test]
fn the_rate_is_never_more_than_the_limit() {
    for (requests, seconds, expected) in [
        (1, 1, "1"),
        (30, 60, "0.5"),
        (5, 60, "0.0833333"),
        (100, 60, "1.66666"),
        (1_000_001, 1_000_000, "1"),
        (4_294_967_295, 1, "4294967295"),
        (4_294_967_295, 7, "613566756.428"),
        (1_000_000, 86_400, "11.574"),
        (1, 31_536_000, "0.0000000317097"),
        (u64::MAX, 1, "18446744073709551615"),
    ] {
        let quota = Quota { requests, window: Micros::from_secs(seconds), burst: 1 };
        let text = BucketOutcome::Divided(quota).to_string();
        assert_eq!(text, format!("divided: {expected} per second, burst 1, {AMONG}"));
    }
}

/// `weir explain` checks the domain by the same function.
#[test]
fn a_domain_is_refused_as_explain_refuses_it() {
    let process = Process::new(config());
    for domain in [String::new(), "x".repeat(101)] {
        let error = config().bounds.check_domain(&domain).expect_err("out of bounds");
        let refused = process.open(None).report(&report(&domain, &[("k=1", 1)]));
        let expected = ReportError::Invalid(format!("the first report: {error}"));
        assert_eq!(refused, Err(expected));
    }
    assert_eq!(config().bounds.check_domain(&"x".repeat(100)), Ok(()));
}
