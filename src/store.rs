//! Stores of counters. A store applies steps to keys, and has no access to rules or limits.

use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::key::{CounterKey, RuleId};
use crate::quota::{LedgerSnapshot, Settlement};
use crate::step::{Outcome, Step};
use crate::time::Micros;

pub mod call_trace;
pub mod guarded;
pub mod memory;
pub mod redis;

pub use crate::store_error::StoreError;
pub use guarded::GuardedStore;
pub(crate) use guarded::{IN_FLIGHT_MAX, with_timeout};
pub use memory::MemoryStore;
pub use redis::{CommandBound, RedisStore, RedisValue};

/// A store that instances share, such as Redis.
///
/// Contract: steps on one key are applied one after another, each to the state after the previous
/// one. A store may drop a counter only when its state no longer affects a decision.
///
/// [`MemoryStore`] has the same contract but never waits. When it is full, it also evicts counters
/// that are below their limit (see [`StoreError::MemoryFull`]).
pub trait SharedStore: Send + Sync + 'static {
    /// The instant for a step on `key`, by the store's clock, at `local` by the local clock. All
    /// instances use the store's clock.
    ///
    /// # Errors
    ///
    /// The reason why the store's clock is unknown. A call to the store would fail too.
    fn now(&self, key: &CounterKey, local: Micros) -> Result<Micros, StoreError>;

    /// The longest time that a call takes; `None` if it is unbounded.
    fn timeout(&self) -> Option<Duration>;

    /// Applies `step` to the counter `key`, within `timeout` and within the store's own timeout.
    ///
    /// # Errors
    ///
    /// The reason why there is no outcome. [`StoreError::may_have_run`] returns whether the step
    /// may have been applied.
    fn apply_within(
        &self,
        key: &CounterKey,
        step: &Step,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Applies `step` to the counter `key`, within the store's own timeout.
    ///
    /// # Errors
    ///
    /// The errors of [`apply_within`](SharedStore::apply_within).
    fn apply(
        &self,
        key: &CounterKey,
        step: &Step,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        self.apply_within(key, step, None)
    }

    /// Applies `step` without waiting for the outcome, to give hits or leases back after their
    /// request has ended. Best effort: the step is dropped if the store is unreachable. Only
    /// [`GuardedStore`] repeats it, if it releases slots.
    fn apply_detached(&self, key: &CounterKey, step: Step);

    /// Deletes the counter `key`, for operators. Returns whether it existed. Takes at most the
    /// store's own timeout.
    ///
    /// # Errors
    ///
    /// The reason why there is no outcome. The counter may still exist.
    fn delete(&self, key: &CounterKey) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// A shared store that also keeps quotas: which holder may use which share, until when.
pub trait QuotaStore: SharedStore {
    /// Applies the changes of `settlement` to the quota `key`, and returns all of its holdings, as
    /// `quota::Ledger` does. `key` is that of [`quota_key`](crate::key::quota_key). The instant of the
    /// settlement is by the store's clock for `key`. Takes at most the store's own timeout.
    ///
    /// # Errors
    ///
    /// The reason why there are no holdings. [`StoreError::may_have_run`] returns whether the changes
    /// may have been applied.
    fn settle(
        &self,
        key: &CounterKey,
        settlement: &Settlement,
    ) -> impl Future<Output = Result<LedgerSnapshot, StoreError>> + Send;

    /// Announces to all instances that the quotas of `rules` are divided, from `local` by the local
    /// clock for `length`. Only the first [`QUOTA_RULES_MAX`](redis::QUOTA_RULES_MAX) rules are
    /// announced. Takes at most the store's own timeout.
    ///
    /// # Errors
    ///
    /// The reason why not all rules were announced.
    fn announce_quota_rules(
        &self,
        rules: &[RuleId],
        local: Micros,
        length: Micros,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The rules whose quotas any instance divides at `local` by the local clock, those announced for
    /// the longest time first; at most [`QUOTA_RULES_MAX`](redis::QUOTA_RULES_MAX). Takes at most the
    /// store's own timeout.
    ///
    /// # Errors
    ///
    /// The reason why they are unknown.
    fn quota_rules(
        &self,
        local: Micros,
    ) -> impl Future<Output = Result<Vec<RuleId>, StoreError>> + Send;
}

/// Runs a call to a store without a caller. The first poll queues its step, before any later step of
/// the same caller. Without a runtime the process is ending, and the call is dropped.
fn detach(call: impl Future<Output = ()> + Send + 'static) {
    let Ok(runtime) = Handle::try_current() else { return };
    let mut call = Box::pin(call);
    if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        runtime.spawn(call);
    }
}

/// The key whose node has the announced rules of [`QuotaStore`].
pub(crate) const QUOTA_RULES_KEY: CounterKey = CounterKey([0, 0]);

/// A store whose counters are on nodes, one or several. Nodes fail independently.
pub trait NodeAware: SharedStore {
    /// The node that has the counter `key`.
    fn node(&self, key: &CounterKey) -> NodeId;

    /// The address of `node`, for the log.
    fn node_address(&self, node: NodeId) -> String;
}

/// A node of a store. Numbers start at 0 and are not reused for other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);
