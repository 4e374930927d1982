//! Stores: where counters live. A store applies steps to keys and knows nothing of rules or limits.

use std::future::Future;
use std::time::Duration;

use crate::key::Key;
use crate::step::{Outcome, Step};
use crate::time::Micros;

pub mod call_trace;
pub mod guard;
pub mod memory;
pub mod redis;
mod stack;

pub use crate::store_error::StoreError;
pub use guard::Guard;
pub(crate) use guard::with_timeout;
pub use memory::MemoryStore;
pub use redis::RedisStore;
pub use stack::Stack;

/// Something that keeps counters.
///
/// Contract: steps on one key are applied one after the other, each to the state the previous one
/// left; a counter may be forgotten only when its state says nothing any more, or as
/// [`StoreError::Full`] explains.
pub trait Store: Send + Sync + 'static {
    /// The instant to plan a step on `key` for, when our own clock shows `local`. A store that
    /// several instances share has one clock for all of them; an error means that it cannot be
    /// told, and then the store need not be asked.
    fn now(&self, key: &Key, local: Micros) -> Result<Micros, StoreError> {
        let _ = key;
        Ok(local)
    }

    /// The part of the store that `key` lives in. Parts fail each on its own.
    fn node(&self, key: &Key) -> NodeId {
        let _ = key;
        NodeId(0)
    }

    /// The counters in this process's memory, if this store is no more than those: they can be
    /// asked without waiting.
    fn in_memory(&self) -> Option<&MemoryStore> {
        None
    }

    /// Applies `step` to the counter `key`.
    fn apply(
        &self,
        key: &Key,
        step: &Step,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// How long one answer is waited for, whoever asks; nothing, if that is not bounded.
    fn deadline(&self) -> Option<Duration> {
        None
    }

    /// [`apply`](Store::apply) for somebody who waits no longer than `timeout`.
    fn apply_within(
        &self,
        key: &Key,
        step: &Step,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        // A store in this process answers at once.
        let _ = timeout;
        self.apply(key, step)
    }

    /// Applies `step` without anybody waiting for the outcome, for what must be given back when the
    /// one who took it has gone. As good as the store can: a store that cannot be reached forgets it.
    fn apply_detached(&self, key: &Key, step: Step);

    /// Forgets the counter `key`, as if nothing had ever been counted on it. Tells whether there
    /// was one. For operators; waits as long as the store's own deadline.
    fn forget(&self, key: &Key) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// A part of a store that fails on its own, such as a node of Redis. Numbers are given from 0 up
/// and never mean another part later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);
