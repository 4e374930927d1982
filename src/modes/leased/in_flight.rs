//! In-flight refills, which complete even if their requests or their runtime end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Pools;
use super::token_pool::Refill;
use crate::key::Key;
use crate::step::Outcome;
use crate::store::{Store, StoreError};

/// A refill that was sent to the store. If it is dropped without an outcome, it completes as lost.
pub(super) struct InFlightRefill<S: Store> {
    pub(super) inner: Arc<Pools<S>>,
    pub(super) key: Key,
    pub(super) refill: Option<Refill>,
}

impl<S: Store> InFlightRefill<S> {
    /// Completes the refill, and replaces it with the next one that the pool needs.
    pub(super) fn complete(&mut self, result: &Result<Outcome, StoreError>) {
        let Some(refill) = self.refill.take() else { return };
        let mut shard = self.inner.shard(&self.key);
        // A pool with a refill in flight is never removed.
        let Some(pool) = shard.pools.get_mut(&self.key) else { return };
        let (next, mut unspent) = pool.complete(&refill, result, &self.inner.counts);
        if self.inner.closed.load(Ordering::Relaxed) {
            unspent.extend(pool.take_all());
        }
        drop(shard);
        self.refill = next;
        self.inner.return_tokens(&self.key, unspent, None);
    }
}

impl<S: Store> Drop for InFlightRefill<S> {
    fn drop(&mut self) {
        // The runtime is shutting down. Waiting requests have ended, or run on another runtime.
        while self.refill.is_some() {
            self.complete(&Err(StoreError::ConnectionLost));
        }
    }
}
