//! What was sent to one node: calls, and the steps that they carried.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts from the start of the process.
#[derive(Debug, Default)]
pub(super) struct AtomicStats {
    calls: AtomicU64,
    steps: AtomicU64,
    shared: AtomicU64,
}

/// What a [`RedisStore`](super::RedisStore) sent to one of its parts since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Calls of scripts.
    pub calls: u64,
    /// Steps in them.
    pub steps: u64,
    /// Steps that stood next to others on the same counter, and were read and written with them.
    pub shared: u64,
}

impl AtomicStats {
    /// Counts one call.
    pub(super) fn count(&self, steps: usize, shared: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.steps.fetch_add(steps as u64, Ordering::Relaxed);
        if shared > 0 {
            self.shared.fetch_add(shared as u64, Ordering::Relaxed);
        }
    }

    /// The counts.
    pub(super) fn stats(&self) -> NodeStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        NodeStats { calls: read(&self.calls), steps: read(&self.steps), shared: read(&self.shared) }
    }
}
