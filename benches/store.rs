//! The speed of the memory store: decisions on a hot set and on a million counters, by one thread
//! and by two, and the cost of a flood of new keys when the store is full.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use smallvec::smallvec;
use weir::key::{CounterKey, KeyBuilder, KeySeed};
use weir::step::{FixedWindowTier, Step, StepParams};
use weir::store::MemoryStore;
use weir::time::Micros;

const MILLION: usize = 1_000_000;

fn key(n: u64) -> CounterKey {
    KeyBuilder::start(&KeySeed::fixed([7, 7])).number(n).finish()
}

/// One hit of a limit that is never reached, in one long window.
fn hit() -> Step {
    let tier = FixedWindowTier::new(Micros::ZERO, Micros::from_secs(3600), 1 << 40);
    Step {
        now: Micros::SECOND,
        hits: 1,
        count_denied: false,
        lease: None,
        params: StepParams::FixedWindow(smallvec![tier]),
    }
}

/// The time that `threads` threads need for `steps` steps each, every thread with its own walk over
/// `keys`.
fn walk(store: &MemoryStore, keys: &[CounterKey], threads: usize, steps: u64) -> Duration {
    let step = hit();
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            let step = &step;
            scope.spawn(move || {
                // A stride that shares no factor with a power of ten visits every key.
                let mut at = thread * keys.len() / threads;
                for _ in 0..steps {
                    black_box(store.apply_now(&keys[at], step)).expect("nothing is full");
                    at = (at + 7919) % keys.len();
                }
            });
        }
    });
    start.elapsed()
}

fn decisions(criterion: &mut Criterion) {
    let keys: Vec<CounterKey> = (0..MILLION as u64).map(key).collect();
    let mut group = criterion.benchmark_group("store");
    for (name, counters) in [("hot_1000", 1000), ("100_000", 100_000), ("1_million", MILLION)] {
        let store = MemoryStore::new(4 * MILLION);
        walk(&store, &keys[..counters], 1, counters as u64);
        for threads in [1, 2] {
            group.throughput(Throughput::Elements(threads as u64));
            group.bench_function(format!("{name}/threads_{threads}"), |bencher| {
                bencher.iter_custom(|steps| walk(&store, &keys[..counters], threads, steps));
            });
        }
    }
    group.finish();
}

fn flood(criterion: &mut Criterion) {
    let store = MemoryStore::new(MILLION);
    let step = hit();
    for n in 0..MILLION as u64 {
        store.apply_now(&key(n), &step).expect("nothing is full");
    }
    let mut group = criterion.benchmark_group("store");
    group.throughput(Throughput::Elements(1));
    let mut n = MILLION as u64;
    group.bench_function("flood_of_new_keys_when_full", |bencher| {
        bencher.iter(|| {
            n += 1;
            store.apply_now(&key(n), &step)
        });
    });
    group.finish();
}

criterion_group!(benches, decisions, flood);
criterion_main!(benches);
