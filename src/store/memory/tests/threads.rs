//! Tests of one store under many threads.

use std::thread;

use super::*;

const THREADS: u64 = 4;

/// Runs `work` on `THREADS` threads, each with its number.
fn on_threads(work: impl Fn(u64) + Sync) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
}

/// All threads hit all keys of a round, while other keys are created, expire and are swept.
#[test]
fn a_limit_is_exact_across_threads() {
    let (keys, rounds, max) = (8, 50, 20);
    let store = MemoryStore::new(100_000);
    let admitted: Vec<AtomicUsize> = (0..keys * rounds).map(|_| AtomicUsize::new(0)).collect();
    on_threads(|thread| {
        for round in 0..rounds {
            let now = Micros::from_secs(1_000_000 + round);
            let early = Micros::from_secs(1000 + 60 * round);
            for turn in 0..max {
                for n in (0..keys).map(|n| round * keys + (n + thread) % keys) {
                    let outcome = store.apply_now(&key(n), &count_per(3600, now, 1, max)).unwrap();
                    admitted[n as usize].fetch_add(usize::from(outcome.allowed), Ordering::SeqCst);
                }
                let other = 1_000_000 + (round * max + turn) * THREADS + thread;
                store.apply_now(&key(other), &count(early, 1, 10)).unwrap();
                store.sweep(now, 128);
            }
        }
    });
    for (n, admitted) in admitted.iter().enumerate() {
        assert_eq!(admitted.load(Ordering::SeqCst), max as usize, "key {n}");
    }
    assert!(store.snapshot().reclaimed > 0);
    assert_consistent(&store);
}

#[test]
fn concurrent_eviction_keeps_the_bound() {
    let store = MemoryStore::with_large_bytes(600, 100_000);
    on_threads(|thread| {
        for n in 0..20_000 {
            let key = key(n % 3 * 100_000 + n * THREADS + thread);
            let now = Micros::from_secs(1000);
            let step = if n % 3 == 0 { log(now, 2, 100) } else { count(now, 1, 100) };
            store.apply_now(&key, &step).unwrap();
            assert!(store.snapshot().counters <= 600);
        }
    });
    assert_eq!(store.snapshot().counters, 600);
    assert_consistent(&store);
}

#[test]
fn the_store_survives_a_panic_under_the_lock() {
    let store = MemoryStore::new(10);
    let step = count(Micros::from_secs(1000), 1, 1);
    assert!(store.apply_now(&key(1), &step).unwrap().allowed);
    let panicked = thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _lock = store.lock(0);
            panic!("on purpose");
        });
        holder.join().is_err()
    });
    assert!(panicked);
    assert!(!store.apply_now(&key(1), &step).unwrap().allowed);
}
