//! A draw under way: what becomes of it, whoever goes away meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Inner;
use super::token_pool::Refill;
use crate::key::Key;
use crate::step::Outcome;
use crate::store::{Store, StoreError};

/// A draw that the store has been asked for. Dropped without an answer: it is lost.
pub(super) struct InFlightRefill<S: Store> {
    pub(super) inner: Arc<Inner<S>>,
    pub(super) key: Key,
    pub(super) draw: Option<Refill>,
}

impl<S: Store> InFlightRefill<S> {
    /// The draw has ended; the next one takes its place.
    pub(super) fn settle(&mut self, result: &Result<Outcome, StoreError>) {
        let Some(draw) = self.draw.take() else { return };
        let mut shard = self.inner.shard(&self.key);
        // It stays as long as a draw is under way.
        let Some(token_pool) = shard.pools.get_mut(&self.key) else { return };
        let (next, mut unspent) = token_pool.settle(&draw, result, &self.inner.counts);
        if self.inner.closed.load(Ordering::Relaxed) {
            unspent.extend(token_pool.empty());
        }
        drop(shard);
        self.draw = next;
        self.inner.send_back(&self.key, unspent, None);
    }
}

impl<S: Store> Drop for InFlightRefill<S> {
    fn drop(&mut self) {
        // The runtime ends: those who wait are gone with it, or on another one.
        while self.draw.is_some() {
            self.settle(&Err(StoreError::Lost));
        }
    }
}
