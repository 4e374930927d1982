//! Tests of single aspects: first requests, failures, unconfirmed calls, idleness, reloads.

use super::*;

#[test]
fn only_the_first_request_calls_the_store() {
    for algorithm in ALGORITHMS {
        let (shared, limit) = (shared(), limit(algorithm, 10));
        let (first, second) = (
            SyncedMode::new(shared.clone(), Arc::default()),
            SyncedMode::new(shared.clone(), Arc::default()),
        );
        for used in 1..=4 {
            assert_eq!(hit(&first, &limit, 1, START).unwrap().used, used, "{algorithm:?}");
        }
        assert_eq!(shared.take_calls(), 1);
        run_due(&first, START + INTERVAL.0);
        assert_eq!(shared.take_calls(), 1, "one exchange for three hits");
        // A new instance does not start from zero.
        let decision = hit(&second, &limit, 1, START + INTERVAL.0).unwrap();
        assert_eq!(decision, stored(&shared, &limit, START + INTERVAL.0), "{algorithm:?}");
        assert!(decision.used >= 4);
    }
}

#[test]
fn without_due_exchanges_there_are_no_calls() {
    let (shared, limit) = (shared(), limit(Algorithm::FixedWindow, 10));
    let synced = SyncedMode::new(shared.clone(), Arc::default());
    hit(&synced, &limit, 1, START).unwrap();
    shared.take_calls();
    for now in 0..INTERVAL.0 / 20_000 {
        run_due(&synced, START + now * 10_000);
    }
    assert_eq!(shared.take_calls(), 0);
}

/// A shortened interval and an exchange may schedule the same instant. Two exchanges at once would
/// count the hits of other instances twice.
#[test]
fn a_counter_that_is_due_twice_is_taken_once() {
    let (shared, limit) = (shared(), limit(Algorithm::FixedWindow, 10));
    let synced = SyncedMode::new(shared, Arc::default());
    hit(&synced, &limit, 1, START).unwrap();
    let due = synced.shard(&KEY)[&KEY].due.expect("an exchange is scheduled");
    synced.schedule(KEY, due);
    assert_eq!(synced.take_due(due), [KEY]);
}

#[test]
fn only_unapplied_counts_are_sent_again() {
    for algorithm in ALGORITHMS {
        for result in [ERROR_REPLY, LOST_BEFORE, LOST_AFTER, FakeResult::Applied] {
            let (shared, limit) = (shared(), limit(algorithm, 1_000_000));
            let (one, other) = (
                SyncedMode::new(shared.clone(), Arc::default()),
                SyncedMode::new(shared.clone(), Arc::default()),
            );
            hit(&one, &limit, 1, START).unwrap();
            hit(&one, &limit, 5, START).unwrap();
            hit(&other, &limit, 1, START).unwrap();
            shared.push_result(result);
            run_due(&one, START + INTERVAL.0);
            hit(&one, &limit, 3, START + INTERVAL.0).unwrap();
            // The other instance counts less than the unconfirmed hits, so the sums differ.
            hit(&other, &limit, 2, START).unwrap();
            run_due(&other, START + INTERVAL.0);
            run_due(&one, START + 3 * INTERVAL.0);
            let used = stored(&shared, &limit, START + 3 * INTERVAL.0).used;
            // A bucket of this rate has drained since.
            let counted = matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow);
            let hits = 1 + 5 + 1 + 3 + 2;
            let is_right = if counted { used == hits } else { used < hits };
            assert!(is_right, "{algorithm:?} {result:?}: {used}");
        }
    }
}

