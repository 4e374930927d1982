//! Tests of the memory store, with their shared keys and steps.

use smallvec::smallvec;

use super::entry::StateKind;
use super::large_state::bytes_of;
use super::*;
use crate::key::{KeyBuilder, KeySeed};
use crate::step::{EntriesTier, FixedWindowTier, StepParams};

// Under the model checker a lock works only inside a checker run.
#[cfg(not(feature = "shuttle"))]
mod eviction;
#[cfg(feature = "shuttle")]
mod interleavings;
#[cfg(not(feature = "shuttle"))]
mod large;
#[cfg(not(feature = "shuttle"))]
mod model;
#[cfg(not(feature = "shuttle"))]
mod reclaim;
#[cfg(not(feature = "shuttle"))]
mod sizes;
#[cfg(not(feature = "shuttle"))]
mod threads;

/// Key number `n`.
fn key(n: u64) -> CounterKey {
    KeyBuilder::start(&KeySeed::fixed([7, 7])).number(n).finish()
}

fn step(now: Micros, hits: i64, params: StepParams) -> Step {
    Step { now, hits, count_denied: false, lease: None, params }
}

/// `hits` of a limit of `max` per window of `secs` seconds.
fn count_per(secs: u64, now: Micros, hits: i64, max: u64) -> Step {
    let window = Micros::from_secs(secs);
    let start = Micros(now.0 - now.0 % window.0);
    let tier = FixedWindowTier::new(start, window, max);
    step(now, hits, StepParams::FixedWindow(smallvec![tier]))
}

/// `hits` of a limit of `max` per minute.
fn count(now: Micros, hits: i64, max: u64) -> Step {
    count_per(60, now, hits, max)
}

/// `hits` of a log of `max` in the last minute.
fn log(now: Micros, hits: i64, max: u64) -> Step {
    let window = Micros::from_secs(60);
    let after = now.saturating_sub(window).saturating_add(Micros(1));
    step(now, hits, StepParams::Log(smallvec![EntriesTier { after, window, max }]))
}

/// Checks that slab, index, large states and totals are consistent.
fn assert_consistent(store: &MemoryStore) {
    let (mut counters, mut large_bytes) = (0, 0);
    for number in 0..store.shards.len() {
        let shard = store.lock(number);
        let mut large_states = 0;
        assert!(shard.index.cells() >= shard.slab.len() as usize);
        for place in 0..shard.slab.len() {
            let entry = shard.slab.get(place);
            assert_eq!(shard.find(&entry.key), Some(place), "the index has every entry");
            if entry.kind == StateKind::Large {
                let large = shard.large_states.get(entry.words[0]);
                assert_eq!(large.place, place, "entry and large state refer to each other");
                assert_eq!(large.bytes, bytes_of(large.state.as_ref().unwrap()));
                large_bytes += large.bytes as u64;
                large_states += 1;
            }
        }
        assert_eq!(shard.large_states.len(), large_states, "every large state has an entry");
        counters += u64::from(shard.slab.len());
    }
    let stats = store.snapshot();
    assert_eq!((stats.counters, stats.large_bytes), (counters, large_bytes));
}
