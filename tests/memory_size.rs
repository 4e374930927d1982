//! The memory bound: measures the resident bytes per counter of the memory store.
//!
//! This binary has a single test, because the test reads the resident memory of the whole process.

#[path = "support/resident.rs"]
mod resident;

use std::ops::Range;

use resident::resident_kib;
use smallvec::smallvec;
use weir::key::CounterKey;
use weir::step::{EntriesTier, FixedWindowTier, Step, StepParams};
use weir::store::MemoryStore;
use weir::time::Micros;

/// The documented bound: 64 MB for a million counters.
const BYTES_PER_COUNTER_MAX: f64 = 64.0;

/// Resident bytes of this process.
fn resident() -> u64 {
    resident_kib("self") * 1024
}

/// Key number `n`, distributed like a hash.
fn key(n: u64) -> CounterKey {
    let mix = |n: u64| {
        let n = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let n = (n ^ (n >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n ^ (n >> 32)
    };
    CounterKey([mix(2 * n + 1), mix(mix(n) ^ 0x5555)])
}

/// One hit of a limit of 100 per minute, in the minute that starts at 0.
fn hit() -> Step {
    let tier = FixedWindowTier::new(Micros::ZERO, Micros::from_secs(60), 100);
    Step {
        now: Micros::SECOND,
        hits: 1,
        count_denied: false,
        lease: None,
        params: StepParams::FixedWindow(smallvec![tier]),
    }
}

/// One hit of a log of 100 in the last minute.
fn logged(now: Micros) -> Step {
    let tier = EntriesTier { after: Micros::ZERO, window: Micros::from_secs(60), max: 100 };
    Step { now, params: StepParams::Log(smallvec![tier]), ..hit() }
}

fn fill(store: &MemoryStore, numbers: Range<u64>) {
    for n in numbers {
        store.apply_now(&key(n), &hit()).expect("nothing is full");
    }
}

/// Fills a new store up to each of `counts` in turn and measures at each.
fn measure(max_counters: usize, counts: &[u64]) -> MemoryStore {
    let before = resident();
    let store = MemoryStore::new(max_counters);
    let mut filled = 0;
    for &count in counts {
        fill(&store, filled..count);
        filled = count;
        let held = store.snapshot().counters;
        assert_eq!(held, count, "all are held");
        let bytes = resident().saturating_sub(before) as f64 / held as f64;
        println!("max_counters {max_counters:>8}  held {held:>8}  {bytes:.2} bytes per counter");
        assert!(bytes <= BYTES_PER_COUNTER_MAX, "{bytes:.2} bytes per counter at {count}");
    }
    store
}

/// Fills a store with logs, whose bytes have a bound, and compares the store's own count with the
/// resident memory.
fn measure_logs() -> MemoryStore {
    let before = resident();
    let store = MemoryStore::with_large_bytes(4_000_000, 1 << 30);
    for round in 0..6 {
        for n in 0..50_000 {
            store.apply_now(&key(n), &logged(Micros(round))).expect("nothing is full");
        }
    }
    let held = store.snapshot();
    let counted = held.large_bytes as f64 + BYTES_PER_COUNTER_MAX * held.counters as f64;
    let share = resident().saturating_sub(before) as f64 / counted;
    println!("logs                   held {:>8}  {share:.2} of the bytes counted", held.counters);
    // The allocator may keep memory that the logs had before they grew.
    assert!(share <= 1.2, "logs take {share:.2} of the bytes counted");
    store
}

/// Fills a store to several counts, at and between the points where tables grow. Then all counters
/// expire, and another store must fit into the freed memory. Memory that the allocator keeps counts
/// as freed.
#[test]
fn a_counter_takes_at_most_64_bytes() {
    // Every 4 % from 700 000 on, so that most indexes have just been rebuilt at some count.
    let counts = std::iter::successors(Some(700_000), |count| Some(count * 104 / 100));
    let counts: Vec<u64> = counts.take_while(|&count| count < 1_250_000).collect();
    let grown = measure(4_000_000, &counts);
    let full = measure(1_000_000, &[700_000, 1_000_000]);
    let logs = measure_logs();
    let peak = resident();
    for store in [&grown, &full, &logs] {
        while store.snapshot().counters > 0 {
            store.sweep(Micros::from_secs(100), 100_000);
        }
    }
    let refilled = MemoryStore::new(1_000_000);
    fill(&refilled, 0..800_000);
    let growth = resident() as f64 / peak as f64;
    println!("a store filled after three have emptied: {growth:.2} of the peak");
    assert!(growth <= 1.02, "memory was not given back: {growth:.2} of the peak");
}
