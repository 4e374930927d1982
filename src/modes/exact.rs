//! Mode exact: every decision is one call to the store.

use std::sync::Arc;

use super::CounterCheck;
use crate::algorithm;
use crate::decision::Decision;
use crate::key::CounterKey;
use crate::step::Step;
use crate::store::{MemoryStore, SharedStore, StoreError};
use crate::time::Micros;

/// The mode of exact rules: plans a step, applies it in the store, and interprets the outcome.
pub(super) struct ExactMode<S> {
    store: Arc<S>,
}

impl CounterCheck<'_> {
    /// Decides by counters in memory.
    ///
    /// # Errors
    ///
    /// [`StoreError::MemoryFull`] if a new counter has no room.
    #[inline]
    pub fn in_memory(&self, store: &MemoryStore) -> Result<Decision, StoreError> {
        let step = self.step(self.store_now?);
        // By reference, because moving an outcome that was just written would stall on that write.
        match &store.apply_now(self.key, &step) {
            Ok(outcome) => Ok(algorithm::report(self.limit, &step, outcome)),
            Err(error) => Err(*error),
        }
    }

    fn step(&self, now: Micros) -> Step {
        algorithm::plan_with_lease(self.limit, self.hits, self.lease, now)
    }
}

impl<S: SharedStore> ExactMode<S> {
    /// The mode over `store`.
    pub(super) fn new(store: Arc<S>) -> ExactMode<S> {
        ExactMode { store }
    }

    /// The store.
    pub(super) fn store(&self) -> &Arc<S> {
        &self.store
    }

    pub(super) async fn check(&self, check: &CounterCheck<'_>) -> Result<Decision, StoreError> {
        let step = check.step(check.store_now?);
        let outcome = self.store.apply_within(check.key, &step, check.timeout).await?;
        Ok(algorithm::report(check.limit, &step, &outcome))
    }

    pub(super) fn apply_detached(&self, key: &CounterKey, step: Step) {
        self.store.apply_detached(key, step);
    }
}
