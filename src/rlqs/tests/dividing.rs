//! Dividing a quota among Envoys, with a memory store.

use super::*;

/// An Envoy that reports one bucket every five seconds, and the rate that it may use.
struct Envoy {
    stream: EnvoyStream,
    rate: f64,
}

impl Envoy {
    fn open(process: &Process, id: &str) -> Envoy {
        let mut stream = process.open(None);
        stream.report(&report("d", &[(id, 1)])).expect("valid");
        Envoy { stream, rate: 0.0 }
    }

    fn report(&mut self, id: &str, hits: u64) {
        self.stream.report(&report("d", &[(id, hits)])).expect("valid");
    }

    fn read(&mut self) {
        for (_, got, _) in actions(&mut self.stream) {
            self.rate = match got {
                Got::Rate(rate, _) => rate,
                Got::Deny => 0.0,
                other => panic!("{other:?}"),
            };
        }
    }
}

#[test]
fn a_lone_envoy_gets_the_whole_quota_at_once() {
    let process = Process::new(config());
    let mut stream = process.open(None);
    stream.report(&report("d", &[("tenant=a", 1), ("tenant=b", 1)])).expect("valid");
    assert!(stream.next().now_or_never().is_none(), "the driver settles");
    process.settle();
    let all = actions(&mut stream);
    let whole = |id: &str| (id.to_owned(), Got::Rate(100.0, 20), 12);
    assert_eq!(all.len(), 2);
    assert!(all.contains(&whole("tenant=a")) && all.contains(&whole("tenant=b")), "{all:?}");
    assert_eq!(process.engine.metrics().buckets.get(), 2);
    assert_eq!(process.engine.metrics().quotas.get(), 2);
}

/// Shares follow the demand, and never exceed the quota together.
#[test]
fn shares_follow_the_demand() {
    let process = Process::new(config());
    let mut envoys: Vec<Envoy> = (0..3).map(|_| Envoy::open(&process, "tenant=a")).collect();
    let mut demands = [10, 400, 30];
    for step in 0..120 {
        process.pass(250);
        envoys.iter_mut().for_each(Envoy::read);
        let sum: f64 = envoys.iter().map(|envoy| envoy.rate).sum();
        assert!(sum <= 100.0 + 1e-9, "{sum} at step {step}");
        if step % 20 == 19 {
            for (envoy, demand) in envoys.iter_mut().zip(demands) {
                envoy.report("tenant=a", demand * 5);
            }
        }
        if step == 59 {
            let rates: Vec<f64> = envoys.iter().map(|envoy| envoy.rate).collect();
            assert!(rates[0] >= 10.0 && rates[2] >= 30.0 && rates[1] > 50.0, "{rates:?}");
            demands = [400, 10, 400];
        }
    }
    let rates: Vec<f64> = envoys.iter().map(|envoy| envoy.rate).collect();
    assert!(rates[0] > 42.0 && rates[2] > 42.0 && rates[1] >= 10.0, "{rates:?}");
    let metrics = process.engine.metrics();
    assert_eq!(metrics.violations.get(), 0);
    assert!(metrics.share_in_use_max() <= 1.0);
    assert!(metrics.raises.get() > 0 && metrics.lowers.get() > 0);
    let series = process.engine.rule_series();
    assert_eq!((series.len(), &*series[0].rule, series[0].denied), (1, "tenant", 0));
    assert!((series[0].demand_per_second - 810.0).abs() < 50.0, "{series:?}");
    assert!(series[0].assigned_per_second <= 100.0 + 1e-9);
    let shown = process.engine.shown(10);
    assert_eq!((shown.total, shown.quotas[0].holder_count), (1, 3));
}

