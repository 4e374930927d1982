//! Plain commands to Redis under the breaker and the in-flight bound of their node, for callers whose
//! requests wait for them.

use super::GuardedStore;
use crate::store::{CommandBound, RedisStore, RedisValue, StoreError};
use crate::time::Clock;

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// A counter or a quota. Its duration is measured.
    Counter,
    /// A key beside the counters.
    Plain,
}

impl<C: Clock> GuardedStore<RedisStore, C> {
    /// Sends one command as [`RedisStore::command`] does. A timeout that is shorter than that of the
    /// store is no evidence about the node.
    ///
    /// # Errors
    /// The errors of [`RedisStore::command`], and [`StoreError::BreakerOpen`] and [`StoreError::Busy`],
    /// with which the command was not sent.
    pub async fn command(
        &self,
        key: &str,
        words: &[&[u8]],
        bound: CommandBound,
    ) -> Result<RedisValue, StoreError> {
        let store = &self.shared.store;
        let call = || store.command(key, words, bound);
        self.run_on(store.node_of(key), CallKind::Plain, bound.timeout, call).await
    }

    /// Runs `commands` as [`RedisStore::transaction`] does.
    ///
    /// # Errors
    /// The errors of [`RedisStore::transaction`], and those of the breaker and the bound.
    pub async fn transaction(
        &self,
        key: &str,
        commands: &[&[&[u8]]],
        bound: CommandBound,
    ) -> Result<Vec<RedisValue>, StoreError> {
        let store = &self.shared.store;
        let call = || store.transaction(key, commands, bound);
        self.run_on(store.node_of(key), CallKind::Plain, bound.timeout, call).await
    }
}
