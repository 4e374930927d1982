//! The guard around a store that answers when it is told to, in time that stands still.

use std::sync::atomic::AtomicU32;

use tokio::sync::Semaphore;

use super::*;
use crate::algorithm;
use crate::limit::Limit;
use crate::time::ManualClock;

const KEY: Key = Key([1, 2]);
const OTHER: Key = Key([2, 2]);
const TIMEOUT: Duration = Duration::from_millis(10);

/// A store of two nodes, by the first half of the key. A part answers when it is given a permit.
struct Slow {
    answers: [Semaphore; 2],
    result: Result<(), StoreError>,
    asked: AtomicU32,
    told: AtomicU32,
}

impl Slow {
    fn answering(result: Result<(), StoreError>) -> Slow {
        let answers = [Semaphore::new(0), Semaphore::new(0)];
        Slow { answers, result, asked: AtomicU32::new(0), told: AtomicU32::new(0) }
    }
}

impl Clustered for Slow {
    fn node(&self, key: &Key) -> NodeId {
        NodeId(u32::from(key.0[0] == 2))
    }
}

impl Store for Slow {
    fn now(&self, _: &Key, local: Micros) -> Result<Micros, StoreError> {
        Ok(local)
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }

    async fn apply_within(
        &self,
        key: &Key,
        step: &Step,
        _: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answers = &self.answers[self.node(key).0 as usize];
        answers.acquire().await.expect("never closed").forget();
        self.result.map(|()| step.apply(&mut None))
    }

    fn apply_detached(&self, _: &Key, _: Step) {
        self.told.fetch_add(1, Ordering::Relaxed);
    }

    async fn forget(&self, key: &Key) -> Result<bool, StoreError> {
        self.apply(key, &step()).await.map(|outcome| outcome.allowed)
    }
}

type Guarded = Guard<Slow, ManualClock>;

fn guard(result: Result<(), StoreError>) -> Guarded {
    Guard::new(Slow::answering(result), ManualClock::at(Micros::SECOND), TIMEOUT)
}

fn step() -> Step {
    algorithm::plan(&Limit::fixed_window(10, Micros::SECOND), 1, Micros::SECOND)
}

/// Asks once; the clock and tokio's time go on together.
async fn ask(guard: &Guarded, key: &Key, timeout: Option<Duration>) -> Result<(), StoreError> {
    let before = tokio::time::Instant::now();
    let result = guard.apply_within(key, &step(), timeout).await.map(|_| ());
    let waited = u64::try_from(before.elapsed().as_micros()).unwrap();
    guard.clock.advance(Micros(waited));
    result
}

