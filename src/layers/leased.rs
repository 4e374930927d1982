//! Leased: hits are drawn from the store ahead, many at a time, and spent here.

use std::sync::Arc;

use super::{Ask, Layer};
use crate::algorithm;
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::Mode;
use crate::step::Step;
use crate::store::{Store, StoreError};
use crate::time::Micros;

/// Decides leased rules.
pub struct Leased<S> {
    store: Arc<S>,
}

impl<S> Leased<S> {
    /// Around `store`.
    pub(super) fn new(store: Arc<S>) -> Leased<S> {
        Leased { store }
    }
}

impl<S: Store> Layer for Leased<S> {
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
