//! Denied hits that a counter has not heard of: it hears of them, whatever happens on the way.

use super::*;

/// An hour, so that all happens in one window.
fn hour(requests: u64) -> Limit {
    let limit = Limit::fixed_window(requests, Micros::from_secs(3_600));
    Limit { count_denied: true, ..limit }
}

fn step(limit: &Limit, hits: i64) -> Step {
    algorithm::plan(limit, hits, Micros::from_secs(7_200))
}

/// All that the store has heard of `key`.
fn heard(store: &Visited, key: &Key) -> u64 {
    let limit = hour(1_000);
    ask_memory(&store.memory, key, &limit, &step(&limit, 0)).used
}

#[test]
fn a_visit_that_did_not_happen_leaves_them_owed() {
    let (old, new) = (hour(0), hour(100));
    for (limit, hits) in [(&old, 0), (&old, -1), (&new, 1)] {
        let store = Visited::new();
        let (cached, key) = (cache(&store), key(1));
        for _ in 0..3 {
            assert!(!ask(&cached, &key, &old, &step(&old, 1)).allowed);
        }
        assert_eq!(heard(&store, &key), 1);
        store.refuses.store(true, Ordering::Relaxed);
        let refused = cached.apply(&key, &step(limit, hits)).now_or_never();
        assert_eq!(refused, Some(Err(StoreError::Unreachable)));
        store.refuses.store(false, Ordering::Relaxed);
        assert!(!ask(&cached, &key, &old, &step(&old, 1)).allowed);
        ask(&cached, &key, limit, &step(limit, hits));
        let expected = 4_u64.saturating_add_signed(hits);
        assert_eq!(heard(&store, &key), expected, "{hits} hits, {limit:?}");
    }
}

#[test]
fn what_makes_room_for_a_quiet_counter_is_told() {
    let (store, limit) = (Visited::new(), hour(0));
    let cached = cache(&store);
    for number in 1..=8 {
        for _ in 0..5 {
            assert!(!ask(&cached, &key(number), &limit, &step(&limit, 1)).allowed);
        }
    }
    let all = || (1..=8).map(|number| heard(&store, &key(number))).sum::<u64>();
    assert_eq!(all(), 8, "the first of each");
    cached.apply_detached(&key(9), step(&limit, -1));
    assert_eq!(all(), 12, "and the other four of the one that went");
}

#[test]
fn what_is_denied_while_hits_are_on_their_way_back_is_told() {
    for dropped in [true, false] {
        let (store, limit) = (Visited::new(), hour(1));
        let (cached, key) = (cache(&store), key(1));
        assert!(ask(&cached, &key, &limit, &step(&limit, 1)).allowed);
        let back = step(&limit, -1);
        store.held.store(true, Ordering::Relaxed);
        let mut giving = Box::pin(cached.apply(&key, &back));
        assert!((&mut giving).now_or_never().is_none());
        store.held.store(false, Ordering::Relaxed);
        assert!(ask_memory(&store.memory, &key, &limit, &step(&limit, 1)).allowed, "another's");
        for _ in 0..3 {
            assert!(!ask(&cached, &key, &limit, &step(&limit, 1)).allowed);
        }
        assert_eq!(heard(&store, &key), 2);
        if dropped {
            drop(giving);
        } else {
            store.heard.notify_one();
            giving.now_or_never().expect("heard").expect("answered");
        }
        assert_eq!(heard(&store, &key), 4, "dropped: {dropped}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_owed_and_the_step_share_one_deadline() {
    // The first visit leaves too little for the second, or enough.
    for (takes, timeout, result) in [
        (60, None, Err(StoreError::Timeout)),
        (40, None, Ok(())),
        (40, Some(60), Err(StoreError::Timeout)),
        (25, Some(60), Ok(())),
        (100, None, Err(StoreError::Timeout)),
    ] {
        for hits in [0, -1] {
            let store = Visited::slow(Duration::from_millis(takes));
            let (cached, limit) = (cache(&store), limit(Algorithm::FixedWindow, 0));
            let step = |hits| algorithm::plan(&limit, hits, Micros::from_secs(1_000));
            for _ in 0..2 {
                cached.apply(&key(1), &step(1)).await.expect("one visit has the time");
            }
            let before = tokio::time::Instant::now();
            let timeout = timeout.map(Duration::from_millis);
            let asked = cached.apply_within(&key(1), &step(hits), timeout).await;
            assert_eq!(asked.map(drop), result, "{takes} ms, {timeout:?}");
            let waited = before.elapsed();
            assert!(waited <= timeout.unwrap_or(TIMEOUT), "{takes}, {timeout:?}: {waited:?}");
        }
    }
}
