//! Counts: what leases did, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Plain counters; they only grow.
#[derive(Debug, Default)]
pub struct LeasedCounts {
    /// Draws that the store granted.
    pub refills: AtomicU64,
    /// Draws that the store denied: less was left.
    pub refills_denied: AtomicU64,
    /// Draws without an answer. What they may have drawn counts as spent.
    pub refills_failed: AtomicU64,
    /// Requests that were asked of the store by themselves: of counters that are asked too seldom
    /// to lease, or whose limit is too small.
    pub direct: AtomicU64,
    /// Tokens drawn.
    pub drawn: AtomicU64,
    /// Tokens spent by requests.
    pub spent: AtomicU64,
    /// Tokens that were sent back to the store.
    pub returned: AtomicU64,
    /// Tokens that ended unspent and could not be given back.
    pub expired: AtomicU64,
    /// Requests that waited for a draw.
    pub waits: AtomicU64,
    /// Requests that were denied after a draw. Others may have held unspent tokens.
    pub denied: AtomicU64,
}

/// Adds to one of them.
pub(super) fn add(count: &AtomicU64, number: u64) {
    count.fetch_add(number, Ordering::Relaxed);
}
