//! Tests of one or two instances, step by step.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::fixture::{BEGIN, Instance, network, within};
use crate::decision::Decision;
use crate::key::CounterKey;
use crate::limit::{Algorithm, Limit, Tier};
use crate::store::StoreError;
use crate::testing::network::{Conditions, Network};
use crate::time::Micros;

const KEY: CounterKey = CounterKey([5, 5]);
const AT_ONCE: Conditions = within(0);

fn limit(requests: u64, window: u64) -> Limit {
    of(Algorithm::FixedWindow, requests, window)
}

fn of(algorithm: Algorithm, requests: u64, window: u64) -> Limit {
    let tier =
        Tier { requests, window: Micros::from_secs(window), burst: requests, calendar: None };
    Limit { algorithm, tiers: Box::new([tier]), count_denied: false }
}

/// Takes hits until the instance has unspent credits. Returns the number of hits.
async fn warm(instance: &Instance, limit: &Limit) -> u64 {
    for taken in 1..10 {
        assert!(instance.hit(&KEY, limit, 1).await.unwrap().allowed);
        if held(instance) > 0 {
            return taken;
        }
    }
    panic!("no credits were drawn ahead");
}

/// Unspent credits.
fn held(instance: &Instance) -> u64 {
    let metrics = instance.leased.metrics();
    let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    read(&metrics.drawn) - read(&metrics.spent) - read(&metrics.returned) - read(&metrics.expired)
}

/// The remaining hits that a new instance sees.
async fn remaining(cluster: &Arc<Network>, limit: &Limit) -> u64 {
    Instance::new(cluster, 0).hit(&KEY, limit, 0).await.unwrap().remaining
}

/// A request that runs while the test continues.
fn started(
    instance: &Arc<Instance>,
    limit: &Limit,
    hits: i64,
) -> JoinHandle<Result<Decision, StoreError>> {
    let (instance, limit) = (instance.clone(), limit.clone());
    tokio::spawn(async move { instance.hit(&KEY, &limit, hits).await })
}

