//! A process with a memory store that starts while Envoys use the shares of the process before it.

use super::*;

/// A report of `tenant=a`: requests that were allowed in the last 5 s, which Envoy counts as 4.
fn used(allowed: u64) -> Vec<u8> {
    let bucket = BTreeMap::from([("tenant".to_owned(), "a".to_owned())]);
    let usage = BucketQuotaUsage {
        bucket_id: Some(BucketId { bucket }),
        time_elapsed: Some(prost_types::Duration { seconds: 4, nanos: 0 }),
        num_requests_allowed: allowed,
        num_requests_denied: 0,
    };
    let bucket_quota_usages = vec![usage];
    RateLimitQuotaUsageReports { domain: "d".to_owned(), bucket_quota_usages }.encode_to_vec()
}

fn rate(stream: &mut EnvoyStream) -> Option<f64> {
    match newest(stream).get("tenant=a")? {
        Got::Rate(rate, _) => Some(*rate),
        Got::Deny => Some(0.0),
        other => panic!("{other:?}"),
    }
}

/// Requests that no share of the limit allows are no sign of a share: an Envoy passes them by its fallback. So
/// another Envoy may still have a share, here a half, and the new one does not get that too.
#[test]
fn a_fallback_is_no_earlier_share() {
    let process = Process::new(RlqsConfig { relearn: true, ..config() });
    let mut on_fallback = process.open(None);
    on_fallback.report(&used(1_500)).expect("valid");
    process.pass(250);
    let given = rate(&mut on_fallback).expect("less than its fallback passes");
    assert!((49.0..=50.0).contains(&given), "{given}, and the other one has 50");
    process.pass(3_000);
    let mut with_share = process.open(None);
    with_share.report(&used(260)).expect("valid");
    let (mut of_one, mut of_other) = (given, 50.0);
    for step in 0..56 {
        process.pass(250);
        of_one = rate(&mut on_fallback).unwrap_or(of_one);
        of_other = rate(&mut with_share).unwrap_or(of_other);
        assert!(of_one + of_other <= 100.0 + 1e-9, "{of_one} and {of_other}");
        if step % 20 == 19 {
            on_fallback.report(&used(1_500)).expect("valid");
            with_share.report(&used(1_500)).expect("valid");
        }
    }
    // The assignments of the time before have expired.
    assert!(of_one > 45.0 && of_other > 45.0, "{of_one} and {of_other}");
    assert_eq!(process.engine.metrics().violations.get(), 0);
}

/// A limit that was lowered at the start: the share of before is more than the limit, and is lowered at once.
#[test]
fn a_share_of_a_higher_limit_is_lowered_at_once() {
    let process = Process::new(RlqsConfig { relearn: true, ..config() });
    let mut streams = [process.open(None), process.open(None)];
    for stream in &mut streams {
        stream.report(&used(1_000)).expect("valid");
        process.pass(250);
    }
    process.pass(1_000);
    let rates = streams.each_mut().map(|stream| rate(stream).expect("a lower share"));
    assert!(rates.iter().all(|rate| (32.0..=34.0).contains(rate)), "{rates:?}");
}
