//! The stack: one of the stores, with what stands around it; concrete types, chosen once.

use std::time::Duration;

use super::{Guard, MemoryStore, NodeId, RedisStore, Store, StoreError};
use crate::key::Key;
use crate::step::{Outcome, Step};
use crate::time::{Micros, SystemClock};

/// Where a process counts.
pub enum Stack {
    /// In its own memory, which answers at once.
    Memory(MemoryStore),
    /// In Redis, which may not answer.
    Redis(Guard<RedisStore, SystemClock>),
}

impl Stack {
    /// Counters of all processes, where it counts in them.
    pub fn redis(&self) -> Option<&Guard<RedisStore, SystemClock>> {
        match self {
            Stack::Memory(_) => None,
            Stack::Redis(guard) => Some(guard),
        }
    }

    /// Whether counters can be asked, as far as is known.
    pub fn is_reachable(&self) -> bool {
        match self {
            Stack::Memory(_) => true,
            Stack::Redis(guard) => guard.store().is_reachable(),
        }
    }
}

impl Store for Stack {
    fn now(&self, key: &Key, local: Micros) -> Result<Micros, StoreError> {
        match self {
            Stack::Memory(store) => store.now(key, local),
            Stack::Redis(store) => store.now(key, local),
        }
    }

    fn node(&self, key: &Key) -> NodeId {
        match self {
            Stack::Memory(store) => store.node(key),
            Stack::Redis(store) => store.node(key),
        }
    }

    fn deadline(&self) -> Option<Duration> {
        match self {
            Stack::Memory(store) => store.deadline(),
            Stack::Redis(store) => store.deadline(),
        }
    }

    fn in_memory(&self) -> Option<&MemoryStore> {
        match self {
            Stack::Memory(store) => Some(store),
            Stack::Redis(_) => None,
        }
    }

    async fn apply(&self, key: &Key, step: &Step) -> Result<Outcome, StoreError> {
        self.apply_within(key, step, None).await
    }

    async fn apply_within(
        &self,
        key: &Key,
        step: &Step,
        timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        match self {
            Stack::Memory(store) => store.apply_within(key, step, timeout).await,
            Stack::Redis(store) => store.apply_within(key, step, timeout).await,
        }
    }

    fn apply_detached(&self, key: &Key, step: Step) {
        match self {
            Stack::Memory(store) => store.apply_detached(key, step),
            Stack::Redis(store) => store.apply_detached(key, step),
        }
    }

    async fn forget(&self, key: &Key) -> Result<bool, StoreError> {
        match self {
            Stack::Memory(store) => store.forget(key).await,
            Stack::Redis(store) => store.forget(key).await,
        }
    }
}
