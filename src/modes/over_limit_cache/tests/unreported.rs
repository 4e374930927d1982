//! Tests of unreported denied hits: the counter gets them even if calls fail.

use super::*;

/// A limit per hour, so that every test stays in one window.
fn hour(requests: u64) -> Limit {
    let limit = Limit::fixed_window(requests, Micros::from_secs(3_600));
    Limit { count_denied: true, ..limit }
}

fn step(limit: &Limit, hits: i64) -> Step {
    algorithm::plan(limit, hits, Micros::from_secs(7_200))
}

/// The hits that the store has counted for `key`.
fn counted(store: &FakeStore, key: &CounterKey) -> u64 {
    let limit = hour(1_000);
    check_memory(&store.memory, key, &limit, &step(&limit, 0)).used
}

#[test]
fn a_failed_call_keeps_them_unreported() {
    let (old, new) = (hour(0), hour(100));
    for (limit, hits) in [(&old, 0), (&old, -1), (&new, 1)] {
        let store = fake();
        let (cached, key) = (cache(&store), key(1));
        for _ in 0..3 {
            assert!(!check(&cached, &key, &old, &step(&old, 1)).allowed);
        }
        assert_eq!(counted(&store, &key), 1);
        store.set_result(FakeResult::Rejected(StoreError::Unreachable));
        let refused = cached.apply(&key, &step(limit, hits)).now_or_never();
        assert_eq!(refused, Some(Err(StoreError::Unreachable)));
        store.set_result(FakeResult::Applied);
        assert!(!check(&cached, &key, &old, &step(&old, 1)).allowed);
        check(&cached, &key, limit, &step(limit, hits));
        let expected = 4_u64.saturating_add_signed(hits);
        assert_eq!(counted(&store, &key), expected, "{hits} hits, {limit:?}");
    }
}

#[test]
fn an_evicted_entry_is_reported() {
    let (store, limit) = (fake(), hour(0));
    let cached = cache(&store);
    for number in 1..=8 {
        for _ in 0..5 {
            assert!(!check(&cached, &key(number), &limit, &step(&limit, 1)).allowed);
        }
    }
    let all = || (1..=8).map(|number| counted(&store, &key(number))).sum::<u64>();
    assert_eq!(all(), 8, "the first of each");
    cached.apply_detached(&key(9), step(&limit, -1));
    assert_eq!(all(), 12, "and the other four of the evicted one");
}

#[test]
fn hits_denied_during_a_refund_are_reported() {
    for dropped in [true, false] {
        let (store, limit) = (fake(), hour(1));
        let (cached, key) = (cache(&store), key(1));
        assert!(check(&cached, &key, &limit, &step(&limit, 1)).allowed);
        let back = step(&limit, -1);
        store.set_held(true);
        let mut giving = Box::pin(cached.apply(&key, &back));
        assert!((&mut giving).now_or_never().is_none());
        store.set_held(false);
        assert!(
            check_memory(&store.memory, &key, &limit, &step(&limit, 1)).allowed,
            "another instance's hit"
        );
        for _ in 0..3 {
            assert!(!check(&cached, &key, &limit, &step(&limit, 1)).allowed);
        }
        assert_eq!(counted(&store, &key), 2);
        if dropped {
            drop(giving);
        } else {
            store.release(0, 1);
            giving.now_or_never().expect("released").expect("an outcome");
        }
        assert_eq!(counted(&store, &key), 4, "dropped: {dropped}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_report_and_the_step_share_a_timeout() {
    // The report leaves too little time for the step, or enough.
    for (takes, timeout, result) in [
        (60, None, Err(StoreError::Timeout)),
        (40, None, Ok(())),
        (40, Some(60), Err(StoreError::Timeout)),
        (25, Some(60), Ok(())),
        (100, None, Err(StoreError::Timeout)),
    ] {
        for hits in [0, -1] {
            let takes = Duration::from_millis(takes);
            let store = Arc::new(FakeStore::new().taking(takes, Some(TIMEOUT)));
            let (cached, limit) = (cache(&store), limit(Algorithm::FixedWindow, 0));
            let step = |hits| algorithm::plan(&limit, hits, Micros::from_secs(1_000));
            for _ in 0..2 {
                cached.apply(&key(1), &step(1)).await.expect("there is time for one call");
            }
            let before = tokio::time::Instant::now();
            let timeout = timeout.map(Duration::from_millis);
            let actual = cached.apply_within(&key(1), &step(hits), timeout).await;
            assert_eq!(actual.map(drop), result, "{takes:?}, {timeout:?}");
            let waited = before.elapsed();
            assert!(waited <= timeout.unwrap_or(TIMEOUT), "{takes:?}, {timeout:?}: {waited:?}");
        }
    }
}

/// A report that takes the whole timeout leaves none for hits that return. They are sent without waiting.
#[tokio::test(start_paused = true)]
async fn hits_return_after_a_late_report() {
    let store = Arc::new(FakeStore::new().taking(TIMEOUT, Some(TIMEOUT)));
    let (cached, limit) = (cache(&store), hour(0));
    for _ in 0..3 {
        cached.apply(&key(1), &step(&limit, 1)).await.expect("there is time for one call");
    }
    assert_eq!(counted(&store, &key(1)), 1, "two denials are unreported");
    let result = cached.apply(&key(1), &step(&limit, -2)).await;
    assert_eq!(result.map(drop), Err(StoreError::Timeout));
    assert_eq!(counted(&store, &key(1)), 1, "three were denied, and two returned");
}
