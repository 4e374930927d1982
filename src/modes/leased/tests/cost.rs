//! What leases cost: visits to the store, and denials before the limit.

use std::sync::Arc;
use std::time::Duration;

use super::fixture::{Dice, Instance, Weather, World};
use crate::key::Key;
use crate::limit::{Algorithm, Limit, Tier};
use crate::time::Micros;

const CALM: Weather = Weather { latency: 500, loses: 0 };

fn limit(algorithm: Algorithm, requests: u64, window: u64) -> Limit {
    let tier = Tier { requests, window: Micros::from_secs(window), burst: requests };
    Limit { algorithm, tiers: Box::new([tier]), count_denied: false }
}

/// What came of some seconds of steady traffic on one counter.
#[derive(Debug)]
struct Bill {
    visits: u64,
    passed: u64,
    denied: u64,
}

/// `rate` requests per second to each of three instances, at random instants.
async fn steady(limit: &Limit, rate: u64, seconds: u64, seed: u64) -> Bill {
    let world = World::new(seed, CALM);
    let end = world.now().saturating_add(Micros::from_secs(seconds));
    let mut drivers = Vec::new();
    for number in 0..3 {
        let (instance, world) = (Instance::new(&world, 0), world.clone());
        let (limit, mut dice) = (limit.clone(), Dice(seed ^ number));
        drivers.push(tokio::spawn(async move {
            let (mut passed, mut denied) = (0, 0);
            loop {
                let gap = Duration::from_micros(1 + dice.below(2_000_000 / rate));
                tokio::time::sleep(gap).await;
                if world.now() >= end {
                    break;
                }
                let decision = instance.ask(&Key([1, 1]), &limit, 1).await.unwrap();
                *(if decision.allowed { &mut passed } else { &mut denied }) += 1;
            }
            (passed, denied)
        }));
    }
    let mut bill = Bill { visits: 0, passed: 0, denied: 0 };
    for driver in drivers {
        let (passed, denied) = driver.await.unwrap();
        (bill.passed, bill.denied) = (bill.passed + passed, bill.denied + denied);
    }
    bill.visits = world.visits();
    bill
}

#[tokio::test(start_paused = true)]
async fn steady_traffic_costs_less_than_a_visit_per_second_and_instance() {
    for (algorithm, rate) in [
        (Algorithm::FixedWindow, 13),
        (Algorithm::FixedWindow, 300),
        (Algorithm::SlidingWindow, 13),
    ] {
        let bill = steady(&limit(algorithm, 1_000_000, 60), rate, 60, 1).await;
        println!("{algorithm:?}, {rate}/s to each of 3 instances for 60 s: {bill:?}");
        assert_eq!(bill.denied, 0);
        assert!(bill.visits < 60 * 3, "{bill:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_that_fills_up_is_used_to_the_last_hit() {
    // A third more than the limit, as much to each; three windows.
    for seed in 0..20 {
        let bill = steady(&limit(Algorithm::FixedWindow, 600, 20), 13, 60, seed).await;
        // Until the over-limit cache above, every denial costs a visit.
        println!("3 windows of 600 hits, 13/s to each of 3 instances: {bill:?}");
        assert!(bill.passed <= 1_800, "{bill:?}");
        assert!(bill.passed >= 1_800 * 98 / 100, "{bill:?}");
        assert!(bill.visits - bill.denied < 60 * 3 * 3 / 4, "{bill:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_costs_a_visit_per_life_of_its_tokens() {
    let bill = steady(&limit(Algorithm::TokenBucket, 6_000, 60), 13, 60, 1).await;
    println!("token_bucket of 6000 per minute, 13/s to each of 3 instances for 60 s: {bill:?}");
    assert_eq!(bill.denied, 0);
    assert!(bill.visits < 60 * 3 * 3 / 2, "{bill:?}");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_counters_costs_a_visit_each_and_leaves_nothing() {
    let world = World::new(1, CALM);
    let instance = Instance::new(&world, 0);
    let limit = limit(Algorithm::FixedWindow, 10, 60);
    for number in 0..2_000 {
        instance.ask(&Key([number, number * 31]), &limit, 1).await.unwrap();
    }
    assert_eq!(instance.leased.pools(), 0);
    assert_eq!(world.visits(), 2_000);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_bounded() {
    let world = World::new(1, Weather { latency: 0, loses: 0 });
    let instance = Instance::new(&world, 0);
    let limit = limit(Algorithm::FixedWindow, 10, 60);
    // All in one shard.
    let shards = super::super::SHARDS as u64;
    let most = super::super::POOLS_MAX as u64;
    for number in 0..most + 50 {
        for _ in 0..2 {
            instance.ask(&Key([number * shards, number]), &limit, 1).await.unwrap();
        }
    }
    assert_eq!(instance.leased.pools() as u64, most);
    tokio::time::advance(Duration::from_secs(5)).await;
    instance.run_due().await;
    assert_eq!(instance.leased.pools(), 0, "nobody asks any more");
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_counter_share_visits() {
    let world = World::new(1, CALM);
    let instance = Instance::new(&world, 0);
    let limit = Arc::new(limit(Algorithm::FixedWindow, 1_000, 60));
    let key = Key([3, 3]);
    instance.ask(&key, &limit, 1).await.unwrap();
    let callers: Vec<_> = (0..256)
        .map(|_| {
            let (instance, limit) = (instance.clone(), limit.clone());
            tokio::spawn(async move { instance.ask(&key, &limit, 1).await.unwrap().allowed })
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap());
    }
    println!("256 callers at once on a cold counter: {} visits", world.visits());
    assert!(world.visits() <= 6, "{}", world.visits());
}
