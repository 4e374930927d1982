//! The store under a scheduler that picks, at random and with priorities, who runs at each lock and
//! each atomic.

use std::sync::Arc;

use shuttle::{check_pct, check_random, thread};

use super::*;

const NOW: Micros = Micros::from_secs(1000);
const SCHEDULES: usize = 3000;

/// Lets three threads do `work` on one store, in many schedules, and audits what they leave.
fn on_threads(
    new: impl Fn() -> MemoryStore + Send + Sync + Copy + 'static,
    work: impl Fn(&MemoryStore, u64) -> u64 + Send + Sync + Copy + 'static,
    check: impl Fn(&MemoryStore, u64) + Send + Sync + Copy + 'static,
) {
    let run = move || {
        let store = Arc::new(new());
        let spawned: Vec<_> = (0..3)
            .map(|thread| {
                let store = Arc::clone(&store);
                thread::spawn(move || work(&store, thread))
            })
            .collect();
        let sum = spawned.into_iter().map(|thread| thread.join().unwrap()).sum();
        check(&store, sum);
        audit(&store);
    };
    check_random(run, SCHEDULES);
    check_pct(run, SCHEDULES, 3);
}

#[test]
fn a_limit_admits_exactly_its_hits() {
    on_threads(
        || MemoryStore::new(512),
        |store, thread| {
            store.sweep(NOW, 128);
            let mut admitted = 0;
            for _ in 0..3 {
                let outcome = store.apply_now(&key(0), &count(NOW, 1, 5)).unwrap();
                admitted += u64::from(outcome.allowed);
            }
            store.remove(&key(100 + thread));
            admitted
        },
        |_, admitted| assert_eq!(admitted, 5),
    );
}

#[test]
fn the_bound_holds_while_threads_evict_each_others_counters() {
    on_threads(
        || two_shards(3),
        |store, thread| {
            for n in 0..4 {
                // Where all others are limited it is refused; the bound is what counts here.
                let machine = if n % 2 == 0 { count } else { log };
                let _ = store.apply_now(&key(10 * thread + n), &machine(NOW, n as i64, 3));
                assert!(store.stats().counters <= 3);
            }
            0
        },
        |store, _| assert!(store.stats().counters <= 3),
    );
}

#[test]
fn a_limited_client_stays_limited_while_others_flood() {
    on_threads(
        || {
            let store = two_shards(2);
            store.apply_now(&key(0), &count(NOW, 2, 2)).unwrap();
            store
        },
        |store, thread| {
            for n in 1..4 {
                let _ = store.apply_now(&key(10 * thread + n), &count(NOW, 1, 2));
            }
            u64::from(store.apply_now(&key(0), &count(NOW, 1, 2)).unwrap().allowed)
        },
        |_, admitted| assert_eq!(admitted, 0),
    );
}

/// A store of fewer counters than would give it two shards, so that they must ask each other.
fn two_shards(max_counters: usize) -> MemoryStore {
    let mut store = MemoryStore::with_large_bytes(max_counters, 300);
    store.shards = (0..2).map(|_| Slot(Mutex::new(Shard::new()))).collect();
    store
}
