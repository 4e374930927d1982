//! The model beside measurements.

use std::time::Duration;

use super::published_costs::{ALGORITHMS, BATCHES, figure, was_overloaded};
use super::*;
use crate::store::redis::FLUSHERS_MAX;

/// The bound of predicted script calls divided by the measured ones, and of the inverse.
const FACTOR: f64 = 1.3;

fn check(what: &str, predicted: f64, measured: f64) {
    let factor = predicted / measured;
    println!("{what}: {predicted:.4}, measured {measured:.4}: {factor:.2}");
    assert!((1.0 / FACTOR..FACTOR).contains(&factor), "{what}: {predicted} {measured}");
}

/// Whether the measured cores are within the bounds.
fn check_cores(what: &str, predicted: Cores, measured: f64) {
    let Cores { low, high } = predicted;
    println!("{what}: {low:.4} to {high:.4}, measured {measured:.4}");
    assert!((low..=high).contains(&measured), "{what}: {low} to {high}, measured {measured}");
}

/// Script calls by mode and rate: 3 instances, 3 primaries, and 25 counters that deny a quarter of
/// their calls. No call is sent within 150 ms of the edge of a window.
#[test]
fn script_calls_match_the_page_of_modes() {
    let mut rows = 0;
    for (file, window) in [
        (include_str!("../../../docs/guides/modes/tenants.csv"), 20.0),
        (include_str!("../../../docs/guides/modes/sweep.csv"), 5.0),
    ] {
        for line in file.lines().skip(1) {
            let mut fields = line.split(',');
            let mut next = || fields.next().expect("a field");
            let (mode, rate, measured) = (next(), next(), next());
            if mode == "memory" {
                continue;
            }
            let number = |text: &str| text.parse::<f64>().expect("a number");
            let calls = number(rate) * (window - 0.3) / window;
            let rate_limit = format!("requests: 1000, window: {window}s, mode: {mode}");
            let inputs = Inputs { denied: 0.25, ..inputs(calls, &rate_limit, 25) };
            let plan = on(&inputs, 3, 3);
            let what = format!("{mode}, {rate}/s, windows of {window} s");
            check(&what, plan.redis.script_calls_per_second, number(measured));
            rows += 1;
        }
    }
    assert_eq!(rows, 18);
}

/// Every small fleet that was not overloaded: its Redis and each of its instances.
#[test]
fn small_fleets_are_within_the_bounds() {
    let without_functions = "weir, fixed_window, redis.functions: off";
    let mut rows = 0;
    for (instances, rate) in [(1, 1_000), (8, 50), (50, 8), (8, 500), (50, 100)] {
        let fleet = format!("{instances} x {rate}");
        for service in ALGORITHMS.into_iter().chain([without_functions]) {
            if was_overloaded(&fleet, service) {
                println!("{fleet}, {service}: overloaded");
                continue;
            }
            let mut names = service.split(", ");
            let algorithm = names.nth(1).expect("an algorithm");
            let rate_limit =
                format!("algorithm: {algorithm}, unit: hour, requests_per_unit: 10000");
            let rate = f64::from(rate);
            let calls = f64::from(instances) * rate;
            let uses_functions = names.next().is_none();
            let inputs = Inputs { uses_functions, ..inputs(calls, &rate_limit, 10_000) };
            let plan = on(&inputs, instances, 1);
            let measured =
                |what: &str| figure(&format!("{fleet}: {what} per 100 000: {service}")) / 1e5;
            let what = format!("{fleet}, {service}");
            let redis = measured("Redis CPU s");
            check_cores(&format!("{what}, Redis"), plan.hottest_primary.cores, redis * calls);
            let instance = measured("CPU s");
            check_cores(&format!("{what}, instance"), plan.instance.cores, instance * rate);
            rows += 1;
        }
    }
    assert!(rows >= 20, "only {rows} of 25 fleets were not overloaded");
}

/// One instance and one Redis behind one Envoy.
#[test]
fn calls_of_envoy_are_within_the_bounds() {
    let rates = [500, 2_000, 5_000].map(|rate| (format!("through Envoy, {rate}"), f64::from(rate)));
    let rates = rates.into_iter().filter(|(load, _)| !was_overloaded(load, "weir, exact"));
    for (load, rate) in rates {
        let plan = on(&inputs(rate, EXACT, 25), 1, 1);
        let measured = |what: &str| figure(&format!("{load}: CPU s of {what}: weir, exact")) / 1e5;
        check_cores(&load, plan.hottest_primary.cores, measured("Redis") * rate);
        check_cores(&load, plan.instance.cores, measured("the service") * rate);
    }
}

/// One instance of two workers on one Redis, saturated.
#[test]
fn saturated_service_is_within_the_bounds() {
    let calls = figure("saturated: calls per second: Redis");
    let redis = figure("saturated: Redis CPU s per million") / 1e6 * calls;
    let plan = on(&inputs(calls, EXACT, 100_000), 1, 1);
    let measured = figure("saturated: CPU s per 100 000: Redis") / 1e5 * calls;
    check_cores("saturated, instance", plan.instance.cores, measured);
    check_cores("saturated, Redis", plan.hottest_primary.cores, redis);
}

/// The saturated service by counters. Calls wait longer for Redis then, so the round trip is set to one
/// with the measured batches.
#[test]
fn saturated_batches_are_within_the_bounds() {
    let calls = figure("saturated: calls per second: Redis");
    for name in BATCHES {
        let steps = figure(&format!("batches: decisions per script call: {name}"));
        let mut inputs = inputs(calls, EXACT, 100_000);
        let rate = calls / f64::from(inputs.workers);
        inputs.round_trip = Duration::from_secs_f64(steps * FLUSHERS_MAX as f64 / rate);
        let hottest = on(&inputs, 1, 1).hottest_primary;
        let predicted = hottest.steps_per_script_call;
        assert!((predicted / steps - 1.0).abs() < 1e-3, "{name}: {predicted} {steps}");
        let redis = figure(&format!("batches: Redis CPU s per million: {name}")) / 1e6;
        check_cores(name, hottest.cores, redis * calls);
    }
}
