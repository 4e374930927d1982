//! A fake store: counters and quotas in memory, whose calls can take time, and can be held back,
//! rejected or lost.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::lock;
use crate::key::{CounterKey, RuleId};
use crate::quota::{Ledger, LedgerSnapshot, Settlement};
use crate::step::{Outcome, Step};
use crate::store::{
    MemoryStore, NodeAware, NodeId, QUOTA_RULES_KEY, QuotaStore, SharedStore, StoreError,
};
use crate::time::Micros;

/// The most counters.
const COUNTERS_MAX: usize = 100_000;

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FakeResult {
    /// The step is applied.
    Applied,
    /// The step is not applied, and the caller gets this error. The error may leave that open.
    Rejected(StoreError),
    /// The step is applied, and the caller gets this error instead of the outcome.
    Lost(StoreError),
}

/// A store of two nodes. Node 1 has the keys whose first half is 2, and node 0 all others.
pub(crate) struct FakeStore {
    /// The counters.
    pub(crate) memory: MemoryStore,
    quotas: Mutex<HashMap<CounterKey, Ledger>>,
    /// The announced rules, each with the instant from which it is out of date.
    quota_rules: Mutex<Vec<(RuleId, Micros)>>,
    calls: AtomicUsize,
    detached: AtomicUsize,
    reachable: AtomicBool,
    /// Whether outcomes are held back until they are released. Steps are applied at once.
    held: AtomicBool,
    /// The released outcomes of each node.
    released: [Semaphore; 2],
    /// The results of the next calls.
    next: Mutex<VecDeque<FakeResult>>,
    /// The result of all calls after them.
    usual: Mutex<FakeResult>,
    /// The duration of a call.
    takes: Duration,
    timeout: Option<Duration>,
}

impl FakeStore {
    /// An empty store that answers at once.
    pub(crate) fn new() -> FakeStore {
        FakeStore {
            memory: MemoryStore::new(COUNTERS_MAX),
            quotas: Mutex::default(),
            quota_rules: Mutex::default(),
            calls: AtomicUsize::new(0),
            detached: AtomicUsize::new(0),
            reachable: AtomicBool::new(true),
            held: AtomicBool::new(false),
            released: [Semaphore::new(0), Semaphore::new(0)],
            next: Mutex::default(),
            usual: Mutex::new(FakeResult::Applied),
            takes: Duration::ZERO,
            timeout: None,
        }
    }

    /// This store with calls that take this time, and a timeout.
    pub(crate) fn taking(self, takes: Duration, timeout: Option<Duration>) -> FakeStore {
        FakeStore { takes, timeout, ..self }
    }

    /// This store with outcomes that are held back.
    pub(crate) fn holding(self) -> FakeStore {
        self.set_held(true);
        self
    }

    /// This store with a result for every call.
    pub(crate) fn with_result(self, result: FakeResult) -> FakeStore {
        self.set_result(result);
        self
    }

    /// The calls since the last time that this was asked, detached ones included.
    pub(crate) fn take_calls(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }

    /// All detached calls.
    pub(crate) fn detached(&self) -> usize {
        self.detached.load(Ordering::Relaxed)
    }

    /// Sets whether the store has a connection.
    pub(crate) fn set_reachable(&self, reachable: bool) {
        self.reachable.store(reachable, Ordering::Relaxed);
    }

    /// Sets whether the outcomes of new calls are held back.
    pub(crate) fn set_held(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
    }

    /// Releases this number of held outcomes of a node.
    pub(crate) fn release(&self, node: usize, outcomes: usize) {
        self.released[node].add_permits(outcomes);
    }

    /// Sets the result of the next call without one.
    pub(crate) fn push_result(&self, result: FakeResult) {
        lock(&self.next).push_back(result);
    }

    /// Removes the results of the next calls.
    pub(crate) fn clear_results(&self) {
        lock(&self.next).clear();
    }

