//! Metrics of mode leased.

use std::sync::atomic::{AtomicU64, Ordering};

/// Metrics of mode leased since the process started.
#[derive(Debug, Default)]
pub struct LeasedMetrics {
    /// Refills that the store granted.
    pub refills: AtomicU64,
    /// Refills that the store denied, because the counter had less left.
    pub refills_denied: AtomicU64,
    /// Refills without an outcome. Credits that they may have drawn are treated as spent.
    pub refills_failed: AtomicU64,
    /// Requests that the store decided: on a counter without a credit pool, peeks at an empty pool, and
    /// refunds of more than the pool can take.
    pub direct: AtomicU64,
    /// Credits drawn.
    pub drawn: AtomicU64,
    /// Credits spent by requests.
    pub spent: AtomicU64,
    /// Credits returned to the store.
    pub returned: AtomicU64,
    /// Credits that expired unspent and could not be returned.
    pub expired: AtomicU64,
    /// Requests that waited for a refill.
    pub waits: AtomicU64,
    /// Requests that were denied after a refill. Other instances may have had unspent credits.
    pub denied: AtomicU64,
}

/// Adds `number` to a count.
pub(super) fn add(count: &AtomicU64, number: u64) {
    count.fetch_add(number, Ordering::Relaxed);
}