#[test]
fn buckets_without_a_rate_are_allowed() {
    let process = Process::new(config());
    let mut stream = process.open(None);
    let ids = [
        ("open=1", 5),
        ("other=1", 5),
        ("slots=1", 5),
        ("cost=1", 5),
        ("month=1", 5),
        ("shadow=1", 1),
    ];
    stream.report(&report("d", &ids)).expect("valid");
    process.settle();
    let expected = [("open=1", Got::Allow), ("other=1", Got::Allow), ("shadow=1", Got::Allow)];
    let expected = expected.map(|(id, got)| (id.to_owned(), got));
    assert_eq!(newest(&mut stream), BTreeMap::from(expected));
    let mut other = process.open(None);
    other.report(&report("unknown", &[("tenant=a", 1)])).expect("valid");
    assert_eq!(newest(&mut other).into_values().collect::<Vec<_>>(), [Got::Allow]);
    // Ten seconds at 100/s, of which the limit passes 10/s and a burst of 2.
    for _ in 0..2 {
        process.pass(5_000);
        stream.report(&report("d", &[("shadow=1", 500)])).expect("valid");
    }
    let series = process.engine.rule_series();
    let of = |rule: &str| series.iter().find(|one| *one.rule == *rule).expect("a series");
    let shadow = of("shadow");
    assert_eq!(shadow.allowed, 1_001);
    assert_eq!(shadow.shadow_denied, 1_000 - 2 - 100, "{shadow:?}");
    // Without an assignment, what the Envoys allow is counted.
    assert_eq!(["open", "slots", "cost", "month"].map(|rule| of(rule).allowed), [5; 4]);
}

#[test]
fn a_reload_changes_assignments_without_a_report() {
    let process = Process::new(config());
    let mut stream = process.open(None);
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    process.settle();
    assert_eq!(newest(&mut stream)["tenant=a"], Got::Rate(100.0, 20));
    process.reload("  - {key: tenant, rate_limit: {unit: second, requests_per_unit: 10}}");
    process.pass(1_000);
    assert_eq!(newest(&mut stream)["tenant=a"], Got::Rate(10.0, 2));
    process.reload("  - {key: tenant, rate_limit: {unit: second, requests_per_unit: 0}}");
    process.pass(1_000);
    assert_eq!(newest(&mut stream)["tenant=a"], Got::Deny);
    process.reload("  - {key: another, rate_limit: {unit: second, requests_per_unit: 10}}");
    process.pass(1_000);
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    assert_eq!(newest(&mut stream)["tenant=a"], Got::Allow, "no rule is left");
    process.pass(20_000);
    assert_eq!(process.engine.metrics().quotas.get(), 0);
    assert_eq!(process.engine.metrics().violations.get(), 0, "a lowered limit is none");
}

/// The share of an ended stream is free when its last assignment has expired, and not before.
#[test]
fn an_ended_stream_keeps_its_share_for_the_ttl() {
    let process = Process::new(config());
    let mut first = Envoy::open(&process, "tenant=a");
    process.settle();
    first.read();
    assert!((first.rate - 100.0).abs() < 1e-9);
    drop(first);
    let mut second = Envoy::open(&process, "tenant=a");
    for _ in 0..11 {
        process.pass(1_000);
        second.report("tenant=a", 50);
        second.read();
        assert!(second.rate.abs() < 1e-9, "the first one may use it");
    }
    process.pass(4_000);
    second.read();
    assert!(second.rate > 89.0, "{}", second.rate);
    let id = [("tenant=a", 1)];
    drop(second);
    process.pass(15_000);
    let metrics = process.engine.metrics();
    assert_eq!((metrics.buckets.get(), metrics.quotas.get(), metrics.streams.get()), (0, 0, 0));
    assert!(!process.engine.any_divided().load(Ordering::Relaxed));
    let mut third = process.open(None);
    third.report(&report("d", &id)).expect("valid");
}

