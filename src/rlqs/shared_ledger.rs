//! The ledger of quotas in a store that instances share, as the engine calls it.

use futures_util::future::BoxFuture;

use crate::key::{CounterKey, RuleId, quota_key};
use crate::quota::{LedgerSnapshot, Settlement};
use crate::store::{QuotaStore, StoreError};
use crate::time::{ClockOffset, Micros};

/// A ledger in a shared store. A trait object, because a settlement waits for the network anyway.
pub trait SharedLedger: Send + Sync + 'static {
    /// The clock of the node that has the quota of this counter, minus the local clock. `None` while
    /// it is unknown.
    fn offset(&self, counter: &CounterKey, local: Micros) -> Option<ClockOffset>;

    /// Settles the quota of a counter.
    ///
    /// # Errors
    ///
    /// The reason why there is no snapshot. The settlement may have been applied.
    fn settle<'a>(
        &'a self,
        counter: &'a CounterKey,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, Result<LedgerSnapshot, StoreError>>;

    /// Announces that the limits of `rules` are divided, for the next `length`.
    ///
    /// # Errors
    ///
    /// The reason why the announcement may be missing.
    fn announce<'a>(
        &'a self,
        rules: &'a [RuleId],
        local: Micros,
        length: Micros,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The rules that all instances have announced.
    ///
    /// # Errors
    ///
    /// The reason why they are unknown.
    fn announced(&self, local: Micros) -> BoxFuture<'_, Result<Vec<RuleId>, StoreError>>;
}

impl<S: QuotaStore> SharedLedger for S {
    fn offset(&self, counter: &CounterKey, local: Micros) -> Option<ClockOffset> {
        let remote = self.now(&quota_key(counter), local).ok()?;
        Some(ClockOffset::between(local, remote))
    }

    fn settle<'a>(
        &'a self,
        counter: &'a CounterKey,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, Result<LedgerSnapshot, StoreError>> {
        Box::pin(async move {
            let key = quota_key(counter);
            QuotaStore::settle(self, &key, settlement).await
        })
    }

    fn announce<'a>(
        &'a self,
        rules: &'a [RuleId],
        local: Micros,
        length: Micros,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.announce_quota_rules(rules, local, length))
    }

    fn announced(&self, local: Micros) -> BoxFuture<'_, Result<Vec<RuleId>, StoreError>> {
        Box::pin(self.quota_rules(local))
    }
}