    /// Sets the result of all calls that have no other one.
    pub(crate) fn set_result(&self, result: FakeResult) {
        *lock(&self.usual) = result;
    }

    /// A call that does `apply` on the key's node.
    async fn call<T>(
        &self,
        key: &CounterKey,
        timeout: Option<Duration>,
        apply: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if !self.takes.is_zero() {
            let timeout = timeout.into_iter().chain(self.timeout).min().unwrap_or(Duration::MAX);
            tokio::time::sleep(self.takes.min(timeout)).await;
            if self.takes > timeout {
                return Err(StoreError::Timeout);
            }
        }
        if !self.reachable.load(Ordering::Relaxed) {
            return Err(StoreError::Unreachable);
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        let result = self.next_result();
        if let FakeResult::Rejected(error) = result {
            return Err(error);
        }
        let outcome = apply();
        self.outcome_is_released(key).await;
        match result {
            FakeResult::Lost(error) => outcome.and(Err(error)),
            FakeResult::Applied | FakeResult::Rejected(_) => outcome,
        }
    }

    fn next_result(&self) -> FakeResult {
        let next = lock(&self.next).pop_front();
        next.unwrap_or_else(|| *lock(&self.usual))
    }

    /// Waits until an outcome of the key's node is released, if outcomes are held back.
    async fn outcome_is_released(&self, key: &CounterKey) {
        if self.held.load(Ordering::Relaxed) {
            let released = &self.released[self.node(key).0 as usize];
            released.acquire().await.expect("never closed").forget();
        }
    }
}

impl NodeAware for FakeStore {
    fn node(&self, key: &CounterKey) -> NodeId {
        NodeId(u32::from(key.0[0] == 2))
    }

    fn node_address(&self, node: NodeId) -> String {
        node.0.to_string()
    }
}

impl SharedStore for FakeStore {
    fn now(&self, _: &CounterKey, local: Micros) -> Result<Micros, StoreError> {
        let reachable = self.reachable.load(Ordering::Relaxed);
        if reachable { Ok(local) } else { Err(StoreError::Unreachable) }
    }

    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    async fn apply_within(
        &self,
        key: &CounterKey,
        step: &Step,
        timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        self.call(key, timeout, || self.memory.apply_now(key, step)).await
    }

    fn apply_detached(&self, key: &CounterKey, step: Step) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.detached.fetch_add(1, Ordering::Relaxed);
        drop(self.memory.apply_now(key, &step));
    }

    async fn delete(&self, key: &CounterKey) -> Result<bool, StoreError> {
        self.outcome_is_released(key).await;
        Ok(self.memory.delete(key))
    }
}

impl QuotaStore for FakeStore {
    async fn settle(
        &self,
        key: &CounterKey,
        settlement: &Settlement,
    ) -> Result<LedgerSnapshot, StoreError> {
        let settle = || Ok(lock(&self.quotas).entry(*key).or_default().settle(settlement));
        self.call(key, None, settle).await
    }

    async fn announce_quota_rules(
        &self,
        rules: &[RuleId],
        local: Micros,
        length: Micros,
    ) -> Result<(), StoreError> {
        let until = local.saturating_add(length);
        let announce = || {
            let mut announced = lock(&self.quota_rules);
            announced.retain(|(rule, end)| *end > local && !rules.contains(rule));
            announced.extend(rules.iter().map(|rule| (*rule, until)));
            Ok(())
        };
        self.call(&QUOTA_RULES_KEY, None, announce).await
    }

    async fn quota_rules(&self, local: Micros) -> Result<Vec<RuleId>, StoreError> {
        let current = || {
            let announced = lock(&self.quota_rules);
            let current = announced.iter().filter(|(_, end)| *end > local);
            Ok(current.map(|(rule, _)| *rule).collect())
        };
        self.call(&QUOTA_RULES_KEY, None, current).await
    }
}