#[tokio::test(start_paused = true)]
async fn peeks_and_refunds_stay_local() {
    let cluster = network(1, AT_ONCE);
    let instance = Instance::new(&cluster, 0);
    let limit = limit(100, 60);
    for left in (60..100).rev() {
        let decision = instance.hit(&KEY, &limit, 1).await.unwrap();
        assert_eq!((decision.allowed, decision.remaining, decision.used), (true, left, 100 - left));
        assert_eq!(decision.reset_after, Micros::from_secs(60));
    }
    warm(&instance, &limit).await;
    let calls = cluster.calls();
    let seen = instance.hit(&KEY, &limit, 0).await.unwrap();
    let back = instance.hit(&KEY, &limit, -1).await.unwrap();
    assert_eq!(back.remaining, seen.remaining + 1);
    assert_eq!(cluster.calls(), calls);
    tokio::time::advance(Duration::from_secs(10)).await;
    let later = instance.hit(&KEY, &limit, 0).await.unwrap();
    assert_eq!(later.reset_after, Micros::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn idle_credits_are_returned() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket] {
        let cluster = network(1, AT_ONCE);
        let instance = Instance::new(&cluster, 0);
        let limit = of(algorithm, 40, 86_400);
        let taken = warm(&instance, &limit).await;
        assert!(remaining(&cluster, &limit).await < 40 - taken);
        for _ in 0..2 {
            tokio::time::advance(Duration::from_secs(5)).await;
            instance.run_due().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(remaining(&cluster, &limit).await, 40 - taken, "{algorithm:?}");
        assert_eq!((instance.leased.pools(), held(&instance)), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn close_returns_all_credits() {
    let cluster = network(1, AT_ONCE);
    let instance = Instance::new(&cluster, 0);
    let limit = limit(100, 60);
    let taken = warm(&instance, &limit).await;
    instance.close().await;
    assert_eq!(remaining(&cluster, &limit).await, 100 - taken);
    assert!(instance.hit(&KEY, &limit, 1).await.unwrap().allowed, "it still decides");
    assert_eq!(held(&instance), 0);
}

#[tokio::test(start_paused = true)]
async fn close_reports_a_failed_return() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket] {
        for down in [false, true] {
            let cluster = network(1, AT_ONCE);
            let instance = Instance::new(&cluster, 0);
            warm(&instance, &of(algorithm, 40, 86_400)).await;
            cluster.set_down(0, down);
            let returned = instance.leased.return_all(instance.local()).await;
            assert_eq!(returned, !down, "{algorithm:?}");
        }
    }
}

/// A request that waits while a window ends is not denied because of unspent credits of that window: they
/// serve a request of that window, and are returned before one of the next window is denied.
#[tokio::test(start_paused = true)]
async fn ended_credits_deny_no_earlier_request() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let cluster = network(1, AT_ONCE);
        let (instance, other) = (Instance::new(&cluster, 0), Instance::new(&cluster, 0));
        let limit = of(algorithm, 40, 60);
        warm(&instance, &limit).await;
        let unspent = held(&instance) as i64;
        let left = remaining(&cluster, &limit).await as i64;
        assert!(other.hit(&KEY, &limit, left).await.unwrap().allowed);
        cluster.set_conditions(0, Conditions { latency: 10, ..AT_ONCE });
        tokio::time::sleep_until(cluster.at(59_995)).await;
        let too_many = started(&instance, &limit, unspent + 1);
        let one = started(&instance, &limit, 1);
        tokio::time::sleep_until(cluster.at(60_001)).await;
        // It arrives in the next window, before the reply to the refill.
        let later = started(&instance, &limit, 1);
        assert!(!too_many.await.unwrap().unwrap().allowed, "{algorithm:?}");
        assert!(one.await.unwrap().unwrap().allowed, "{algorithm:?}");
        assert!(later.await.unwrap().unwrap().allowed, "{algorithm:?}");
    }
}

/// A request waits for one more credit while its window ends. A request of the next window does not take
/// the other credits from it.
#[tokio::test(start_paused = true)]
async fn credits_stay_for_requests_of_an_ended_window() {
    let cluster = network(1, AT_ONCE);
    let instance = Instance::new(&cluster, 0);
    let limit = limit(6, 60);
    let taken = warm(&instance, &limit).await;
    assert!(instance.hit(&KEY, &limit, 1).await.unwrap().allowed);
    tokio::time::sleep(Duration::from_millis(1)).await;
    // Two hits are left: one credit, and one in the store.
    assert_eq!((taken, held(&instance), remaining(&cluster, &limit).await), (3, 1, 1));
    cluster.set_conditions(0, Conditions { latency: 10, ..AT_ONCE });
    tokio::time::sleep_until(cluster.at(59_995)).await;
    let last = started(&instance, &limit, 2);
    tokio::time::sleep_until(cluster.at(60_001)).await;
    let later = started(&instance, &limit, 1);
    assert!(last.await.unwrap().unwrap().allowed);
    assert!(later.await.unwrap().unwrap().allowed);
}

/// A request for more hits than fit is denied, and the reply to its refill lets the next one pass.
#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_fit_holds_back_no_other() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let cluster = network(1, AT_ONCE);
        let instance = Instance::new(&cluster, 0);
        let limit = of(algorithm, 40, 60);
        warm(&instance, &limit).await;
        let unspent = held(&instance) as i64;
        let left = remaining(&cluster, &limit).await as i64;
        cluster.set_conditions(0, Conditions { latency: 10, ..AT_ONCE });
        let calls = cluster.calls();
        let too_many = started(&instance, &limit, unspent + left + 1);
        let one = started(&instance, &limit, 1);
        assert!(!too_many.await.unwrap().unwrap().allowed, "{algorithm:?}");
        assert!(one.await.unwrap().unwrap().allowed, "{algorithm:?}");
        assert_eq!(cluster.calls(), calls + 1, "{algorithm:?}");
    }
}