/// An Envoy with a name has its share again at once.
#[test]
fn a_named_envoy_gets_its_share_back() {
    let process = Process::new(config());
    for name in ["a", "b"] {
        let rates: Vec<Got> = (0..2)
            .map(|_| {
                let mut stream = process.open(Some(name));
                stream.report(&report("d", &[(&format!("tenant={name}"), 1)])).expect("valid");
                process.pass(250);
                newest(&mut stream)[&format!("tenant={name}")]
            })
            .collect();
        assert_eq!(rates, [Got::Rate(100.0, 20); 2]);
    }
    // Two open streams of one domain cannot have one name; those of two domains can.
    let mut first = process.open(Some("c"));
    let mut second = process.open(Some("c"));
    let mut third = process.open(Some("c"));
    first.report(&report("d", &[("tenant=c", 1)])).expect("valid");
    second.report(&report("e", &[("tenant=c", 1)])).expect("valid");
    assert_eq!(process.engine.metrics().refused(RefusedReason::NameInUse), 0);
    third.report(&report("d", &[("tenant=c", 1)])).expect("valid");
    assert_eq!(process.engine.metrics().refused(RefusedReason::NameInUse), 1);
    process.pass(1_000);
    let shown = process.engine.shown(10);
    let mut names: Vec<&str> =
        shown.quotas.iter().flat_map(|one| &one.holders).map(|one| &*one.holder).collect();
    names.sort_by_key(|name| name.len());
    assert_eq!((names[0], names.len()), ("c", 2));
    assert_eq!(names[1].len(), 32, "an id");
}

#[test]
fn an_idle_bucket_is_abandoned_and_comes_back() {
    let mut config = config();
    config.idle_timeout = Micros::from_secs(20);
    let process = Process::new(config);
    let mut stream = process.open(None);
    stream.report(&report("d", &[("tenant=a", 1), ("tenant=b", 1)])).expect("valid");
    for round in 1..=5 {
        process.pass(5_000);
        newest(&mut stream);
        // Envoy does not report a bucket any longer that it has abandoned.
        let usages = [("tenant=b", 7), ("tenant=a", 0)];
        let reported = if round <= 4 { 2 } else { 1 };
        stream.report(&report("d", &usages[..reported])).expect("valid");
    }
    process.settle();
    let all = newest(&mut stream);
    assert_eq!(all.into_iter().collect::<Vec<_>>(), [("tenant=b".into(), Got::Rate(90.0, 18))]);
    let metrics = process.engine.metrics();
    assert_eq!((metrics.abandon.get(), metrics.buckets.get()), (1, 1));
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    process.pass(500);
    assert_eq!(metrics.buckets.get(), 2);
    assert_eq!(newest(&mut stream)["tenant=a"], Got::Rate(100.0, 20));
}

/// A slow reader gets assignments that end when a punctual one would.
#[test]
fn late_assignments_live_shorter_or_are_dropped() {
    let process = Process::new(config());
    let mut stream = process.open(None);
    stream.report(&report("d", &[("open=1", 1)])).expect("valid");
    process.clock.advance(Micros::from_millis(3_500));
    assert_eq!(actions(&mut stream), [("open=1".to_owned(), Got::Allow, 8)]);
    stream.report(&report("d", &[("open=1", 1)])).expect("valid");
    process.clock.advance(Micros::from_secs(13));
    assert_eq!(actions(&mut stream), []);
    assert_eq!(process.engine.metrics().refused(RefusedReason::LateReader), 1);
}

/// The order of keys in the settings decides which rule a bucket matches.
#[test]
fn the_key_order_makes_the_descriptor() {
    const NESTED: &str = "
  - key: z
    descriptors:
      - {key: a, rate_limit: {unit: second, requests_per_unit: 7}}
";
    for (key_order, expected) in [(vec![], Got::Allow), (vec!["z".to_owned()], Got::Rate(7.0, 1))] {
        let process = Process::new(RlqsConfig { key_order, ..config() });
        process.reload(NESTED);
        let mut stream = process.open(None);
        stream.report(&report("d", &[("a=1,z=2", 1)])).expect("valid");
        process.settle();
        assert_eq!(newest(&mut stream)["a=1,z=2"], expected);
    }
}
