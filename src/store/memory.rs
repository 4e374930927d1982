//! The memory store: counters of one process, bounded in number and in bytes.
//!
//! Counters are dealt over shards by bits of their keys. Each shard is a lock over a dense slab of
//! 48-byte entries, an index of four bytes a slot over it, and a list of the few states that are
//! too large for an entry. All of it shrinks as counters go.
//!
//! - **Expiry** is garbage collection in small slices: a step that begins a counter looks at a few
//!   others, and [`MemoryStore::sweep`] goes round the shards. No slice holds a lock for long.
//! - **Eviction** starts when `max_counters` are held: the counter that would forget the least of a
//!   random sample goes. A counter at its limit never goes, so a flood of new keys resets nobody;
//!   when nothing can go the answer is [`StoreError::Full`].
//!
//! **Invariant:** no two shards are locked at the same time by one thread.

use std::sync::PoisonError;

use self::budget::Budget;
pub use self::budget::MemoryStats;
use self::shard::{Full, Shard};
use self::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
use super::StoreError;
use crate::key::Key;
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

/// Shards of a large store. More of them make each slice of work (an index rebuilt) shorter.
const SHARDS_MAX: usize = 512;
/// Counters per shard of a large store; small stores have smaller shards, for the sake of
/// concurrency.
const SHARD_COUNTERS: usize = 8192;
/// Bytes of large states per counter of the bound, beside those of the entry.
const LARGE_BYTES_PER_COUNTER: usize = 64;
/// Bytes of large states that even a small store may hold: some logs of 100 000 instants.
const LARGE_BYTES_MIN: usize = 16 << 20;
/// Other shards asked to give way when one has nothing to evict.
const SHARDS_TRIED: usize = 8;
/// Entries examined under one lock by a sweep.
const SWEEP_SLICE: u32 = 128;

/// Counters in the memory of this process.
pub struct MemoryStore {
    shards: Box<[PaddedShard]>,
    budget: Budget,
    /// The shard that housekeeping turns to next.
    next: AtomicUsize,
}

/// A shard on cache lines of its own, so that neighbours do not slow each other down.
#[repr(align(64))]
struct PaddedShard(Mutex<Shard>);

impl MemoryStore {
    /// A store of at most `max_counters` counters (at least 1 and at most 2^29 are held).
    ///
    /// A counter takes up to 64 bytes. States of several tiers, logs and holders take more: all of
    /// them together at most another 64 bytes times `max_counters`, or 16 MiB if that is more.
    pub fn new(max_counters: usize) -> MemoryStore {
        let large_bytes = max_counters.saturating_mul(LARGE_BYTES_PER_COUNTER);
        MemoryStore::with_large_bytes(max_counters, large_bytes.max(LARGE_BYTES_MIN))
    }

    /// A store of at most `max_counters` counters, whose large states take at most `large_bytes`
    /// (passed by at most the growth of one state per thread).
    pub fn with_large_bytes(max_counters: usize, large_bytes: usize) -> MemoryStore {
        let max_counters = max_counters.clamp(1, 1 << 29);
        let for_concurrency = (max_counters / 256).clamp(1, 64);
        let shards = (max_counters / SHARD_COUNTERS).clamp(for_concurrency, SHARDS_MAX);
        MemoryStore {
            shards: (0..shards).map(|_| PaddedShard(Mutex::new(Shard::new()))).collect(),
            budget: Budget::new(max_counters, large_bytes),
            next: AtomicUsize::new(0),
        }
    }

    /// Applies `step` to the counter `key`, without waiting for anything but the shard's lock.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] if the step needs room and every counter looked at is at its limit;
    /// the counter is then as it was.
    pub fn apply_now(&self, key: &Key, step: &Step) -> Result<Outcome, StoreError> {
        let answer = self.shard(key).apply(key, step, &self.budget);
        answer.or_else(|full| self.apply_after_eviction(full, key, step))
    }

    /// Applies `step` once another shard has given way.
    #[cold]
    fn apply_after_eviction(
        &self,
        full: Full,
        key: &Key,
        step: &Step,
    ) -> Result<Outcome, StoreError> {
        if self.evict_elsewhere(full, key, step.now)
            && let Ok(outcome) = self.shard(key).apply(key, step, &self.budget)
        {
            return Ok(outcome);
        }
        self.budget.count_refused();
        Err(StoreError::Full)
    }

    /// Forgets expired counters among the next `budget` (at least a slice of 128), a slice per
    /// shard and lock. Tells how many went. Calls of 1 000 every 10 ms go round a million counters
    /// in 10 s.
    pub fn sweep(&self, now: Micros, budget: usize) -> usize {
        if self.budget.is_empty() {
            return 0;
        }
        let slices = budget.div_ceil(SWEEP_SLICE as usize).max(1);
        let swept = |_| self.next_shard().reclaim(now, SWEEP_SLICE, &self.budget);
        (0..slices).map(swept).sum()
    }

    /// The state of the counter `key`.
    pub fn get(&self, key: &Key) -> Option<State> {
        let shard = self.shard(key);
        shard.find(key).and_then(|place| shard.state(place))
    }

    /// Forgets the counter `key`. Tells whether there was one.
    pub fn remove(&self, key: &Key) -> bool {
        let mut shard = self.shard(key);
        let Some(place) = shard.find(key) else { return false };
        shard.remove(place, &self.budget);
        self.budget.release();
        true
    }

    /// What the store holds and has done so far.
    pub fn stats(&self) -> MemoryStats {
        self.budget.stats()
    }

    /// Evicts a counter of another shard. Tells whether one could go.
    fn evict_elsewhere(&self, full: Full, except: &Key, now: Micros) -> bool {
        let asked = SHARDS_TRIED.min(self.shards.len());
        (0..asked).any(|_| self.next_shard().evict_one(full, except, now, &self.budget))
    }

    /// The shard of `key`, by other bits than those the shard's index uses.
    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let number = ((key.0[1] >> 32) * self.shards.len() as u64) >> 32;
        self.lock(number as usize)
    }

    fn next_shard(&self) -> MutexGuard<'_, Shard> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock(next % self.shards.len())
    }

    fn lock(&self, number: usize) -> MutexGuard<'_, Shard> {
        // Only a step can panic here, and it runs before a shard's parts are touched: what a
        // poisoned lock guards is whole.
        self.shards[number].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
