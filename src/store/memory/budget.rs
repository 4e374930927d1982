//! The counters and bytes that all shards of a memory store use together, and their bounds.

use super::sync::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Bounds and totals of all shards. No total orders other memory accesses, so all are relaxed.
pub(super) struct Budget {
    counters_max: usize,
    large_bytes_max: usize,
    counters: AtomicUsize,
    large_bytes: AtomicUsize,
    evicted: AtomicU64,
    refused: AtomicU64,
    reclaimed: AtomicU64,
}

/// Current sizes and totals of a memory store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySnapshot {
    /// Counters held now, including expired ones that were not removed yet.
    pub counters: u64,
    /// Bytes of the states that do not fit into an entry.
    pub large_bytes: u64,
    /// Counters evicted to make room for others.
    pub evicted: u64,
    /// Steps that failed because no counter could be evicted.
    pub refused: u64,
    /// Counters removed because they had expired.
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

    /// Reserves room for one counter, unless the store is full.
    pub(super) fn try_reserve(&self) -> bool {
        self.counters
            .fetch_update(Relaxed, Relaxed, |used| (used < self.counters_max).then(|| used + 1))
            .is_ok()
    }

    /// Whether the store has no counter.
    pub(super) fn is_empty(&self) -> bool {
        self.counters() == 0
    }

    /// The number of counters.
    pub(super) fn counters(&self) -> usize {
        self.counters.load(Relaxed)
    }

    /// Releases the room of one counter.
    pub(super) fn release(&self) {
        self.counters.fetch_sub(1, Relaxed);
    }

    /// Whether large states may take `bytes` more. Concurrent threads may all get `true`, so the
    /// bound can be exceeded by what each of them adds in one step.
    pub(super) fn has_bytes(&self, bytes: usize) -> bool {
        self.large_bytes.load(Relaxed).saturating_add(bytes) <= self.large_bytes_max
    }

    /// Records that a large state grew or shrank from `before` to `after` bytes.
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

    /// The totals, each read by itself.
    pub(super) fn snapshot(&self) -> MemorySnapshot {
        MemorySnapshot {
            counters: self.counters() as u64,
            large_bytes: self.large_bytes.load(Relaxed) as u64,
            evicted: self.evicted.load(Relaxed),
            refused: self.refused.load(Relaxed),
            reclaimed: self.reclaimed.load(Relaxed),
        }
    }
}
