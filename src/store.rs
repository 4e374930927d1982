//! Stores: where counters live. A store applies steps to keys and knows nothing of rules or limits.

use std::future::Future;

use crate::key::Key;
use crate::step::{Outcome, Step};

pub mod memory;
pub mod redis;

pub use memory::MemoryStore;

/// Something that keeps counters.
///
/// Contract: steps on one key are applied one after the other, each to the state the previous one
/// left; a counter may be forgotten only when its state says nothing any more, or as
/// [`StoreError::Full`] explains.
pub trait Store: Send + Sync + 'static {
    /// Applies `step` to the counter `key`.
    fn apply(
        &self,
        key: &Key,
        step: &Step,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Applies `step` without anybody waiting for the outcome, for what must be given back when the
    /// one who took it has gone. As good as the store can: a store that cannot be reached forgets it.
    fn tell(&self, key: &Key, step: Step);
}

/// Why a store could not answer. The rule's `on_error` decides instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No room for a new counter: all that could be evicted hold clients at their limit.
    #[error("the memory store is full (store.max_counters) of counters at their limit")]
    Full,
}
