//! The targets of requests through Envoy.

use super::{ALONE, ENVOY_RATELIMIT, EXACT, LEASED, MEMORY, RATES, SYNCED, figure};
use crate::comparison::{Comparison, PacedService};
use crate::figures::Figures;

/// The targets: the name, the ratio, and its upper bound. There are none without figures.
pub(crate) fn targets(figures: &Figures) -> Vec<(String, Comparison, f64)> {
    const WITHIN: f64 = 1.03;
    const CPU: &str = "CPU s of both";
    let mut targets = Vec::new();
    for rate in RATES {
        targets.extend(redis_target(figures, rate));
        for name in [LEASED, SYNCED] {
            for (what, measure) in [
                (CPU, "CPU of Envoy and weir"),
                ("added p50, us", "added p50"),
                ("added p99, us", "added p99"),
            ] {
                let [of, by] = [name, MEMORY].map(|name| figure(rate, what, name));
                // What is added is a difference, and in a single turn one of noise.
                let ratio = match what {
                    CPU => figures.ratio(&of, &by),
                    _ => figures.ratio_of_medians(&of, &by),
                };
                if ratio.is_none() {
                    continue;
                }
                // What is added is the difference to Envoy alone, and may be below 0.
                let references = [MEMORY, ALONE].map(|name| paced(figures, rate, name));
                let ratio = Comparison::new(ratio, [paced(figures, rate, name)], references)
                    .of_differences(figures.not_positive([&of, &by]));
                let row = format!("through Envoy, {rate} per second: {measure}, {name}");
                targets.push((format!("{row}, of that from memory"), ratio, WITHIN));
            }
        }
    }
    targets
}

/// The target of the CPU time of Redis, if envoyproxy/ratelimit was measured.
fn redis_target(figures: &Figures, rate: u32) -> Option<(String, Comparison, f64)> {
    let [of, by] = [EXACT, ENVOY_RATELIMIT].map(|name| figure(rate, "CPU s of Redis", name));
    let ratio = Some(figures.ratio(&of, &by)?);
    let [subject, reference] = [EXACT, ENVOY_RATELIMIT].map(|name| paced(figures, rate, name));
    let row = format!("through Envoy, {rate} per second: Redis CPU per call, {EXACT}");
    let ratio = Comparison::new(ratio, [subject], [reference]);
    Some((format!("{row}, of envoyproxy/ratelimit's"), ratio, 1.1))
}

fn paced(figures: &Figures, rate: u32, name: &str) -> Option<PacedService> {
    let p50_us = figures.get(&figure(rate, "p50, us", name))?;
    let achieved = figures.get(&figure(rate, "achieved, %", name))?;
    Some(PacedService { name: name.to_owned(), p50_ms: p50_us / 1e3, achieved })
}
