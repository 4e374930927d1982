//! Exact: one visit to the store per decision.

use std::sync::Arc;

use super::{Ask, Layer};
use crate::algorithm;
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::Mode;
use crate::step::Step;
use crate::store::{MemoryStore, Store, StoreError};
use crate::time::Micros;

/// Plans a step, has the store apply it, and reports the outcome.
pub struct Exact<S> {
    store: Arc<S>,
}

impl<S> Exact<S> {
    /// Decides by `store` alone.
    pub(super) fn new(store: Arc<S>) -> Exact<S> {
        Exact { store }
    }

    /// The store.
    pub(super) fn store(&self) -> &S {
        &self.store
    }
}

impl Ask<'_> {
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

impl<S: Store> Layer for Exact<S> {
    async fn ask(&self, ask: &Ask<'_>) -> Result<Decision, StoreError> {
        let step = ask.step(ask.now?);
        let outcome = self.store.apply_within(ask.key, &step, ask.timeout).await?;
        Ok(algorithm::report(ask.limit, &step, &outcome))
    }

    fn tell(&self, key: &Key, _mode: Mode, step: Step) {
        self.store.tell(key, step);
    }

    async fn tick(&self, _local: Micros) {}

    async fn close(&self, _local: Micros) {}
}
