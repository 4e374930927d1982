//! The store under a scheduler that picks, at random and with priorities, who runs at each lock and
//! each atomic.

use std::sync::Arc;

use shuttle::{check_pct, check_random, thread};

use super::*;
use crate::algorithm::plan;
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::{Lease, LeaseId};

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

/// A limit that lets `requests` hits pass at one instant.
fn limit(algorithm: Algorithm, requests: u64) -> Limit {
    let tier = Tier { requests, window: Micros::from_secs(60), burst: requests };
    Limit { algorithm, tiers: Box::new([tier]), count_denied: false }
}

/// Key number `n` of those that are not in the shard of key 0, if there are two.
fn elsewhere(n: u64) -> Key {
    let half = |key: &Key| key.0[1] >> 63;
    let mut others = (1000..).map(key).filter(|other| half(other) != half(&key(0)));
    others.nth(n as usize).expect("every other key is there")
}

#[test]
fn a_counter_admits_exactly_its_limit_while_others_are_swept_and_evicted() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::TokenBucket, Algorithm::Concurrency] {
        on_threads(
            || split(MemoryStore::new(3)),
            move |store, thread| {
                let mut admitted = 0;
                for turn in 0..3 {
                    let step = plan(&limit(algorithm, 5), 1, NOW);
                    admitted += u64::from(store.apply_now(&key(0), &step).unwrap().allowed);
                    let now = if turn == 0 { Micros::from_secs(900) } else { NOW };
                    let other = elsewhere(3 * thread + turn);
                    store.apply_now(&other, &count(now, 1, 1000)).unwrap();
                    if thread == 0 {
                        store.sweep(NOW, 256);
                    }
                }
                admitted
            },
            |store, admitted| {
                assert_eq!(admitted, 5);
                // Nine others have come, and two are left.
                let stats = store.stats();
                assert_eq!((stats.counters, stats.evicted + stats.reclaimed), (3, 7));
            },
        );
    }
}

#[test]
fn a_slot_is_its_holders_own_until_it_is_given_back() {
    on_threads(
        || MemoryStore::new(512),
        |store, thread| {
            let (limit, mut granted) = (limit(Algorithm::Concurrency, 2), 0);
            for turn in 0..2 {
                let id = LeaseId::from_bits(10 * thread + turn + 1);
                let held = |hits, lease| {
                    let step = plan(&limit, hits, NOW).leased(lease);
                    let outcome = store.apply_now(&key(0), &step).unwrap();
                    outcome.allowed.then_some(outcome.tiers[0].a)
                };
                if let Some(after) = held(1, Lease::Open { id, until: NOW }) {
                    granted += 1;
                    assert!((1..=2).contains(&after));
                    assert!((0..=1).contains(&held(-1, Lease::Close(id)).unwrap()));
                }
                // Given back a second time, or never taken: nobody else's slot goes.
                held(-1, Lease::Close(id));
            }
            granted
        },
        |store, granted| {
            assert!(granted >= 3);
            let peek = plan(&limit(Algorithm::Concurrency, 2), 0, NOW);
            assert_eq!(store.apply_now(&key(0), &peek).unwrap().tiers[0].a, 0);
        },
    );
}

#[test]
fn the_bound_holds_while_threads_evict_each_others_counters() {
    on_threads(
        || two_shards(3),
        |store, thread| {
            for n in 0..4 {
                // Where all others are limited it is refused; the bound is what counts here.
                let params = if n % 2 == 0 { count } else { log };
                let _ = store.apply_now(&key(10 * thread + n), &params(NOW, n as i64, 3));
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

fn two_shards(max_counters: usize) -> MemoryStore {
    split(MemoryStore::with_large_bytes(max_counters, 300))
}

/// A store of fewer counters than would give it two shards, so that they must ask each other.
fn split(mut store: MemoryStore) -> MemoryStore {
    store.shards = (0..2).map(|_| PaddedShard(Mutex::new(Shard::new()))).collect();
    store
}
