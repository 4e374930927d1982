//! Synced: decides on a copy of the counter, and exchanges counts with the store at intervals.

use std::sync::Arc;

use super::{Ask, Layer};
use crate::algorithm;
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::Mode;
use crate::step::Step;
use crate::store::{Store, StoreError};
use crate::time::Micros;

/// Decides synced rules.
pub struct Synced<S> {
    store: Arc<S>,
}

impl<S> Synced<S> {
    /// Around `store`.
    pub(super) fn new(store: Arc<S>) -> Synced<S> {
        Synced { store }
    }
}

impl<S: Store> Layer for Synced<S> {
    async fn ask(&self, ask: &Ask<'_>) -> Result<Decision, StoreError> {
        let mut step = algorithm::plan(ask.limit, ask.hits, ask.now?);
        step.lease = ask.lease;
        let outcome = self.store.apply_within(ask.key, &step, ask.patience).await?;
        Ok(algorithm::report(ask.limit, &step, &outcome))
    }

    fn tell(&self, key: &Key, _mode: Mode, step: Step) {
        self.store.tell(key, step);
    }

    async fn tick(&self, _local: Micros) {}

    async fn close(&self, _local: Micros) {}
}
