//! Tests of eviction: which counter is evicted when the store is full.

use super::*;

const NOW: Micros = Micros::from_secs(1000);

#[test]
fn a_key_flood_resets_no_limited_client() {
    let store = MemoryStore::new(1000);
    for client in 0..300 {
        store.apply_now(&key(client), &count(NOW, 5, 5)).unwrap();
    }
    for flood in 1000..30_000 {
        store.apply_now(&key(flood), &count(NOW, 1, 100)).unwrap();
        assert!(store.snapshot().counters <= 1000);
    }
    for client in 0..300 {
        let outcome = store.apply_now(&key(client), &count(NOW, 1, 5)).unwrap();
        assert!(!outcome.allowed, "client {client} was reset");
    }
    let stats = store.snapshot();
    assert_eq!((stats.counters, stats.evicted), (1000, 300 + 29_000 - 1000));
    assert_consistent(&store);
}

#[test]
fn a_store_full_of_limited_clients_rejects_others() {
    let store = MemoryStore::new(500);
    for client in 0..500 {
        store.apply_now(&key(client), &count(NOW, 1, 1)).unwrap();
    }
    let newcomer = key(1000);
    assert_eq!(store.apply_now(&newcomer, &count(NOW, 1, 1)), Err(StoreError::MemoryFull));
    assert!(store.apply_now(&newcomer, &count(NOW, 0, 1)).unwrap().allowed, "a peek needs no room");
    for client in 0..500 {
        assert!(!store.apply_now(&key(client), &count(NOW, 1, 1)).unwrap().allowed);
    }
    let stats = store.snapshot();
    assert_eq!((stats.counters, stats.refused, stats.evicted), (500, 1, 0));

    // In the next minute every client has room again, so any counter may be evicted.
    let later = Micros::from_secs(1020);
    assert!(store.apply_now(&newcomer, &count(later, 1, 1)).unwrap().allowed);
    assert_eq!(store.snapshot().counters, 500);
}

#[test]
fn eviction_order_is_expired_emptiest_soonest() {
    let store = MemoryStore::new(4);
    let fill = |n, step: &Step| drop(store.apply_now(&key(n), step).unwrap());
    let expiring = Micros::from_secs(1019);
    fill(0, &count_per(60, expiring, 9, 10)); // full, but only until 1020
    fill(1, &count_per(3600, expiring, 2, 10));
    fill(2, &count_per(7200, expiring, 1, 10));
    fill(3, &count_per(3600, expiring, 1, 10));
    let now = Micros::from_secs(1020);
    for (newcomer, gone) in [(4, 0), (5, 3), (6, 2), (7, 1)] {
        assert!(store.get(&key(gone)).is_some());
        fill(newcomer, &count_per(3600, now, 5, 10));
        assert_eq!(store.get(&key(gone)), None, "newcomer {newcomer} replaces {gone}");
        assert_eq!(store.snapshot().counters, 4);
    }
}

#[test]
fn a_flood_evicts_mostly_its_own_counters() {
    let store = MemoryStore::new(10_000);
    for client in 0..5000 {
        store.apply_now(&key(client), &count(NOW, 50, 100)).unwrap();
    }
    for flood in 10_000..100_000 {
        store.apply_now(&key(flood), &count(NOW, 1, 100)).unwrap();
    }
    // Half of each sample are flood counters. All eight are clients once in 256 times, and less
    // often the fewer clients remain.
    let kept = (0..5000).filter(|&client| store.get(&key(client)).is_some()).count();
    assert!(kept > 4000, "{kept} of 5000 clients kept");
}
