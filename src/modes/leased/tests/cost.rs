//! The cost of mode leased: calls to the store, and early denials.

use std::sync::Arc;
use std::time::Duration;

use super::fixture::{Instance, network, within};
use crate::capacity::{Inputs, RuleLoad, calculate};
use crate::key::CounterKey;
use crate::limit::{Algorithm, Limit, Tier};
use crate::rules::{Options, SourceFile, compile};
use crate::settings::Settings;
use crate::testing::Rng;
use crate::testing::network::Conditions;
use crate::time::Micros;

const CALM: Conditions = within(1);

fn limit(algorithm: Algorithm, requests: u64, window: u64) -> Limit {
    let tier =
        Tier { requests, window: Micros::from_secs(window), burst: requests, calendar: None };
    Limit { algorithm, tiers: Box::new([tier]), count_denied: false }
}

/// The result of some seconds of steady traffic on one counter.
#[derive(Debug)]
struct Cost {
    calls: u64,
    passed: u64,
    denied: u64,
}

/// `rate` requests per second to each of three instances, at random instants.
async fn steady(limit: &Limit, rate: u64, seconds: u64, seed: u64) -> Cost {
    let cluster = network(seed, CALM);
    let end = cluster.now().saturating_add(Micros::from_secs(seconds));
    let mut drivers = Vec::new();
    for number in 0..3 {
        let (instance, cluster) = (Instance::new(&cluster, 0), cluster.clone());
        let (limit, mut rng) = (limit.clone(), Rng::new(seed ^ number));
        drivers.push(tokio::spawn(async move {
            let (mut passed, mut denied) = (0, 0);
            loop {
                let gap = Duration::from_micros(1 + rng.below(2_000_000 / rate));
                tokio::time::sleep(gap).await;
                if cluster.now() >= end {
                    break;
                }
                let decision = instance.hit(&CounterKey([1, 1]), &limit, 1).await.unwrap();
                *(if decision.allowed { &mut passed } else { &mut denied }) += 1;
            }
            (passed, denied)
        }));
    }
    let mut cost = Cost { calls: 0, passed: 0, denied: 0 };
    for driver in drivers {
        let (passed, denied) = driver.await.unwrap();
        (cost.passed, cost.denied) = (cost.passed + passed, cost.denied + denied);
    }
    cost.calls = cluster.calls();
    cost
}

#[tokio::test(start_paused = true)]
async fn steady_traffic_needs_under_a_call_per_second() {
    for (algorithm, rate) in [
        (Algorithm::FixedWindow, 13),
        (Algorithm::FixedWindow, 300),
        (Algorithm::SlidingWindow, 13),
    ] {
        let cost = steady(&limit(algorithm, 1_000_000, 60), rate, 60, 1).await;
        println!("{algorithm:?}, {rate}/s to each of 3 instances for 60 s: {cost:?}");
        assert_eq!(cost.denied, 0);
        assert!(cost.calls < 60 * 3, "{cost:?}");
    }
}

/// The calls that `weir plan` computes and those of the mode differ by at most a factor of two.
#[tokio::test(start_paused = true)]
async fn the_calls_are_those_of_the_capacity_model() {
    for (algorithm, rate) in [
        (Algorithm::FixedWindow, 13),
        (Algorithm::FixedWindow, 300),
        (Algorithm::SlidingWindow, 13),
    ] {
        let text = format!(
            "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{ requests: 1000000, \
             window: 60s, mode: leased, algorithm: {} }}\n",
            algorithm.name()
        );
        let file = SourceFile { name: "t.yaml".into(), text };
        let (rules, _) = compile(&[file], &Options::default()).expect("a valid rule");
        let loads = rules.rules().iter().filter_map(|rule| RuleLoad::of(rule, 1)).collect();
        let mut inputs = Inputs::new(3.0 * rate as f64, loads, &Settings::default());
        (inputs.instances, inputs.primaries) = (Some(3), Some(1));
        let predicted = 60.0 * calculate(&inputs).redis.script_calls_per_second;
        let cost = steady(&limit(algorithm, 1_000_000, 60), rate, 60, 1).await;
        let factor = cost.calls as f64 / predicted;
        println!("{algorithm:?}, {rate}/s to each of 3 instances: {predicted} and {cost:?}");
        assert!((0.5..=2.0).contains(&factor), "{algorithm:?} {rate}: {predicted} and {cost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_window_is_used_to_the_last_hit() {
    // A third more than the limit, equally to each instance, for three windows.
    for seed in 0..20 {
        let cost = steady(&limit(Algorithm::FixedWindow, 600, 20), 13, 60, seed).await;
        // There is no over-limit cache here, so every denial costs a call.
        println!("3 windows of 600 hits, 13/s to each of 3 instances: {cost:?}");
        assert!(cost.passed <= 1_800, "{cost:?}");
        assert!(cost.passed >= 1_800 * 98 / 100, "{cost:?}");
        assert!(cost.calls - cost.denied < 60 * 3 * 3 / 4, "{cost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_needs_a_call_per_credit_life() {
    let cost = steady(&limit(Algorithm::TokenBucket, 6_000, 60), 13, 60, 1).await;
    println!("token_bucket of 6000 per minute, 13/s to each of 3 instances for 60 s: {cost:?}");
    assert_eq!(cost.denied, 0);
    assert!(cost.calls < 60 * 3 * 3 / 2, "{cost:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_flood_leaves_no_pools() {
    let cluster = network(1, CALM);
    let instance = Instance::new(&cluster, 0);
    let limit = limit(Algorithm::FixedWindow, 10, 60);
    for number in 0..2_000 {
        instance.hit(&CounterKey([number, number * 31]), &limit, 1).await.unwrap();
    }
    assert_eq!(instance.leased.pools(), 0);
    assert_eq!(cluster.calls(), 2_000);
}

#[tokio::test(start_paused = true)]
async fn pools_are_bounded() {
    let cluster = network(1, within(0));
    let instance = Instance::new(&cluster, 0);
    let limit = limit(Algorithm::FixedWindow, 10, 60);
    // All keys are in one shard.
    let shards = super::super::SHARDS as u64;
    let most = super::super::POOLS_MAX as u64;
    for number in 0..most + 50 {
        for _ in 0..2 {
            instance.hit(&CounterKey([number * shards, number]), &limit, 1).await.unwrap();
        }
    }
    assert_eq!(instance.leased.pools() as u64, most);
    tokio::time::advance(Duration::from_secs(5)).await;
    instance.run_due().await;
    assert_eq!(instance.leased.pools(), 0, "idle pools are removed");
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_counter_share_calls() {
    let cluster = network(1, CALM);
    let instance = Instance::new(&cluster, 0);
    let limit = Arc::new(limit(Algorithm::FixedWindow, 1_000, 60));
    let key = CounterKey([3, 3]);
    instance.hit(&key, &limit, 1).await.unwrap();
    let callers: Vec<_> = (0..256)
        .map(|_| {
            let (instance, limit) = (instance.clone(), limit.clone());
            tokio::spawn(async move { instance.hit(&key, &limit, 1).await.unwrap().allowed })
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap());
    }
    println!("256 callers at once on a cold counter: {} calls", cluster.calls());
    assert!(cluster.calls() <= 6, "{}", cluster.calls());
}
