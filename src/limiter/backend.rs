//! The backend of a limiter: counters in memory, or in Redis behind the consistency modes.

use crate::key::CounterKey;
use crate::limit::Mode;
use crate::modes::Modes;
use crate::step::{Outcome, Step};
use crate::store::{GuardedStore, MemoryStore, RedisStore, SharedStore, StoreError};
use crate::time::{Micros, SystemClock};

/// The counters of a limiter.
pub enum Backend<S = GuardedStore<RedisStore, SystemClock>> {
    /// Counters in the memory of this process. Every decision queries them, in every mode.
    Memory(MemoryStore),
    /// Counters in Redis, behind the consistency modes. Tests use other stores instead of Redis.
    Redis(Modes<S>),
}

impl<S> Backend<S> {
    /// The counters in memory; `None` if they are in Redis.
    pub fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Backend::Memory(store) => Some(store),
            Backend::Redis(_) => None,
        }
    }

    /// The consistency modes; `None` if the counters are in memory.
    pub fn modes(&self) -> Option<&Modes<S>> {
        match self {
            Backend::Memory(_) => None,
            Backend::Redis(modes) => Some(modes),
        }
    }
}

impl<S: SharedStore> Backend<S> {
    /// The shared store behind the consistency modes; `None` if the counters are in memory.
    pub fn shared_store(&self) -> Option<&S> {
        self.modes().map(Modes::store)
    }

    /// The instant for a step on `key`, by the store's clock, at `local` by the local clock.
    pub(super) fn now(&self, key: &CounterKey, local: Micros) -> Result<Micros, StoreError> {
        match self {
            Backend::Memory(_) => Ok(local),
            Backend::Redis(modes) => modes.store().now(key, local),
        }
    }

    /// Applies `step` to the counter in the store, without its consistency mode.
    pub(super) async fn apply(&self, key: &CounterKey, step: &Step) -> Result<Outcome, StoreError> {
        match self {
            Backend::Memory(store) => store.apply_now(key, step),
            Backend::Redis(modes) => modes.store().apply(key, step).await,
        }
    }

    /// Applies a step that gives back what a decision in `mode` took, without waiting for the
    /// outcome.
    pub(super) fn apply_detached(&self, key: &CounterKey, mode: Mode, step: Step) {
        match self {
            // A step that gives back needs no room, so it cannot fail.
            Backend::Memory(store) => drop(store.apply_now(key, &step)),
            Backend::Redis(modes) => modes.apply_detached(key, mode, step),
        }
    }

    /// Deletes the counter `key`, also from the modes' caches. Returns whether it existed.
    pub(super) async fn delete(&self, key: &CounterKey) -> Result<bool, StoreError> {
        match self {
            Backend::Memory(store) => Ok(store.delete(key)),
            Backend::Redis(modes) => modes.delete(key).await,
        }
    }
}
