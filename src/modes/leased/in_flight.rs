//! In-flight operations, which complete even if their requests or their runtime end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Pools;
use super::operation::{Operation, OperationKind};
use crate::key::CounterKey;
use crate::step::Outcome;
use crate::store::{SharedStore, StoreError};

/// An operation that was sent to the store. If it is dropped without an outcome, it completes as
/// lost.
pub(super) struct InFlight<S: SharedStore> {
    pub(super) inner: Arc<Pools<S>>,
    pub(super) key: CounterKey,
    pub(super) operation: Option<Operation>,
}

impl<S: SharedStore> InFlight<S> {
    /// The operation in flight on the counter `key`.
    pub(super) fn new(inner: Arc<Pools<S>>, key: CounterKey, operation: Operation) -> InFlight<S> {
        inner.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight { inner, key, operation: Some(operation) }
    }

    /// Completes the operation, and replaces it with the next one that the pool needs.
    pub(super) fn complete(&mut self, result: &Result<Outcome, StoreError>) {
        let Some(operation) = self.operation.take() else { return };
        let mut shard = self.inner.shard(&self.key);
        // A pool with an operation in flight is never removed.
        let Some(pool) = shard.pools.get_mut(&self.key) else { return };
        self.operation = pool.complete(&operation, result, &self.inner.metrics);
        let closed = self.inner.closed.load(Ordering::Relaxed);
        if closed && result.is_err() && operation.kind != OperationKind::Refill {
            self.inner.return_failed.store(true, Ordering::Relaxed);
        }
        // A bucket's credits that could not be returned drain.
        let ends = closed && operation.kind != OperationKind::ReturnSpan;
        if ends && self.operation.is_none() {
            self.operation = pool.return_all(operation.step.now, &self.inner.metrics);
        }
    }
}

impl<S: SharedStore> Drop for InFlight<S> {
    fn drop(&mut self) {
        // The runtime is shutting down. Waiting requests have ended, or run on another runtime.
        while self.operation.is_some() {
            self.complete(&Err(StoreError::ConnectionLost));
        }
        // Pairs with `Pools::wait`, after which `return_failed` is read.
        self.inner.in_flight.fetch_sub(1, Ordering::Release);
        self.inner.ended.notify_waiters();
    }
}
