//! One thing at a time: first sight, failures, doubts, idleness, reloads.

use super::*;

#[test]
fn the_first_request_visits_the_store_and_the_next_ones_do_not() {
    for algorithm in ALGORITHMS {
        let (shared, limit) = (Shared::new(), limit(algorithm, 10));
        let (first, second) = (SyncedPath::new(shared.clone()), SyncedPath::new(shared.clone()));
        for used in 1..=4 {
            assert_eq!(ask(&first, &limit, 1, START).unwrap().used, used, "{algorithm:?}");
        }
        assert_eq!(shared.visits(), 1);
        run_due(&first, START + INTERVAL.0);
        assert_eq!(shared.visits(), 1, "one exchange for three hits");
        // A new instance does not start from zero.
        let decision = ask(&second, &limit, 1, START + INTERVAL.0).unwrap();
        assert_eq!(decision, stored(&shared, &limit, START + INTERVAL.0), "{algorithm:?}");
        assert!(decision.used >= 4);
    }
}

#[test]
fn a_tick_with_nothing_due_asks_nothing() {
    let (shared, limit) = (Shared::new(), limit(Algorithm::FixedWindow, 10));
    let synced = SyncedPath::new(shared.clone());
    ask(&synced, &limit, 1, START).unwrap();
    shared.visits();
    for now in 0..INTERVAL.0 / 20_000 {
        run_due(&synced, START + now * 10_000);
    }
    assert_eq!(shared.visits(), 0);
}

#[test]
fn what_certainly_did_not_arrive_is_sent_again_and_what_arrived_is_not() {
    for algorithm in ALGORITHMS {
        for fate in [Fate::Refused, Fate::LostBefore, Fate::LostAfter, Fate::Answered] {
            let (shared, limit) = (Shared::new(), limit(algorithm, 1_000_000));
            let (one, other) = (SyncedPath::new(shared.clone()), SyncedPath::new(shared.clone()));
            ask(&one, &limit, 1, START).unwrap();
            ask(&one, &limit, 5, START).unwrap();
            ask(&other, &limit, 1, START).unwrap();
            shared.meet(fate);
            run_due(&one, START + INTERVAL.0);
            ask(&one, &limit, 3, START + INTERVAL.0).unwrap();
            // The other one counts less than what is in doubt, so the number tells.
            ask(&other, &limit, 2, START).unwrap();
            run_due(&other, START + INTERVAL.0);
            run_due(&one, START + 3 * INTERVAL.0);
            let used = stored(&shared, &limit, START + 3 * INTERVAL.0).used;
            // A bucket of a million a window has drained meanwhile.
            let counted = matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow);
            assert!(!counted || used == 1 + 5 + 1 + 3 + 2, "{algorithm:?} {fate:?}: {used}");
        }
    }
}

#[test]
fn what_redis_cannot_tell_is_not_counted_twice() {
    let (shared, limit) = (Shared::new(), limit(Algorithm::FixedWindow, 1_000));
    let (one, other) = (SyncedPath::new(shared.clone()), SyncedPath::new(shared.clone()));
    ask(&one, &limit, 1, START).unwrap();
    ask(&one, &limit, 5, START).unwrap();
    shared.meet(Fate::LostBefore);
    run_due(&one, START + INTERVAL.0);
    // As many as are in doubt: their arrival and these look alike.
    ask(&other, &limit, 5, START).unwrap();
    run_due(&one, START + 2 * INTERVAL.0);
    assert_eq!(stored(&shared, &limit, START).used, 6, "5 are lost to the others");
    assert_eq!(ask(&one, &limit, 0, START).unwrap().used, 6);
}

#[test]
fn with_the_store_away_it_goes_on_and_catches_up() {
    for algorithm in ALGORITHMS {
        let (shared, limit) = (Shared::new(), limit(algorithm, 40));
        let (one, other) = (SyncedPath::new(shared.clone()), SyncedPath::new(shared.clone()));
        for synced in [&one, &other] {
            ask(synced, &limit, 1, START).unwrap();
        }
        shared.away.store(true, Ordering::Relaxed);
        for turn in 1..=20 {
            let now = START + turn * 250_000;
            for synced in [&one, &other] {
                assert!(ask(synced, &limit, 1, now).unwrap().allowed);
                run_due(synced, now);
            }
        }
        let stranger = Key([8, 8]);
        let never = ask_for(&one, &stranger, &limit, 1, START);
        assert_eq!(never, Err(StoreError::Unreachable), "what was never seen has no copy");
        shared.away.store(false, Ordering::Relaxed);
        for turn in 21..=26 {
            for synced in [&one, &other] {
                run_due(synced, START + turn * 250_000);
            }
        }
        let now = START + 26 * 250_000;
        let seen = [&one, &other].map(|synced| ask(synced, &limit, 0, now).unwrap());
        assert_eq!(seen, [stored(&shared, &limit, now); 2], "{algorithm:?}");
        let counted = matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow);
        assert!(!counted || seen[0].used == 42, "{algorithm:?}: {}", seen[0].used);
    }
}

