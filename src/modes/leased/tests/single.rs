//! One instance or two, step by step.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::fixture::{Instance, Weather, World};
use crate::key::Key;
use crate::limit::{Algorithm, Limit, Tier};
use crate::store::StoreError;
use crate::time::Micros;

const KEY: Key = Key([5, 5]);
const AT_ONCE: Weather = Weather { latency: 0, loses: 0 };

fn limit(requests: u64, window: u64) -> Limit {
    of(Algorithm::FixedWindow, requests, window)
}

fn of(algorithm: Algorithm, requests: u64, window: u64) -> Limit {
    let tier = Tier { requests, window: Micros::from_secs(window), burst: requests };
    Limit { algorithm, tiers: Box::new([tier]), count_denied: false }
}

/// Takes hits until the instance holds tokens of its own; how many it took.
async fn warm(instance: &Instance, limit: &Limit) -> u64 {
    for taken in 1..10 {
        assert!(instance.ask(&KEY, limit, 1).await.unwrap().allowed);
        if held(instance) > 0 {
            return taken;
        }
    }
    panic!("nothing was drawn ahead");
}

/// Tokens drawn and neither spent nor gone.
fn held(instance: &Instance) -> u64 {
    let counts = instance.leased.counts();
    let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    read(&counts.drawn) - read(&counts.spent) - read(&counts.returned) - read(&counts.expired)
}

/// What another instance, that has never asked, sees of the counter.
async fn remaining(world: &std::sync::Arc<World>, limit: &Limit) -> u64 {
    Instance::new(world, 0).ask(&KEY, limit, 0).await.unwrap().remaining
}

