//! How a quota is divided among Envoys, and that the parts never exceed it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{
    CONVERGED, assert_no_violation, assert_within, envoy, serving, tenant, tenants, until_stable,
};
use crate::support::rlqs::{Action, SmallEnvoy};

const LIMIT: u64 = 300;

/// The largest part of a rate by which two equal ones may differ, and by which the sum of all may be
/// below the limit.
const TOLERANCE: f64 = 0.06;

fn rates(envoys: &[&SmallEnvoy]) -> Vec<f64> {
    envoys.iter().map(|envoy| envoy.rate(&tenant())).collect()
}

/// Whether each of `envoys` has the rate of `expected`, about.
fn have(envoys: &[&SmallEnvoy], expected: &[f64]) -> bool {
    let near = |(rate, expected): (f64, &f64)| (rate / expected - 1.0).abs() <= TOLERANCE;
    rates(envoys).into_iter().zip(expected).all(near)
}

/// Whenever an action arrives, the assigned rates of all Envoys together are within the limit. So each
/// share was lowered before another was raised.
fn assert_lowered_first(envoys: &[&SmallEnvoy], limit: f64) {
    let mut all: Vec<(usize, Action)> = Vec::new();
    for (number, envoy) in envoys.iter().enumerate() {
        all.extend(envoy.actions().into_iter().map(|action| (number, action)));
    }
    all.sort_by_key(|(_, action)| action.at);
    let mut rates = BTreeMap::new();
    let mut moves = 0;
    for (envoy, action) in all {
        let rate = action.assigned.map_or(0.0, |assigned| assigned.rate());
        moves += usize::from(rates.insert(envoy, rate) != Some(rate));
        let sum: f64 = rates.values().sum();
        assert!(sum <= limit * 1.000_001, "{sum} of {limit}: {rates:?} at {action:?}");
    }
    assert!(moves >= envoys.len(), "{moves} moves");
}

#[test]
fn equal_demands_get_equal_parts() {
    let weir = serving(&tenants("second", LIMIT)).start();
    let began = Instant::now();
    let [first, second] = [(); 2].map(|()| envoy(&weir, 500.0));
    until_stable("halves", || have(&[&first, &second], &[150.0, 150.0]));
    let third = envoy(&weir, 500.0);
    let joined = Instant::now();
    let all = [&first, &second, &third];
    until_stable("thirds", || have(&all, &[100.0; 3]));
    assert!(joined.elapsed() < CONVERGED, "{:?}", joined.elapsed());
    // The limit is used, and never exceeded, also while the third one joined.
    let since = Instant::now();
    std::thread::sleep(Duration::from_secs(3));
    let seconds = since.elapsed().as_secs_f64();
    let allowed: u64 = all.iter().map(|envoy| envoy.allowed_since(since)).sum();
    let rate = allowed as f64 / seconds;
    assert!((255.0..=310.0).contains(&rate), "{rate} per second");
    assert_within(&all, LIMIT, began);
    assert_lowered_first(&all, LIMIT as f64);
    assert_no_violation(&weir);
}

/// An Envoy with little demand is served in full, and the other one gets the rest. When demands
/// swap, so do the parts.
#[test]
fn what_one_does_not_need_goes_to_the_other() {
    let weir = serving(&tenants("second", LIMIT)).start();
    let began = Instant::now();
    let (first, second) = (envoy(&weir, 600.0), envoy(&weir, 30.0));
    for (busy, calm) in [(&first, &second), (&second, &first)] {
        busy.demand(&tenant(), 600.0);
        calm.demand(&tenant(), 30.0);
        let swapped = Instant::now();
        let is_divided = || {
            let rates = rates(&[busy, calm]);
            rates[0] >= 230.0 && rates[1] >= 30.0
        };
        until_stable("the busy one has the rest", is_divided);
        assert!(swapped.elapsed() < CONVERGED, "{:?}", swapped.elapsed());
        let (since, denied) = (Instant::now(), calm.denied());
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(calm.denied(), denied, "30 per second are served in full");
        assert!(busy.allowed_since(since) >= 400, "{}", busy.allowed_since(since));
    }
    assert_within(&[&first, &second], LIMIT, began);
    assert_lowered_first(&[&first, &second], LIMIT as f64);
    assert_no_violation(&weir);
}

/// The parts of a quota of a few hits per minute are below a hit per second.
#[test]
fn small_quotas_are_divided_too() {
    let weir = serving(&tenants("minute", 6)).start();
    let [first, second, third] = [(); 3].map(|()| envoy(&weir, 5.0));
    let all = [&first, &second, &third];
    let is_divided = || {
        let rates = rates(&all);
        let sum: f64 = rates.iter().sum();
        (0.09..=0.1 * 1.000_001).contains(&sum) && rates.iter().all(|rate| *rate > 0.02)
    };
    until_stable("a hit in ten seconds is divided", is_divided);
    assert_lowered_first(&all, 0.1);
    assert_no_violation(&weir);
}
