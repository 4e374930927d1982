//! Reloads of the rules: buckets get another assignment without a report.

use super::*;

/// The rule of the buckets `tenant`, with these fields.
fn rule(fields: &str) -> String {
    format!("  - {{key: tenant, {fields}}}")
}

/// What the bucket of an Envoy gets when `after` replaces the rules `before`, without a report.
fn after_reload(process: &Process, before: &str, after: &str) -> Option<Got> {
    process.reload(before);
    process.settle();
    let mut stream = process.open(None);
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    process.settle();
    newest(&mut stream);
    process.reload(after);
    let mut got = None;
    for _ in 0..2 {
        process.settle();
        got = newest(&mut stream).remove("tenant=a").or(got);
    }
    got
}

#[test]
fn every_change_of_a_rule_applies_without_a_report() {
    let ten = rule("rate_limit: {unit: second, requests_per_unit: 10}");
    let hundred = rule("rate_limit: {unit: second, requests_per_unit: 100}");
    let shadow = rule("shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 10}");
    let unlimited = rule("rate_limit: {unlimited: true}");
    let costs = rule("rate_limit: {unit: second, requests_per_unit: 100, cost: 10}");
    let none = "  - {key: other, rate_limit: {unit: second, requests_per_unit: 10}}";
    let limited = Some(Got::Rate(10.0, 2));
    for (before, after, expected) in [
        (&*hundred, &*ten, limited),
        (&*unlimited, &*ten, limited),
        (none, &*ten, limited),
        (&*shadow, &*ten, limited),
        (&*ten, &*unlimited, Some(Got::Allow)),
        (&*ten, none, Some(Got::Allow)),
        (&*ten, &*shadow, Some(Got::Allow)),
        (&*unlimited, &*shadow, Some(Got::Allow)),
        (&*unlimited, none, None),
        (&*ten, &*ten, None),
        // The last share stays until it expires. A limit of costs is none of requests.
        (&*ten, &*costs, None),
    ] {
        let process = Process::new(config());
        assert_eq!(after_reload(&process, before, after), expected, "{before} to {after}");
        assert_eq!(process.engine.metrics().violations.get(), 0);
    }
}

/// The first report after a reload has the requests of the time before it, so it proves no demand.
#[test]
fn a_moved_bucket_has_no_demand_yet() {
    let process = Process::new(config());
    process.reload(&rule("rate_limit: {unlimited: true}"));
    process.settle();
    let mut streams = [process.open(None), process.open(None)];
    let mut report_all = || {
        for (stream, hits) in streams.iter_mut().zip([500, 50]) {
            newest(stream);
            stream.report(&report("d", &[("tenant=a", hits)])).expect("valid");
        }
    };
    report_all();
    process.pass(5_000);
    report_all();
    process.pass(4_900);
    process.reload(&rule("rate_limit: {unit: second, requests_per_unit: 100}"));
    process.pass(100);
    report_all();
    process.pass(1_000);
    let demand = || process.engine.shown(1).quotas[0].demand_per_second;
    assert!(demand().abs() < 1e-9, "{}", demand());
    process.pass(4_000);
    report_all();
    process.pass(1_000);
    assert!((demand() - 110.0).abs() < 1.0, "{}", demand());
}

/// A stream with many buckets takes a slice, and lets other tasks have their turn.
#[tokio::test(start_paused = true)]
async fn many_buckets_are_placed_in_slices() {
    let bounds = RlqsConfig { max_buckets_per_stream: 200, max_buckets: 400, ..config() };
    let process = Process::new(bounds);
    let ids: Vec<String> = (0..150).map(|number| format!("open={number}")).collect();
    let usages: Vec<(&str, u64)> = ids.iter().map(|id| (&**id, 1)).collect();
    let mut stream = process.open(None);
    stream.report(&report("d", &usages)).expect("valid");
    assert_eq!(newest(&mut stream).len(), 150);
    process.reload("  - {key: open, rate_limit: {unit: second, requests_per_unit: 10}}");
    process.settle();
    let mut sizes = Vec::new();
    for _ in 0..4 {
        assert_eq!(newest(&mut stream), BTreeMap::new(), "the driver settles");
        process.settle();
        let placed = newest(&mut stream);
        assert!(placed.values().all(|got| *got == Got::Rate(10.0, 2)), "{placed:?}");
        sizes.push(placed.len());
        process.clock.advance(Micros::from_millis(1));
    }
    assert_eq!(sizes, [64, 64, 22, 0]);
}