#[tokio::test(start_paused = true)]
async fn remaining_counts_own_tokens_and_peeks_and_refunds_stay_here() {
    let world = World::new(1, AT_ONCE);
    let instance = Instance::new(&world, 0);
    let limit = limit(100, 60);
    for left in (60..100).rev() {
        let decision = instance.ask(&KEY, &limit, 1).await.unwrap();
        assert_eq!((decision.allowed, decision.remaining, decision.used), (true, left, 100 - left));
        assert_eq!(decision.reset_after, Micros::from_secs(60));
    }
    warm(&instance, &limit).await;
    let visits = world.visits();
    let seen = instance.ask(&KEY, &limit, 0).await.unwrap();
    let back = instance.ask(&KEY, &limit, -1).await.unwrap();
    assert_eq!(back.remaining, seen.remaining + 1);
    assert_eq!(world.visits(), visits);
    tokio::time::advance(Duration::from_secs(10)).await;
    let later = instance.ask(&KEY, &limit, 0).await.unwrap();
    assert_eq!(later.reset_after, Micros::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn idle_tokens_go_back_and_the_counter_is_forgotten() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket] {
        let world = World::new(1, AT_ONCE);
        let instance = Instance::new(&world, 0);
        let limit = of(algorithm, 40, 86_400);
        let taken = warm(&instance, &limit).await;
        assert!(remaining(&world, &limit).await < 40 - taken);
        tokio::time::advance(Duration::from_secs(5)).await;
        instance.run_due().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        let spared = u64::from(algorithm == Algorithm::TokenBucket);
        // What of a bucket's tokens has begun to drain stays; a second of life costs one hit more.
        let left = remaining(&world, &limit).await;
        assert!((40 - taken - 2 * spared..=40 - taken).contains(&left), "{algorithm:?}: {left}");
        assert_eq!((instance.leased.pools(), held(&instance)), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn closing_gives_everything_back() {
    let world = World::new(1, AT_ONCE);
    let instance = Instance::new(&world, 0);
    let limit = limit(100, 60);
    let taken = warm(&instance, &limit).await;
    instance.close().await;
    assert_eq!(remaining(&world, &limit).await, 100 - taken);
    assert!(instance.ask(&KEY, &limit, 1).await.unwrap().allowed, "it still answers");
    assert_eq!(held(&instance), 0);
}

#[tokio::test(start_paused = true)]
async fn tokens_end_with_their_window_even_for_a_late_thread() {
    let world = World::new(1, AT_ONCE);
    let instance = Instance::new(&world, 0);
    let limit = limit(100, 10);
    warm(&instance, &limit).await;
    let (old, visits) = (instance.local(), world.visits());
    tokio::time::advance(Duration::from_secs(10)).await;
    // As of the old window, which it read: spent from memory.
    assert!(instance.ask_as_of(&KEY, &limit, 1, old).await.unwrap().allowed);
    assert_eq!(world.visits(), visits);
    let decision = instance.ask(&KEY, &limit, 1).await.unwrap();
    assert!(world.visits() > visits, "the new window's tokens are drawn in it");
    assert_eq!(decision.remaining, 99);
    assert!(instance.leased.counts().expired.load(Ordering::Relaxed) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_lower_limit_holds_at_once() {
    let world = World::new(1, AT_ONCE);
    let instance = Instance::new(&world, 0);
    let (high, low) = (limit(100, 60), limit(3, 60));
    let taken = warm(&instance, &high).await;
    assert!(taken >= 3 || held(&instance) > 0);
    let mut passed = taken;
    for _ in 0..20 {
        passed += u64::from(instance.ask(&KEY, &low, 1).await.unwrap().allowed);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(passed, taken.max(3));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(remaining(&world, &high).await, 100 - passed);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_not_missed_while_tokens_last() {
    let world = World::new(1, AT_ONCE);
    let instance = Instance::new(&world, 300_000_000);
    let limit = limit(1_000, 60);
    for _ in 0..50 {
        assert!(instance.ask(&KEY, &limit, 1).await.unwrap().allowed);
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let tokens = held(&instance);
    assert!(tokens > 0);
    world.away.store(true, Ordering::Relaxed);
    for _ in 0..tokens {
        assert!(instance.ask(&KEY, &limit, 1).await.unwrap().allowed);
    }
    assert_eq!(instance.ask(&KEY, &limit, 1).await, Err(StoreError::Unreachable));
    world.away.store(false, Ordering::Relaxed);
    assert!(instance.ask(&KEY, &limit, 1).await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_and_goes_leaves_its_tokens() {
    let world = World::new(1, Weather { latency: 20_000, loses: 0 });
    let instance = Instance::new(&world, 0);
    let limit = limit(10, 60);
    for _ in 0..2 {
        let ask = instance.ask(&KEY, &limit, 1);
        let _ = tokio::time::timeout(Duration::from_secs(1), ask).await;
    }
    // Its draw is under way when it goes.
    let ask = instance.ask(&KEY, &limit, 5);
    assert!(tokio::time::timeout(Duration::from_micros(10), ask).await.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut passed = 2;
    while instance.ask(&KEY, &limit, 1).await.unwrap().allowed {
        passed += 1;
    }
    assert_eq!(passed, 10);
}

#[tokio::test(start_paused = true)]
async fn a_denial_says_what_the_store_knows() {
    let world = World::new(1, AT_ONCE);
    let instance = Instance::new(&world, 0);
    let limit = limit(10, 60);
    for _ in 0..10 {
        assert!(instance.ask(&KEY, &limit, 1).await.unwrap().allowed);
    }
    tokio::time::advance(Duration::from_secs(20)).await;
    let denied = instance.ask(&KEY, &limit, 1).await.unwrap();
    assert_eq!((denied.allowed, denied.remaining, denied.used), (false, 0, 10));
    assert_eq!(denied.reset_after, Micros::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn small_buckets_are_counted_exactly() {
    let world = World::new(1, AT_ONCE);
    let instance = Instance::new(&world, 0);
    let limit = of(Algorithm::LeakyBucket, 7, 60);
    for _ in 0..7 {
        assert!(instance.ask(&KEY, &limit, 1).await.unwrap().allowed);
    }
    assert!(!instance.ask(&KEY, &limit, 1).await.unwrap().allowed);
    assert_eq!(world.visits(), 8);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_for_a_draw_than_for_the_store() {
    let world = World::new(1, AT_ONCE);
    let instance = Instance::new(&world, 0);
    let limit = limit(100, 60);
    world.deadline.store(10, Ordering::Relaxed);
    warm(&instance, &limit).await;
    world.stalled.store(true, Ordering::Relaxed);
    for (timeout, waits) in [(None, 10), (Some(4_000), 10), (Some(4), 4)] {
        let before = tokio::time::Instant::now();
        let timeout = timeout.map(Duration::from_millis);
        let (hits, local) = (held(&instance) as i64 + 1, instance.local());
        let asked = instance.ask_within(&KEY, &limit, hits, local, timeout);
        // Without a deadline it would be for ever.
        let asked = tokio::time::timeout(Duration::from_secs(9), asked).await;
        assert_eq!(asked, Ok(Err(StoreError::Timeout)), "{timeout:?}");
        let waited = before.elapsed().as_millis();
        assert!((waits..=waits + 1).contains(&waited), "{timeout:?}: {waited} ms");
    }
}
