//! The counters of one process in memory, bounded in number and in bytes.
//!
//! Bits of a key choose one of up to 512 shards. A shard is a lock, a dense slab of 48-byte
//! entries, a hash index of four bytes per cell, and a list of states that are too large for an
//! entry. All of it shrinks when counters go. A counter takes 55 to 62 bytes as measured, at most
//! 64; the slab and the index exist for that bound (`tests/memory_size.rs`).
//!
//! - **Expiry** removes counters that no longer affect a decision. A step that creates a counter
//!   examines four others, and [`MemoryStore::sweep`] visits all shards in turn. At most 128
//!   counters are examined under one lock.
//! - **Eviction** starts at `max_counters`. The counter of a random sample whose removal loses the
//!   least state is evicted. A counter at its limit is never evicted, so a flood of new keys resets
//!   no limit. When no counter can be evicted, the step fails with [`StoreError::MemoryFull`].
//!
//! **Invariant:** a thread never holds the locks of two shards at once.

use std::hint::black_box;
use std::sync::PoisonError;

use self::budget::Budget;
pub use self::budget::MemorySnapshot;
use self::shard::{Full, MemoryShard};
use self::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
use super::StoreError;
use crate::key::CounterKey;
use crate::step::{Outcome, State, Step};
use crate::time::Micros;

mod budget;
mod entry;
mod evict;
mod index;
mod large_state;
mod rng;
mod shard;
mod slab;
mod sync;
#[cfg(test)]
mod tests;

/// Shards of a large store. More shards make each piece of work, such as rebuilding an index,
/// shorter.
const SHARDS_MAX: usize = 512;
/// Counters per shard of a large store. Small stores have smaller shards, for concurrency.
const SHARD_COUNTERS: usize = 8192;
/// Bytes for large states per counter of `max_counters`, in addition to the entries.
const LARGE_BYTES_PER_COUNTER: usize = 64;
/// Bytes for large states in a small store: room for some logs of 100 000 instants.
const LARGE_BYTES_MIN: usize = 16 << 20;
/// Other shards that are tried when a shard has nothing to evict.
const SHARDS_TRIED: usize = 8;
/// Entries that a sweep examines each time it locks a shard. A sweep locks as many shards as its
/// budget needs.
const ENTRIES_PER_SLICE: u32 = 128;
/// Counters from which [`MemoryStore::prefetch`] reads. Fewer take less than a megabyte, so most of them
/// stay in a second-level cache without it.
const PREFETCH_COUNTERS_MIN: usize = 16_384;

/// Counters in the memory of this process.
pub struct MemoryStore {
    shards: Box<[PaddedShard]>,
    budget: Budget,
    /// The shard that is swept next.
    next: AtomicUsize,
}

/// A shard on its own cache lines, which avoids false sharing.
#[repr(align(64))]
struct PaddedShard(Mutex<MemoryShard>);

impl MemoryStore {
    /// A store of at most `max_counters` counters, clamped to 1..=2^29.
    ///
    /// A counter takes at most 64 bytes. States of several tiers, logs and slots take more. All of
    /// them together take at most another 64 bytes times `max_counters`, or 16 MiB if that is more.
    pub fn new(max_counters: usize) -> MemoryStore {
        let large_bytes = max_counters.saturating_mul(LARGE_BYTES_PER_COUNTER);
        MemoryStore::with_large_bytes(max_counters, large_bytes.max(LARGE_BYTES_MIN))
    }

    /// A store of at most `max_counters` counters, whose large states take at most `large_bytes`.
    /// Concurrent steps may exceed that by the growth of one state per thread.
    pub fn with_large_bytes(max_counters: usize, large_bytes: usize) -> MemoryStore {
        let max_counters = max_counters.clamp(1, 1 << 29);
        let for_concurrency = (max_counters / 256).clamp(1, 64);
        let shards = (max_counters / SHARD_COUNTERS).clamp(for_concurrency, SHARDS_MAX);
        MemoryStore {
            shards: (0..shards).map(|_| PaddedShard(Mutex::new(MemoryShard::new()))).collect(),
            budget: Budget::new(max_counters, large_bytes),
            next: AtomicUsize::new(0),
        }
    }

    /// Applies `step` to the counter `key`. Waits only for the shard's lock.
    ///
    /// # Errors
    ///
    /// [`StoreError::MemoryFull`] if the step needs room and every examined counter is at its
    /// limit. The counter is then unchanged.
    pub fn apply_now(&self, key: &CounterKey, step: &Step) -> Result<Outcome, StoreError> {
        let result = self.shard(key).apply(key, step, &self.budget);
        result.or_else(|full| self.apply_after_eviction(full, key, step))
    }