#[test]
fn ambiguous_counts_are_not_counted_twice() {
    let (shared, limit) = (shared(), limit(Algorithm::FixedWindow, 1_000));
    let (one, other) = (
        SyncedMode::new(shared.clone(), Arc::default()),
        SyncedMode::new(shared.clone(), Arc::default()),
    );
    hit(&one, &limit, 1, START).unwrap();
    hit(&one, &limit, 5, START).unwrap();
    shared.push_result(LOST_BEFORE);
    run_due(&one, START + INTERVAL.0);
    // As many hits as are unconfirmed, so both cases look the same.
    hit(&other, &limit, 5, START).unwrap();
    run_due(&one, START + 2 * INTERVAL.0);
    assert_eq!(stored(&shared, &limit, START).used, 6, "5 are lost to the others");
    assert_eq!(hit(&one, &limit, 0, START).unwrap().used, 6);
}

#[test]
fn an_unreachable_store_is_caught_up() {
    for algorithm in ALGORITHMS {
        let (shared, limit) = (shared(), limit(algorithm, 40));
        let (one, other) = (
            SyncedMode::new(shared.clone(), Arc::default()),
            SyncedMode::new(shared.clone(), Arc::default()),
        );
        for synced in [&one, &other] {
            hit(synced, &limit, 1, START).unwrap();
        }
        shared.set_reachable(false);
        for turn in 1..=20 {
            let now = START + turn * 250_000;
            for synced in [&one, &other] {
                assert!(hit(synced, &limit, 1, now).unwrap().allowed);
                run_due(synced, now);
            }
        }
        let new = hit_key(&one, &CounterKey([8, 8]), &limit, 1, START);
        assert_eq!(new, Err(StoreError::Unreachable), "a new counter has no replica");
        shared.set_reachable(true);
        for turn in 21..=26 {
            for synced in [&one, &other] {
                run_due(synced, START + turn * 250_000);
            }
        }
        let now = START + 26 * 250_000;
        let seen = [&one, &other].map(|synced| hit(synced, &limit, 0, now).unwrap());
        assert_eq!(seen, [stored(&shared, &limit, now); 2], "{algorithm:?}");
        let counted = matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow);
        // A bucket has drained meanwhile.
        let is_right = if counted { seen[0].used == 42 } else { seen[0].used < 42 };
        assert!(is_right, "{algorithm:?}: {}", seen[0].used);
    }
}

#[test]
fn replicas_are_bounded_and_idle_ones_removed() {
    let (shared, limit) = (shared(), limit(Algorithm::TokenBucket, 10));
    let synced = SyncedMode::new(shared.clone(), Arc::default());
    let key = |number: u64| CounterKey([number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number << 32]);
    for number in 0..80_000 {
        assert!(hit_key(&synced, &key(number), &limit, 1, START).unwrap().allowed);
    }
    assert_eq!(synced.replicas(), REPLICAS_MAX as u64);
    assert_eq!(shared.take_calls(), 80_000, "one call each");
    for turn in 1..=3 {
        run_due(&synced, START + turn * INTERVAL.0);
    }
    assert_eq!(synced.replicas(), 0);
    assert!(lock(&synced.due).is_empty());
    for number in 0..10 {
        assert!(hit_key(&synced, &key(number), &limit, 0, START).unwrap().allowed);
    }
    assert_eq!(synced.replicas(), 0, "a peek creates no replica");
}

#[test]
fn close_sends_all_counts() {
    let (shared, limit) = (shared(), limit(Algorithm::FixedWindow, 100));
    let synced = SyncedMode::new(shared.clone(), Arc::default());
    for _ in 0..5 {
        hit(&synced, &limit, 2, START).unwrap();
    }
    shared.push_result(LOST_AFTER);
    run_due(&synced, START + INTERVAL.0);
    hit(&synced, &limit, 3, START + INTERVAL.0).unwrap();
    let closed = synced.close(Micros(START + INTERVAL.0)).now_or_never();
    closed.expect("memory answers at once");
    assert_eq!(stored(&shared, &limit, START).used, 13);
}