fn asked(guard: &Guarded) -> u32 {
    guard.store.asked.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_the_shorter_deadline() {
    let guard = guard(Ok(()));
    for (timeout, waits) in [(None, 10), (Some(4), 4), (Some(40), 10)] {
        let before = tokio::time::Instant::now();
        let result = ask(&guard, &KEY, timeout.map(Duration::from_millis)).await;
        assert_eq!(result, Err(StoreError::Timeout));
        let waited = before.elapsed();
        // Paused time moves in whole milliseconds, and may move one too far.
        assert!((waits..=waits + 1).contains(&waited.as_millis()), "{timeout:?}: {waited:?}");
    }
    guard.store.answers[0].add_permits(1);
    assert_eq!(ask(&guard, &KEY, None).await, Ok(()));
    assert_eq!(guard.latency().cumulative().last().unwrap().1, 1, "only answers are measured");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_with_the_alarm_is_taken() {
    let guard = Arc::new(guard(Ok(())));
    let answering = guard.clone();
    tokio::spawn(async move {
        tokio::time::sleep(TIMEOUT).await;
        answering.store.answers[0].add_permits(1);
    });
    assert_eq!(ask(&guard, &KEY, None).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_part_that_stalls_is_not_asked_and_the_other_one_is() {
    let guard = guard(Ok(()));
    for _ in 0..5 {
        assert_eq!(ask(&guard, &KEY, None).await, Err(StoreError::Timeout));
    }
    let before = asked(&guard);
    for _ in 0..100 {
        assert_eq!(ask(&guard, &KEY, None).await, Err(StoreError::Open));
    }
    assert_eq!(asked(&guard), before);
    guard.store.answers[1].add_permits(1);
    assert_eq!(ask(&guard, &OTHER, None).await, Ok(()));
    let health = guard.health(NodeId(0));
    assert_eq!((health.breaker, health.opened), (BreakerState::Open, 1));
    let timeouts_and_open = [0, 5, 100, 0, 0, 0, 0, 0];
    assert_eq!(health.errors, timeouts_and_open, "in the order of StoreError::ALL");
    let health = guard.health(NodeId(1));
    assert_eq!((health.breaker, health.in_flight), (BreakerState::Closed, 0));
    guard.apply_detached(&KEY, step());
    guard.apply_detached(&OTHER, step());
    assert_eq!(guard.store.told.load(Ordering::Relaxed), 1, "only the living part is told");

    // After its rest one call finds out that it is back.
    guard.clock.advance(Micros::from_millis(200));
    guard.store.answers[0].add_permits(2);
    assert_eq!(ask(&guard, &KEY, None).await, Ok(()));
    assert_eq!(ask(&guard, &KEY, None).await, Ok(()));
    let health = guard.health(NodeId(0));
    assert_eq!((health.breaker, health.in_flight), (BreakerState::Closed, 0));
}

#[tokio::test(start_paused = true)]
async fn callers_in_a_hurry_open_no_breaker_and_keep_none_open() {
    let guard = guard(Ok(()));
    let hurry = Some(TIMEOUT / 2);
    for _ in 0..50 {
        assert_eq!(ask(&guard, &KEY, hurry).await, Err(StoreError::Timeout));
    }
    let health = guard.health(NodeId(0));
    assert_eq!((health.breaker, health.opened), (BreakerState::Closed, 0));

    // Nor does one of them, as the probe, spoil it for the next call.
    for _ in 0..5 {
        assert_eq!(ask(&guard, &KEY, Some(TIMEOUT)).await, Err(StoreError::Timeout));
    }
    assert_eq!(guard.health(NodeId(0)).breaker, BreakerState::Open);
    guard.clock.advance(Micros::from_millis(200));
    assert_eq!(ask(&guard, &KEY, hurry).await, Err(StoreError::Timeout));
    guard.store.answers[0].add_permits(1);
    assert_eq!(ask(&guard, &KEY, None).await, Ok(()));
    assert_eq!(guard.health(NodeId(0)).breaker, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn errors_that_come_at_once_open_nothing() {
    let guard = guard(Err(StoreError::Refused));
    guard.store.answers[0].add_permits(100);
    for _ in 0..100 {
        assert_eq!(ask(&guard, &KEY, None).await, Err(StoreError::Refused));
        guard.clock.advance(Micros::from_millis(1));
    }
    assert_eq!(asked(&guard), 100);
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_nobody_waits_and_a_dropped_call_makes_room() {
    let guard = guard(Ok(()));
    let step = step();
    let mut waiting: Vec<_> =
        (0..IN_FLIGHT_MAX).map(|_| Box::pin(guard.apply(&KEY, &step))).collect();
    for call in &mut waiting {
        assert!(futures_util::poll!(call).is_pending());
    }
    assert_eq!(ask(&guard, &KEY, None).await, Err(StoreError::Busy));
    assert_eq!(guard.health(NodeId(0)).in_flight, IN_FLIGHT_MAX);
    guard.store.answers[1].add_permits(1);
    assert_eq!(ask(&guard, &OTHER, None).await, Ok(()), "the other part has its own bound");
    drop(waiting);
    assert_eq!(guard.health(NodeId(0)).in_flight, 0);
    guard.store.answers[0].add_permits(1);
    assert_eq!(ask(&guard, &KEY, None).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn forgetting_a_counter_waits_no_longer_than_a_decision() {
    let guard = guard(Ok(()));
    assert_eq!(guard.forget(&Key([1, 0])).await, Err(StoreError::Timeout));
    guard.store().answers[0].add_permits(1);
    assert_eq!(guard.forget(&Key([1, 0])).await, Ok(true));
}