    /// Applies `step` to the counter `key` without a lock, because the caller owns the store.
    ///
    /// # Errors
    ///
    /// Those of [`apply_now`](MemoryStore::apply_now).
    #[inline]
    pub fn apply_owned(&mut self, key: &CounterKey, step: &Step) -> Result<Outcome, StoreError> {
        let result = owned_shard(&mut self.shards, key).apply(key, step, &self.budget);
        result.or_else(|full| self.apply_after_eviction(full, key, step))
    }

    /// Reads the counters `keys` into the caches of the processor, before steps on them. Changes nothing.
    /// No read depends on another one of the same pass, so the processor waits for several at a time. A
    /// small store is not read.
    pub fn prefetch<'k>(&mut self, keys: impl Iterator<Item = &'k CounterKey> + Clone) {
        if self.budget.counters() < PREFETCH_COUNTERS_MIN {
            return;
        }
        // Two passes: a search that waits for its cell would end at a branch that is often mispredicted,
        // and the processor would not begin the next read before it.
        let mut cells = 0;
        for key in keys.clone() {
            cells ^= owned_shard(&mut self.shards, key).index.first_cell(key);
        }
        black_box(cells);
        let mut entries = 0;
        for key in keys {
            entries ^= owned_shard(&mut self.shards, key).ends_of(key);
        }
        black_box(entries);
    }

    /// Evicts a counter of another shard and applies `step` again.
    #[cold]
    fn apply_after_eviction(
        &self,
        full: Full,
        key: &CounterKey,
        step: &Step,
    ) -> Result<Outcome, StoreError> {
        if self.evict_elsewhere(full, key, step.now)
            && let Ok(outcome) = self.shard(key).apply(key, step, &self.budget)
        {
            return Ok(outcome);
        }
        self.budget.count_refused();
        Err(StoreError::MemoryFull)
    }

    /// Examines the next `budget` counters and removes the expired ones. Visits the shards in turn
    /// and examines 128 counters under each lock, at least 128 in all. Returns how many were
    /// removed. `src/app/background.rs` examines 16 x 2,048 counters per second, so a million
    /// counters take half a minute.
    pub fn sweep(&self, now: Micros, budget: usize) -> usize {
        if self.budget.is_empty() {
            return 0;
        }
        let slices = budget.div_ceil(ENTRIES_PER_SLICE as usize).max(1);
        let swept = |_| self.next_shard().reclaim(now, ENTRIES_PER_SLICE, &self.budget);
        (0..slices).map(swept).sum()
    }

    /// The state of the counter `key`.
    pub fn get(&self, key: &CounterKey) -> Option<State> {
        let shard = self.shard(key);
        shard.find(key).and_then(|place| shard.state(place))
    }

    /// Deletes the counter `key`. Returns whether it existed.
    pub fn delete(&self, key: &CounterKey) -> bool {
        let mut shard = self.shard(key);
        let Some(place) = shard.find(key) else { return false };
        shard.remove(place, &self.budget);
        self.budget.release();
        true
    }

    /// Current sizes and totals.
    pub fn snapshot(&self) -> MemorySnapshot {
        self.budget.snapshot()
    }

    /// Evicts a counter of another shard. Returns whether one was evicted.
    fn evict_elsewhere(&self, full: Full, except: &CounterKey, now: Micros) -> bool {
        let tried = SHARDS_TRIED.min(self.shards.len());
        (0..tried).any(|_| self.next_shard().evict_one(full, except, now, &self.budget))
    }

    /// The shard of `key`. Its index uses other bits of the key.
    fn shard(&self, key: &CounterKey) -> MutexGuard<'_, MemoryShard> {
        self.lock(shard_number(key, self.shards.len()))
    }

    fn next_shard(&self) -> MutexGuard<'_, MemoryShard> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock(next % self.shards.len())
    }

    fn lock(&self, number: usize) -> MutexGuard<'_, MemoryShard> {
        // Only a step can panic here, and it runs before the shard is changed. So a poisoned shard
        // is consistent.
        self.shards[number].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of the shard of `key`, of `shards` in all.
fn shard_number(key: &CounterKey, shards: usize) -> usize {
    (((key.0[1] >> 32) * shards as u64) >> 32) as usize
}

/// The shard of `key`, without its lock.
fn owned_shard<'s>(shards: &'s mut [PaddedShard], key: &CounterKey) -> &'s mut MemoryShard {
    let number = shard_number(key, shards.len());
    // As for a lock, a poisoned shard is consistent.
    shards[number].0.get_mut().unwrap_or_else(PoisonError::into_inner)
}