#[test]
fn a_dropped_exchange_is_unconfirmed() {
    let (shared, limit) = (shared(), limit(Algorithm::FixedWindow, 100));
    let synced = SyncedMode::new(shared.clone(), Arc::default());
    hit(&synced, &limit, 1, START).unwrap();
    hit(&synced, &limit, 4, START).unwrap();
    // The exchange is dropped after its step was applied, before its outcome arrived.
    let now = Micros(START + INTERVAL.0);
    let call = synced.shard(&KEY).get_mut(&KEY).expect("kept").next_call(now, now);
    shared.memory.apply_now(&KEY, &call.step).expect("room");
    synced.close(now).now_or_never().expect("memory answers at once");
    assert_eq!(stored(&shared, &limit, START).used, 5);
}

#[test]
fn refunds_are_exchanged_and_stop_at_zero() {
    for algorithm in ALGORITHMS {
        let (shared, limit) = (shared(), limit(algorithm, 10));
        let (one, other) = (
            SyncedMode::new(shared.clone(), Arc::default()),
            SyncedMode::new(shared.clone(), Arc::default()),
        );
        hit(&one, &limit, 8, START).unwrap();
        hit(&other, &limit, 1, START).unwrap();
        assert_eq!(hit(&one, &limit, -3, START).unwrap().used, 5, "{algorithm:?}");
        one.apply_detached(&KEY, algorithm::plan(&limit, -2, Micros(START)));
        run_due(&one, START + INTERVAL.0);
        let one_sees = hit(&one, &limit, 0, START + INTERVAL.0).unwrap();
        assert_eq!(one_sees, stored(&shared, &limit, START + INTERVAL.0), "{algorithm:?}");
        assert!(one_sees.used <= 4, "{algorithm:?}");
        hit(&one, &limit, -100, START + INTERVAL.0).unwrap();
        run_due(&one, START + 2 * INTERVAL.0);
        assert_eq!(stored(&shared, &limit, START + 2 * INTERVAL.0).used, 0, "{algorithm:?}");
    }
}

#[test]
fn a_new_limit_or_mode_keeps_counts() {
    for algorithm in ALGORITHMS {
        let shared = shared();
        let synced = SyncedMode::new(shared.clone(), Arc::default());
        hit(&synced, &limit(algorithm, 10), 1, START).unwrap();
        hit(&synced, &limit(algorithm, 10), 6, START).unwrap();
        let lowered = hit(&synced, &limit(algorithm, 5), 1, START).unwrap();
        let counted = matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow);
        // A bucket of half the rate has the same level in time, but half as many hits.
        assert_eq!(lowered.allowed, !counted, "{algorithm:?}");
        assert!(hit(&synced, &limit(algorithm, 20), 1, START).unwrap().allowed);
        // The rule is exact from here on, so the replica is idle.
        let now = START + 10 * INTERVAL.0;
        for turn in 1..=10 {
            run_due(&synced, START + turn * INTERVAL.0);
        }
        assert_eq!(synced.replicas(), 0);
        let used = stored(&shared, &limit(algorithm, 20), now).used;
        // A bucket has 9.5 s of its 10 s filled, and drains for 5 s. A hit takes 0.5 s of it.
        let is_right = if counted { used == 8 } else { (1..=9).contains(&used) };
        assert!(is_right, "{algorithm:?}: {used}");
    }
}

#[test]
fn a_shorter_interval_applies_at_once() {
    let (shared, limit) = (shared(), limit(Algorithm::FixedWindow, 10));
    let synced = SyncedMode::new(shared.clone(), Arc::default());
    let hit = |interval| {
        let local = Micros(START);
        let (mode, now) = (Mode::Synced { interval }, Ok(local));
        #[rustfmt::skip]
        let check = CounterCheck {
            key: &KEY, limit: &limit, hits: 1, lease: None, mode, over_limit_cache: true,
            local_now: local, store_now: now, timeout: None,
        };
        synced.check(&check).now_or_never().expect("at once").expect("decided")
    };
    hit(Micros::from_secs(3_600));
    hit(Micros::from_millis(10));
    shared.take_calls();
    run_due(&synced, START + 10_000);
    assert_eq!(shared.take_calls(), 1);
}