#[test]
fn idle_copies_go_and_floods_of_keys_do_not_grow_the_table() {
    let (shared, limit) = (Shared::new(), limit(Algorithm::TokenBucket, 10));
    let synced = SyncedPath::new(shared.clone());
    let key = |number: u64| Key([number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number << 32]);
    for number in 0..80_000 {
        assert!(ask_for(&synced, &key(number), &limit, 1, START).unwrap().allowed);
    }
    assert_eq!(synced.replicas(), (SHARDS * REPLICAS_MAX) as u64);
    assert_eq!(shared.visits(), 80_000, "each was asked of the store");
    for turn in 1..=3 {
        run_due(&synced, START + turn * INTERVAL.0);
    }
    assert_eq!(synced.replicas(), 0);
    assert!(lock(&synced.due).is_empty());
    for number in 0..10 {
        assert!(ask_for(&synced, &key(number), &limit, 0, START).unwrap().allowed);
    }
    assert_eq!(synced.replicas(), 0, "a look leaves nothing");
}

#[test]
fn the_end_of_the_process_brings_everything_to_the_store() {
    let (shared, limit) = (Shared::new(), limit(Algorithm::FixedWindow, 100));
    let synced = SyncedPath::new(shared.clone());
    for _ in 0..5 {
        ask(&synced, &limit, 2, START).unwrap();
    }
    shared.meet(Fate::LostAfter);
    run_due(&synced, START + INTERVAL.0);
    ask(&synced, &limit, 3, START + INTERVAL.0).unwrap();
    let closed = synced.close(Micros(START + INTERVAL.0)).now_or_never();
    closed.expect("memory answers at once");
    assert_eq!(stored(&shared, &limit, START).used, 13);
}

#[test]
fn an_exchange_that_is_dropped_on_its_way_is_a_doubt() {
    let (shared, limit) = (Shared::new(), limit(Algorithm::FixedWindow, 100));
    let synced = SyncedPath::new(shared.clone());
    ask(&synced, &limit, 1, START).unwrap();
    ask(&synced, &limit, 4, START).unwrap();
    // As far as an exchange gets that nobody waits for any more: it ran, and nobody heard.
    let now = Micros(START + INTERVAL.0);
    let visit = synced.shard(&KEY).get_mut(&KEY).expect("kept").visit(now, now);
    shared.memory.apply_now(&KEY, &visit.step).expect("room");
    synced.close(now).now_or_never().expect("memory answers at once");
    assert_eq!(stored(&shared, &limit, START).used, 5);
}

#[test]
fn refunds_are_exchanged_too_and_never_go_below_nothing() {
    for algorithm in ALGORITHMS {
        let (shared, limit) = (Shared::new(), limit(algorithm, 10));
        let (one, other) = (SyncedPath::new(shared.clone()), SyncedPath::new(shared.clone()));
        ask(&one, &limit, 8, START).unwrap();
        ask(&other, &limit, 1, START).unwrap();
        assert_eq!(ask(&one, &limit, -3, START).unwrap().used, 5, "{algorithm:?}");
        one.apply_detached(&KEY, algorithm::plan(&limit, -2, Micros(START)));
        run_due(&one, START + INTERVAL.0);
        let one_sees = ask(&one, &limit, 0, START + INTERVAL.0).unwrap();
        assert_eq!(one_sees, stored(&shared, &limit, START + INTERVAL.0), "{algorithm:?}");
        assert!(one_sees.used <= 4, "{algorithm:?}");
        ask(&one, &limit, -100, START + INTERVAL.0).unwrap();
        run_due(&one, START + 2 * INTERVAL.0);
        assert_eq!(stored(&shared, &limit, START + 2 * INTERVAL.0).used, 0, "{algorithm:?}");
    }
}

#[test]
fn another_limit_keeps_the_counts_and_another_mode_loses_none() {
    for algorithm in ALGORITHMS {
        let shared = Shared::new();
        let synced = SyncedPath::new(shared.clone());
        ask(&synced, &limit(algorithm, 10), 1, START).unwrap();
        ask(&synced, &limit(algorithm, 10), 6, START).unwrap();
        let lowered = ask(&synced, &limit(algorithm, 5), 1, START).unwrap();
        let counted = matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow);
        // A bucket of half the rate is as full of time, but of half as many hits.
        assert!(!counted || !lowered.allowed, "{algorithm:?}");
        assert!(ask(&synced, &limit(algorithm, 20), 1, START).unwrap().allowed);
        // The rule is exact from here on, and nobody asks the copy any more.
        let now = START + 10 * INTERVAL.0;
        for turn in 1..=10 {
            run_due(&synced, START + turn * INTERVAL.0);
        }
        assert_eq!(synced.replicas(), 0);
        let used = stored(&shared, &limit(algorithm, 20), now).used;
        assert!(!counted || used == 8, "{algorithm:?}: {used}");
    }
}

#[test]
fn a_shorter_interval_is_heeded_at_once() {
    let (shared, limit) = (Shared::new(), limit(Algorithm::FixedWindow, 10));
    let synced = SyncedPath::new(shared.clone());
    let ask = |interval| {
        let local = Micros(START);
        let (mode, now) = (Mode::Synced { interval }, Ok(local));
        #[rustfmt::skip]
        let check = CounterCheck {
            key: &KEY, limit: &limit, hits: 1, lease: None, mode, over_limit_cache: true, local,
            now, timeout: None,
        };
        synced.check(&check).now_or_never().expect("at once").expect("decided")
    };
    ask(Micros::from_secs(3_600));
    ask(Micros::from_millis(10));
    shared.visits();
    run_due(&synced, START + 10_000);
    assert_eq!(shared.visits(), 1);
}
