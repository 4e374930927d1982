//! The budget of a memory store: its bounds and what all its shards use together, as plain atomics.

use super::sync::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Bounds and totals. Shards share one; no total orders any other memory, so all is relaxed.
pub(super) struct Budget {
    counters_max: usize,
    large_bytes_max: usize,
    counters: AtomicUsize,
    large_bytes: AtomicUsize,
    evicted: AtomicU64,
    refused: AtomicU64,
    reclaimed: AtomicU64,
}

/// What a memory store holds and has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Counters held now, those included that have expired and were not met yet.
    pub counters: u64,
    /// Bytes that states too large for an entry take now.
    pub large_bytes: u64,
    /// Counters evicted to make room for others.
    pub evicted: u64,
    /// Steps refused because nothing could be evicted.
    pub refused: u64,
    /// Counters forgotten because they had expired.
    pub reclaimed: u64,
}

impl Budget {
    pub(super) fn new(counters_max: usize, large_bytes_max: usize) -> Budget {
        Budget {
            counters_max,
            large_bytes_max,
            counters: AtomicUsize::new(0),
            large_bytes: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
        }
    }

    /// Counts one more counter, unless the store is full.
    pub(super) fn try_reserve(&self) -> bool {
        self.counters
            .fetch_update(Relaxed, Relaxed, |taken| (taken < self.counters_max).then(|| taken + 1))
            .is_ok()
    }

    /// No counter is held.
    pub(super) fn is_empty(&self) -> bool {
        self.counters.load(Relaxed) == 0
    }

    /// Counts one counter less.
    pub(super) fn release(&self) {
        self.counters.fetch_sub(1, Relaxed);
    }

    /// LargeState states may take `bytes` more. Threads that ask at the same time are all told so: the
    /// bound may be passed by what each thread then adds in one step.
    pub(super) fn has_bytes(&self, bytes: usize) -> bool {
        self.large_bytes.load(Relaxed).saturating_add(bytes) <= self.large_bytes_max
    }

    /// A large state that took `before` bytes takes `after`.
    pub(super) fn charge(&self, before: usize, after: usize) {
        self.large_bytes.fetch_add(after.wrapping_sub(before), Relaxed);
    }

    pub(super) fn count_evicted(&self) {
        self.evicted.fetch_add(1, Relaxed);
    }

    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn count_reclaimed(&self, counters: usize) {
        self.reclaimed.fetch_add(counters as u64, Relaxed);
    }

    /// The totals, each read on its own.
    pub(super) fn stats(&self) -> MemoryStats {
        MemoryStats {
            counters: self.counters.load(Relaxed) as u64,
            large_bytes: self.large_bytes.load(Relaxed) as u64,
            evicted: self.evicted.load(Relaxed),
            refused: self.refused.load(Relaxed),
            reclaimed: self.reclaimed.load(Relaxed),
        }
    }
}
