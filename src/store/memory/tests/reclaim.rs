//! Tests of expiry: expired counters and their memory are freed.

use super::*;

/// An instant in a minute that ends at 1020 s.
const NOW: Micros = Micros::from_secs(1000);

fn fill(store: &MemoryStore, numbers: std::ops::Range<u64>, now: Micros) {
    for n in numbers {
        store.apply_now(&key(n), &count(now, 1, 10)).unwrap();
    }
}

#[test]
fn new_counters_alone_remove_all_expired_ones() {
    let store = MemoryStore::new(100_000);
    fill(&store, 0..20_000, NOW);
    fill(&store, 20_000..41_000, Micros::from_secs(1022));
    assert_eq!(store.snapshot().reclaimed, 20_000);
    assert_eq!(store.snapshot().counters, 21_000);
    assert_consistent(&store);
}

#[test]
fn a_sweep_frees_expired_counters() {
    let store = MemoryStore::new(100_000);
    fill(&store, 0..50_000, NOW);
    for n in 50_000..60_000 {
        store.apply_now(&key(n), &log(NOW, 3, 10)).unwrap();
    }
    fill(&store, 60_000..60_100, Micros::from_secs(1080));
    for _ in 0..60_100_usize.div_ceil(1000) * 2 {
        store.sweep(Micros::from_secs(1080), 1000);
    }
    let stats = store.snapshot();
    assert_eq!((stats.reclaimed, stats.counters, stats.large_bytes), (60_000, 100, 0));
    for number in 0..store.shards.len() {
        let shard = store.lock(number);
        let len = shard.slab.len() as usize;
        assert!(shard.slab.capacity() <= len + 128, "{len} in {}", shard.slab.capacity());
        assert!(shard.index.cells() <= 16.max(4 * len + 4), "{len} in {}", shard.index.cells());
    }
    assert_consistent(&store);
}

#[test]
fn a_counter_stays_a_second_after_its_expiry() {
    let store = MemoryStore::new(10);
    fill(&store, 0..1, NOW);
    assert_eq!(store.sweep(Micros(1_020_999_999), 1000), 0);
    assert_eq!(store.sweep(Micros(1_021_000_000), 1000), 1);
}

#[test]
fn a_sweep_stays_within_its_budget() {
    let store = MemoryStore::new(100_000);
    fill(&store, 0..100_000, NOW);
    let swept = store.sweep(Micros::from_secs(2000), 1280);
    assert_eq!(swept, 1280);
}
