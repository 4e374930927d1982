//! Tests of the guarded store with an inner store that replies on demand, on a paused clock.

use super::*;
use crate::algorithm;
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::{Lease, LeaseId};
use crate::testing::{FakeResult, FakeStore};
use crate::time::ManualClock;

const KEY: CounterKey = CounterKey([1, 2]);
/// A key of the other node.
const OTHER: CounterKey = CounterKey([2, 2]);
const TIMEOUT: Duration = Duration::from_millis(10);

type TestStore = GuardedStore<FakeStore, ManualClock>;

/// A store whose nodes reply once per released outcome.
fn store() -> TestStore {
    GuardedStore::new(FakeStore::new().holding(), ManualClock::at(Micros::SECOND), TIMEOUT)
}

fn step() -> Step {
    algorithm::plan(&Limit::fixed_window(10, Micros::SECOND), 1, Micros::SECOND)
}

/// Applies one step; the clock advances with tokio's time.
async fn apply(
    store: &TestStore,
    key: &CounterKey,
    timeout: Option<Duration>,
) -> Result<(), StoreError> {
    let before = tokio::time::Instant::now();
    let result = store.apply_within(key, &step(), timeout).await.map(|_| ());
    let waited = u64::try_from(before.elapsed().as_micros()).unwrap();
    store.shared.clock.advance(Micros(waited));
    result
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_shorter_timeout() {
    let store = store();
    for (timeout, waits) in [(None, 10), (Some(4), 4), (Some(40), 10)] {
        let before = tokio::time::Instant::now();
        let result = apply(&store, &KEY, timeout.map(Duration::from_millis)).await;
        assert_eq!(result, Err(StoreError::Timeout));
        let waited = before.elapsed();
        // Paused time moves in whole milliseconds, and may move one too far.
        assert!((waits..=waits + 1).contains(&waited.as_millis()), "{timeout:?}: {waited:?}");
    }
    store.shared.store.release(0, 1);
    assert_eq!(apply(&store, &KEY, None).await, Ok(()));
    assert_eq!(store.latency().distribution().count, 1, "only successful calls are measured");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_arrives_at_the_timeout_is_used() {
    let store = Arc::new(store());
    let replying = store.clone();
    tokio::spawn(async move {
        tokio::time::sleep(TIMEOUT).await;
        replying.shared.store.release(0, 1);
    });
    assert_eq!(apply(&store, &KEY, None).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_node_is_skipped_and_the_other_serves() {
    let store = store();
    for _ in 0..5 {
        assert_eq!(apply(&store, &KEY, None).await, Err(StoreError::Timeout));
    }
    store.shared.store.take_calls();
    for _ in 0..100 {
        assert_eq!(apply(&store, &KEY, None).await, Err(StoreError::BreakerOpen));
    }
    assert_eq!(store.shared.store.take_calls(), 0);
    store.shared.store.release(1, 1);
    assert_eq!(apply(&store, &OTHER, None).await, Ok(()));
    let health = store.snapshot(NodeId(0));
    assert_eq!((health.breaker, health.opened), (BreakerState::Open, 1));
    let timeouts_and_open = [0, 5, 100, 0, 0, 0, 0, 0, 0];
    assert_eq!(health.errors, timeouts_and_open, "in the order of StoreError::ALL");
    let health = store.snapshot(NodeId(1));
    assert_eq!((health.breaker, health.in_flight), (BreakerState::Closed, 0));
    store.apply_detached(&KEY, step());
    store.apply_detached(&OTHER, step());
    assert_eq!(store.shared.store.detached(), 1, "only the healthy node gets it");

    // After the open time one call finds that the node is back.
    store.shared.clock.advance(Micros::from_millis(200));
    store.shared.store.release(0, 2);
    assert_eq!(apply(&store, &KEY, None).await, Ok(()));
    assert_eq!(apply(&store, &KEY, None).await, Ok(()));
    let health = store.snapshot(NodeId(0));
    assert_eq!((health.breaker, health.in_flight), (BreakerState::Closed, 0));
}

#[tokio::test(start_paused = true)]
async fn short_caller_deadlines_do_not_move_the_breaker() {
    let store = store();
    let short = Some(TIMEOUT / 2);
    for _ in 0..50 {
        assert_eq!(apply(&store, &KEY, short).await, Err(StoreError::Timeout));
    }
    let health = store.snapshot(NodeId(0));
    assert_eq!((health.breaker, health.opened), (BreakerState::Closed, 0));

    // A probe with a short deadline does not stop the next call from probing.
    for _ in 0..5 {
        assert_eq!(apply(&store, &KEY, Some(TIMEOUT)).await, Err(StoreError::Timeout));
    }
    assert_eq!(store.snapshot(NodeId(0)).breaker, BreakerState::Open);
    store.shared.clock.advance(Micros::from_millis(200));
    assert_eq!(apply(&store, &KEY, short).await, Err(StoreError::Timeout));
    store.shared.store.release(0, 1);
    assert_eq!(apply(&store, &KEY, None).await, Ok(()));
    assert_eq!(store.snapshot(NodeId(0)).breaker, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn error_replies_do_not_open_the_breaker() {
    let store = store();
    store.shared.store.set_result(FakeResult::Rejected(StoreError::ErrorReply));
    for _ in 0..100 {
        assert_eq!(apply(&store, &KEY, None).await, Err(StoreError::ErrorReply));
        store.shared.clock.advance(Micros::from_millis(1));
    }
    assert_eq!(store.shared.store.take_calls(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_sent_clears_no_failure() {
    let store = store();
    for _ in 0..4 {
        assert_eq!(apply(&store, &KEY, None).await, Err(StoreError::Timeout));
    }
    store.shared.store.push_result(FakeResult::Rejected(StoreError::Busy));
    assert_eq!(apply(&store, &KEY, None).await, Err(StoreError::Busy));
    assert_eq!(apply(&store, &KEY, None).await, Err(StoreError::Timeout));
    assert_eq!(store.snapshot(NodeId(0)).breaker, BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn calls_over_the_bound_are_rejected_at_once() {
    let store = store();
    let step = step();
    let mut waiting: Vec<_> =
        (0..IN_FLIGHT_MAX).map(|_| Box::pin(store.apply(&KEY, &step))).collect();
    for call in &mut waiting {
        assert!(futures_util::poll!(call).is_pending());
    }
    assert_eq!(apply(&store, &KEY, None).await, Err(StoreError::Busy));
    assert_eq!(store.snapshot(NodeId(0)).in_flight, IN_FLIGHT_MAX);
    store.shared.store.release(1, 1);
    assert_eq!(apply(&store, &OTHER, None).await, Ok(()), "the other node has its own bound");
    drop(waiting);
    assert_eq!(store.snapshot(NodeId(0)).in_flight, 0);
    store.shared.store.release(0, 1);
    assert_eq!(apply(&store, &KEY, None).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn delete_has_the_timeout_of_a_decision() {
    let store = store();
    store.store().memory.apply_now(&KEY, &step()).expect("there is room");
    assert_eq!(store.delete(&KEY).await, Err(StoreError::Timeout));
    store.store().release(0, 1);
    assert_eq!(store.delete(&KEY).await, Ok(true));
}

/// Settlements and rules of quotas have the timeout, the breaker and the bound of decisions.
#[tokio::test(start_paused = true)]
async fn quotas_are_guarded_like_decisions() {
    let store = store();
    let (now, window) = (Micros::SECOND, Micros::SECOND);
    let settlement = Settlement { now, requests: 1, window, grace: window, changes: Vec::new() };
    let settle = |key| store.settle(key, &settlement);
    let mut waiting: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| Box::pin(settle(&KEY))).collect();
    for call in &mut waiting {
        assert!(futures_util::poll!(call).is_pending());
    }
    assert_eq!(settle(&KEY).await, Err(StoreError::Busy));
    assert_eq!(store.quota_rules(now).await, Err(StoreError::Busy));
    drop(waiting);
    for _ in 0..5 {
        assert_eq!(settle(&KEY).await, Err(StoreError::Timeout));
        store.shared.clock.advance(Micros::from_millis(10));
    }
    assert_eq!(settle(&KEY).await, Err(StoreError::BreakerOpen));
    assert_eq!(store.announce_quota_rules(&[], now, window).await, Err(StoreError::BreakerOpen));
    assert_eq!(store.quota_rules(now).await, Err(StoreError::BreakerOpen));
    store.store().release(1, 1);
    assert_eq!(settle(&OTHER).await, Ok(LedgerSnapshot::default()), "the other node settles");
}

/// The release of a slot that is held for 30 s.
fn release() -> Step {
    let tier = Tier { requests: 9, window: Micros::from_secs(30), burst: 9, calendar: None };
    let tiers = Box::new([tier]);
    let limit = Limit { algorithm: Algorithm::Concurrency, tiers, count_denied: false };
    algorithm::plan(&limit, -1, Micros::SECOND).with_lease(Lease::Close(LeaseId::from_bits(1)))
}

/// The calls that reach the store in ten seconds.
async fn calls_in_ten_seconds(store: &TestStore) -> usize {
    store.shared.store.take_calls();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        store.shared.clock.advance(Micros::from_millis(200));
    }
    store.shared.store.take_calls()
}

#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_until_it_is_applied() {
    let store = store();
    store.apply_detached(&KEY, release());
    store.apply_detached(&OTHER, release());
    assert_eq!(store.shared.store.take_calls(), 2, "both are sent at once");
    store.shared.store.release(1, 1);
    assert!(calls_in_ten_seconds(&store).await > 3, "the first node does not reply");
    store.shared.store.release(0, 2);
    calls_in_ten_seconds(&store).await;
    assert_eq!(calls_in_ten_seconds(&store).await, 0);
    store.apply_detached(&KEY, release());
    assert_eq!(
        calls_in_ten_seconds(&store).await,
        0,
        "the first took one outcome, this one the other"
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_ends_with_its_slot_or_error_replies() {
    let expiring = store();
    expiring.apply_detached(&KEY, release());
    assert!(calls_in_ten_seconds(&expiring).await > 3);
    expiring.shared.clock.advance(Micros::from_secs(30));
    calls_in_ten_seconds(&expiring).await;
    assert_eq!(calls_in_ten_seconds(&expiring).await, 0, "the slot has expired");
    let failing = store();
    failing.shared.store.set_result(FakeResult::Rejected(StoreError::ErrorReply));
    failing.apply_detached(&KEY, release());
    assert!(calls_in_ten_seconds(&failing).await > 10);
    calls_in_ten_seconds(&failing).await;
    assert_eq!(calls_in_ten_seconds(&failing).await, 0, "no repetition helps");
}