/// While hits return to a window, a request that does not fit by the last reply may fit by the next one.
/// So it gets the credits before a smaller request behind it.
#[tokio::test(start_paused = true)]
async fn requests_keep_their_order_while_hits_return() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let cluster = network(1, AT_ONCE);
        let (instance, other) = (Instance::new(&cluster, 0), Instance::new(&cluster, 0));
        let limit = of(algorithm, 40, 60);
        let taken = warm(&instance, &limit).await as i64;
        let unspent = held(&instance) as i64;
        let left = remaining(&cluster, &limit).await as i64;
        assert!(other.hit(&KEY, &limit, left).await.unwrap().allowed);
        cluster.set_conditions(0, Conditions { latency: 10, ..AT_ONCE });
        // It fits after the refund below, and then no hit is left.
        let first = started(&instance, &limit, unspent + taken);
        let second = started(&instance, &limit, 1);
        // The store has denied the refill, and the instance lacks the reply.
        tokio::time::sleep_until(cluster.at(11)).await;
        cluster.set_conditions(0, Conditions { latency: 3, ..AT_ONCE });
        // One of these hits was decided by the store, and returns to it. The others become credits.
        let back = started(&instance, &limit, -taken);
        assert!(back.await.unwrap().is_ok());
        assert_eq!(cluster.now(), BEGIN.saturating_add(Micros::from_millis(17)));
        assert!(first.await.unwrap().unwrap().allowed, "{algorithm:?}");
        assert!(!second.await.unwrap().unwrap().allowed, "{algorithm:?}");
    }
}

/// A refill from before a deletion leaves no credits: its hits are not in the new counter.
#[tokio::test(start_paused = true)]
async fn credits_in_flight_end_with_a_deletion() {
    let cluster = network(1, AT_ONCE);
    let instance = Instance::new(&cluster, 0);
    let limit = limit(100, 60);
    warm(&instance, &limit).await;
    cluster.set_conditions(0, Conditions { latency: 10, ..AT_ONCE });
    let hits = held(&instance) + 1;
    let waits = started(&instance, &limit, hits as i64);
    // Redis has the refill, and the instance lacks the reply.
    tokio::time::sleep(Duration::from_millis(15)).await;
    instance.leased.delete(&KEY);
    assert!(cluster.node(0).delete(cluster.now(), 0, KEY));
    assert!(waits.await.unwrap().unwrap().allowed);
    instance.close().await;
    assert_eq!(remaining(&cluster, &limit).await, 100 - hits);
}

