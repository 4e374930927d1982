//! ExactPath: one visit to the store per decision.

use std::sync::Arc;

use super::{CounterCheck, ModePath};
use crate::algorithm;
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::Mode;
use crate::step::Step;
use crate::store::{MemoryStore, Store, StoreError};
use crate::time::Micros;

/// Plans a step, has the store apply it, and reports the outcome.
pub struct ExactPath<S> {
    store: Arc<S>,
}

impl<S> ExactPath<S> {
    /// Decides by `store` alone.
    pub(super) fn new(store: Arc<S>) -> ExactPath<S> {
        ExactPath { store }
    }

    /// The store.
    pub(super) fn store(&self) -> &S {
        &self.store
    }
}

impl CounterCheck<'_> {
    /// Decides by `store` alone, which answers at once.
    pub fn of_memory(&self, store: &MemoryStore) -> Result<Decision, StoreError> {
        let step = self.step(self.now?);
        // Not moved out: it was written just now, and a copy would wait for that.
        match &store.apply_now(self.key, &step) {
            Ok(outcome) => Ok(algorithm::report(self.limit, &step, outcome)),
            Err(error) => Err(*error),
        }
    }

    fn step(&self, now: Micros) -> Step {
        let mut step = algorithm::plan(self.limit, self.hits, now);
        step.lease = self.lease;
        step
    }
}

impl<S: Store> ModePath for ExactPath<S> {
    async fn check(&self, check: &CounterCheck<'_>) -> Result<Decision, StoreError> {
        let step = check.step(check.now?);
        let outcome = self.store.apply_within(check.key, &step, check.timeout).await?;
        Ok(algorithm::report(check.limit, &step, &outcome))
    }

    fn apply_detached(&self, key: &Key, _mode: Mode, step: Step) {
        self.store.apply_detached(key, step);
    }

    async fn run_due(&self, _local: Micros) {}

    async fn close(&self, _local: Micros) {}
}
