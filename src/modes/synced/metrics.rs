//! Metrics of mode synced.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::StoreError;

/// Metrics of mode synced since the process started.
#[derive(Debug, Default)]
pub struct SyncedMetrics {
    exchanges: AtomicU64,
    failed: AtomicU64,
    calls: AtomicU64,
    failures: [AtomicU64; StoreError::ALL.len()],
    overrun: AtomicU64,
}

impl SyncedMetrics {
    pub(super) fn exchange(&self, failed: bool) {
        let count = if failed { &self.failed } else { &self.exchanges };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn call(&self, overrun: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if overrun > 0 {
            self.overrun.fetch_add(overrun, Ordering::Relaxed);
        }
    }

    pub(super) fn failure(&self, error: StoreError) {
        let known = StoreError::ALL.iter().position(|known| *known == error);
        if let Some(count) = known.and_then(|index| self.failures.get(index)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Completed exchanges.
    pub fn exchanges(&self) -> u64 {
        self.exchanges.load(Ordering::Relaxed)
    }

    /// Steps sent to the store in exchanges.
    pub fn steps(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Failed exchanges, by error.
    pub fn failures(&self) -> impl Iterator<Item = (StoreError, u64)> + '_ {
        let counts = self.failures.iter().map(|count| count.load(Ordering::Relaxed));
        StoreError::ALL.into_iter().zip(counts)
    }

    /// Hits over a limit that an exchange revealed. Every instance that sees a hit counts it once.
    pub fn overrun(&self) -> u64 {
        self.overrun.load(Ordering::Relaxed)
    }
}