#[tokio::test(start_paused = true)]
async fn credits_end_with_their_window() {
    let cluster = network(1, AT_ONCE);
    let instance = Instance::new(&cluster, 0);
    let limit = limit(100, 10);
    warm(&instance, &limit).await;
    let (old, calls) = (instance.local(), cluster.calls());
    tokio::time::advance(Duration::from_secs(10)).await;
    // The request read an instant of the old window, so it spends the old credits.
    assert!(instance.hit_as_of(&KEY, &limit, 1, old).await.unwrap().allowed);
    assert_eq!(cluster.calls(), calls);
    let decision = instance.hit(&KEY, &limit, 1).await.unwrap();
    assert!(cluster.calls() > calls, "the new window needs new credits");
    assert_eq!(decision.remaining, 99);
    assert!(instance.leased.metrics().expired.load(Ordering::Relaxed) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_lower_limit_applies_at_once() {
    let cluster = network(1, AT_ONCE);
    let instance = Instance::new(&cluster, 0);
    let (high, low) = (limit(100, 60), limit(3, 60));
    let taken = warm(&instance, &high).await;
    assert!(taken >= 3 || held(&instance) > 0);
    let mut passed = taken;
    for _ in 0..20 {
        passed += u64::from(instance.hit(&KEY, &low, 1).await.unwrap().allowed);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(passed, taken.max(3));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(remaining(&cluster, &high).await, 100 - passed);
}

#[tokio::test(start_paused = true)]
async fn credits_outlast_an_unreachable_store() {
    let cluster = network(1, AT_ONCE);
    let instance = Instance::new(&cluster, 300_000_000);
    let limit = limit(1_000, 60);
    for _ in 0..50 {
        assert!(instance.hit(&KEY, &limit, 1).await.unwrap().allowed);
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let credits = held(&instance);
    assert!(credits > 0);
    cluster.set_down(0, true);
    for _ in 0..credits {
        assert!(instance.hit(&KEY, &limit, 1).await.unwrap().allowed);
    }
    assert_eq!(instance.hit(&KEY, &limit, 1).await, Err(StoreError::Unreachable));
    cluster.set_down(0, false);
    assert!(instance.hit(&KEY, &limit, 1).await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_leaves_its_credits() {
    let cluster = network(1, within(20));
    let instance = Instance::new(&cluster, 0);
    let limit = limit(10, 60);
    for _ in 0..2 {
        let request = instance.hit(&KEY, &limit, 1);
        let _ = tokio::time::timeout(Duration::from_secs(1), request).await;
    }
    // Its refill is in flight when it is cancelled.
    let request = instance.hit(&KEY, &limit, 5);
    assert!(tokio::time::timeout(Duration::from_micros(10), request).await.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut passed = 2;
    while instance.hit(&KEY, &limit, 1).await.unwrap().allowed {
        passed += 1;
    }
    assert_eq!(passed, 10);
}

#[tokio::test(start_paused = true)]
async fn a_denial_reports_the_stores_state() {
    let cluster = network(1, AT_ONCE);
    let instance = Instance::new(&cluster, 0);
    let limit = limit(10, 60);
    for _ in 0..10 {
        assert!(instance.hit(&KEY, &limit, 1).await.unwrap().allowed);
    }
    tokio::time::advance(Duration::from_secs(20)).await;
    let denied = instance.hit(&KEY, &limit, 1).await.unwrap();
    assert_eq!((denied.allowed, denied.remaining, denied.used), (false, 0, 10));
    assert_eq!(denied.reset_after, Micros::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_is_spent_to_the_last_credit() {
    for burst in [1, 2, 7, 8, 100] {
        let cluster = network(1, AT_ONCE);
        let instance = Instance::new(&cluster, 0);
        let limit = of(Algorithm::LeakyBucket, burst, 60);
        for _ in 0..burst {
            assert!(instance.hit(&KEY, &limit, 1).await.unwrap().allowed);
        }
        assert!(!instance.hit(&KEY, &limit, 1).await.unwrap().allowed);
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_refill_is_bounded() {
    let cluster = network(1, AT_ONCE);
    let instance = Instance::with_timeout(&cluster, 0, Some(Duration::from_millis(10)));
    let limit = limit(100, 60);
    warm(&instance, &limit).await;
    cluster.set_stalled(0, true);
    for (timeout, waits) in [(None, 10), (Some(4_000), 10), (Some(4), 4)] {
        let before = tokio::time::Instant::now();
        let timeout = timeout.map(Duration::from_millis);
        let (hits, local) = (held(&instance) as i64 + 1, instance.local());
        let request = instance.hit_within(&KEY, &limit, hits, local, timeout);
        // Without a timeout it would wait forever.
        let request = tokio::time::timeout(Duration::from_secs(9), request).await;
        assert_eq!(request, Ok(Err(StoreError::Timeout)), "{timeout:?}");
        let waited = before.elapsed().as_millis();
        assert!((waits..=waits + 1).contains(&waited), "{timeout:?}: {waited} ms");
    }
}
