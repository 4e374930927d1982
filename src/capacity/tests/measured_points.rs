//! The model beside measurements that its costs do not come from.

use super::published_costs::figure;
use super::*;
use crate::capacity::measured::REDIS_CALL_RATIO;
use crate::capacity::primaries::redis_seconds;

/// The bound of a prediction divided by its measurement, and of the inverse.
const FACTOR: f64 = 1.3;

fn check(what: &str, predicted: f64, measured: f64) {
    let factor = predicted / measured;
    println!("{what}: {predicted:.4}, measured {measured:.4}: {factor:.2}");
    assert!((1.0 / FACTOR..FACTOR).contains(&factor), "{what}: {predicted} {measured}");
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

/// One instance of two workers on one Redis, saturated.
#[test]
fn redis_cpu_matches_the_saturated_service() {
    let calls = figure("saturated: calls per second: Redis");
    let hottest = on(&inputs(calls, EXACT, 100_000), 1, 1).hottest_primary;
    let seconds =
        redis_seconds(hottest.script_calls_per_second, hottest.steps_per_second, REDIS_CALL_RATIO);
    let predicted = seconds / hottest.steps_per_second * 1e6;
    check("Redis CPU, us per decision", predicted, figure("saturated: Redis CPU s per million"));
}
