//! Counts the calls that were sent to one node, and the steps in them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::function_use::CallForm;

/// Totals since the process started, updated by all threads.
#[derive(Debug, Default)]
pub(super) struct NodeMetrics {
    calls: AtomicU64,
    steps: AtomicU64,
    combined: AtomicU64,
    function_calls: AtomicU64,
}

/// Totals of what a [`RedisStore`](super::RedisStore) sent to one node since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSnapshot {
    /// Script calls.
    pub calls: u64,
    /// Steps in those calls.
    pub steps: u64,
    /// Steps that one call ran together with other steps on the same counter, with one read and one
    /// write of it.
    pub combined: u64,
    /// The calls that were function calls.
    pub function_calls: u64,
}

impl NodeMetrics {
    /// Counts one call.
    pub(super) fn count(&self, steps: usize, combined: usize, form: CallForm) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if form == CallForm::Function {
            self.function_calls.fetch_add(1, Ordering::Relaxed);
        }
        self.steps.fetch_add(steps as u64, Ordering::Relaxed);
        if combined > 0 {
            self.combined.fetch_add(combined as u64, Ordering::Relaxed);
        }
    }

    /// The totals, each read by itself.
    pub(super) fn snapshot(&self) -> NodeSnapshot {
        let read = |total: &AtomicU64| total.load(Ordering::Relaxed);
        NodeSnapshot {
            calls: read(&self.calls),
            steps: read(&self.steps),
            combined: read(&self.combined),
            function_calls: read(&self.function_calls),
        }
    }
}
