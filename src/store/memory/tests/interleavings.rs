//! Tests under a model checker that schedules threads at every lock and atomic, at random and by
//! priority.

use std::sync::Arc;

use shuttle::{check_pct, check_random, thread};

use super::*;
use crate::algorithm::plan;
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::{Lease, LeaseId};

const NOW: Micros = Micros::from_secs(1000);
const SCHEDULES: usize = 3000;

/// Runs `work` on three threads with one store, in many schedules, and checks the store afterwards.
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
        assert_consistent(&store);
    };
    check_random(run, SCHEDULES);
    check_pct(run, SCHEDULES, 3);
}

/// A limit of `requests` hits at one instant.
fn limit(algorithm: Algorithm, requests: u64) -> Limit {
    let tier = Tier { requests, window: Micros::from_secs(60), burst: requests, calendar: None };
    Limit { algorithm, tiers: Box::new([tier]), count_denied: false }
}

/// Key number `n` among the keys that, in a store of two shards, are not in the shard of key 0.
fn other_shard_key(n: u64) -> CounterKey {
    let half = |key: &CounterKey| key.0[1] >> 63;
    let mut others = (1000..).map(key).filter(|other| half(other) != half(&key(0)));
    others.nth(n as usize).expect("every other key is there")
}

#[test]
fn a_limit_is_exact_beside_sweeps_and_evictions() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::TokenBucket, Algorithm::Concurrency] {
        on_threads(
            || split(MemoryStore::new(3)),
            move |store, thread| {
                let mut admitted = 0;
                for turn in 0..3 {
                    let step = plan(&limit(algorithm, 5), 1, NOW);
                    admitted += u64::from(store.apply_now(&key(0), &step).unwrap().allowed);
                    let now = if turn == 0 { Micros::from_secs(900) } else { NOW };
                    let other = other_shard_key(3 * thread + turn);
                    store.apply_now(&other, &count(now, 1, 1000)).unwrap();
                    if thread == 0 {
                        store.sweep(NOW, 256);
                    }
                }
                admitted
            },
            |store, admitted| {
                assert_eq!(admitted, 5);
                // Nine other counters were added, and two remain.
                let stats = store.snapshot();
                assert_eq!((stats.counters, stats.evicted + stats.reclaimed), (3, 7));
            },
        );
    }
}

#[test]
fn a_slot_has_one_holder_at_a_time() {
    on_threads(
        || MemoryStore::new(512),
        |store, thread| {
            let (limit, mut granted) = (limit(Algorithm::Concurrency, 2), 0);
            for turn in 0..2 {
                let id = LeaseId::from_bits(10 * thread + turn + 1);
                let held = |hits, lease| {
                    let step = plan(&limit, hits, NOW).with_lease(lease);
                    let outcome = store.apply_now(&key(0), &step).unwrap();
                    outcome.allowed.then_some(outcome.tiers[0].units().0)
                };
                if let Some(after) = held(1, Lease::Open { id, until: NOW }) {
                    granted += 1;
                    assert!((1..=2).contains(&after));
                    assert!((0..=1).contains(&held(-1, Lease::Close(id)).unwrap()));
                }
                // A second release, or one without a slot, frees no other slot.
                held(-1, Lease::Close(id));
            }
            granted
        },
        |store, granted| {
            assert!(granted >= 3);
            let peek = plan(&limit(Algorithm::Concurrency, 2), 0, NOW);
            assert_eq!(store.apply_now(&key(0), &peek).unwrap().tiers[0].units().0, 0);
        },
    );
}

#[test]
fn the_bound_holds_under_concurrent_eviction() {
    on_threads(
        || two_shards(3),
        |store, thread| {
            for n in 0..4 {
                // The step fails if all other counters are at their limit; this test is about the
                // bound.
                let params = if n % 2 == 0 { count } else { log };
                let _ = store.apply_now(&key(10 * thread + n), &params(NOW, n as i64, 3));
                assert!(store.snapshot().counters <= 3);
            }
            0
        },
        |store, _| assert!(store.snapshot().counters <= 3),
    );
}

#[test]
fn a_limited_client_stays_limited_in_a_flood() {
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

fn two_shards(max_counters: usize) -> MemoryStore {
    split(MemoryStore::with_large_bytes(max_counters, 300))
}

/// A store so small that a shard must evict from the other one.
fn split(mut store: MemoryStore) -> MemoryStore {
    store.shards = (0..2).map(|_| PaddedShard(Mutex::new(MemoryShard::new()))).collect();
    store
}
