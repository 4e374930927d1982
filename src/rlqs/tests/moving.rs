//! A reload gives a value another rule, so its buckets move to another counter.

use super::shared::processes;
use super::*;

/// The rule of all tenants, and one of the tenant `a`.
const MOVED: &str = "
  - {key: tenant, rate_limit: {unit: second, requests_per_unit: 100}}
  - {key: tenant, value: a, rate_limit: {unit: second, requests_per_unit: 100}}
";

/// An Envoy, and the rate that it may use.
struct Envoy {
    stream: EnvoyStream,
    rate: f64,
}

impl Envoy {
    fn report(&mut self) {
        self.stream.report(&report("d", &[("tenant=a", 1_000)])).expect("valid");
    }

    /// Takes messages. A bucket is placed again by that.
    fn read(&mut self) {
        match newest(&mut self.stream).get("tenant=a") {
            Some(Got::Rate(rate, _)) => self.rate = *rate,
            Some(Got::Deny) => self.rate = 0.0,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
}

/// Two Envoys that use a half each, of these processes.
fn halves(processes: [&Process; 2]) -> [Envoy; 2] {
    let mut all = processes.map(|process| Envoy { stream: process.open(None), rate: 0.0 });
    for step in 0..80 {
        if step % 20 == 0 {
            all.iter_mut().for_each(Envoy::report);
        }
        processes[0].pass(250);
        processes[1].settle();
        all.iter_mut().for_each(Envoy::read);
    }
    let rates = all.each_ref().map(|envoy| envoy.rate);
    assert!(rates.iter().all(|rate| (49.0..=50.0).contains(rate)), "{rates:?}");
    all
}

/// The new counter has what was assigned by the old one, also of an Envoy that has not moved yet.
#[test]
fn a_moved_value_keeps_its_shares() {
    let process = Process::new(config());
    let [mut first, mut second] = halves([&process, &process]);
    process.reload(MOVED);
    for _ in 0..8 {
        process.pass(250);
        first.read();
        assert!(first.rate + second.rate <= 100.0 + 1e-9, "{} and {}", first.rate, second.rate);
    }
    assert!(first.rate > 49.0, "{}", first.rate);
    for step in 0..80 {
        if step % 20 == 0 {
            [&mut first, &mut second].into_iter().for_each(Envoy::report);
        }
        process.pass(250);
        [&mut first, &mut second].into_iter().for_each(Envoy::read);
        assert!(first.rate + second.rate <= 100.0 + 1e-9, "{} and {}", first.rate, second.rate);
        assert!(first.rate > 49.0 && second.rate > 49.0, "{} and {}", first.rate, second.rate);
    }
    assert_eq!(process.engine.metrics().violations.get(), 0);
}

/// The stream of an Envoy has ended. What it has is free when that has expired.
#[test]
fn a_moved_value_reserves_lost_shares() {
    let process = Process::new(config());
    let [mut first, second] = halves([&process, &process]);
    drop(second);
    process.reload(MOVED);
    for step in 0..28 {
        process.pass(250);
        first.read();
        assert!(first.rate <= 51.0, "{} at step {step}", first.rate);
        if step % 20 == 10 {
            first.report();
        }
    }
    process.pass(5_000);
    first.report();
    process.pass(3_000);
    first.read();
    assert!(first.rate > 99.0, "{}", first.rate);
}

/// Two processes that read the new rules one after the other.
#[test]
fn a_value_moves_in_all_processes() {
    let (all, _) = processes(2);
    let [mut first, mut second] = halves([&all[0], &all[1]]);
    all[0].reload(MOVED);
    for step in 0..120 {
        if step % 20 == 10 {
            [&mut first, &mut second].into_iter().for_each(Envoy::report);
        }
        if step == 20 {
            all[1].reload(MOVED);
        }
        all[0].pass(250);
        all[1].settle();
        [&mut first, &mut second].into_iter().for_each(Envoy::read);
        assert!(first.rate + second.rate <= 100.0 + 1e-9, "{} and {}", first.rate, second.rate);
        assert!(first.rate > 45.0 && second.rate > 45.0, "{} and {}", first.rate, second.rate);
    }
    for process in &all {
        assert_eq!(process.engine.metrics().violations.get(), 0);
    }
}
