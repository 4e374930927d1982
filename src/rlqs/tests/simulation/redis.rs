//! The Redis that instances share: counters, ledgers and announced rules, behind a network in virtual time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::key::{CounterKey, RuleId};
use crate::quota::{Ledger, LedgerSnapshot, Settlement};
use crate::step::{Outcome, Step};
use crate::store::{MemoryStore, NodeAware, NodeId, QuotaStore, SharedStore, StoreError};
use crate::testing::{Rng, lock};
use crate::time::Micros;

/// The default of `store.timeout`.
const TIMEOUT: Duration = Duration::from_millis(10);

/// The longest way of a call, in microseconds.
const SLOWEST: u64 = 500;

/// The data and the network.
pub(super) struct SimRedis {
    counters: MemoryStore,
    ledgers: Mutex<HashMap<CounterKey, Ledger>>,
    /// Each with the instant from which it is out of date.
    announced: Mutex<HashMap<RuleId, Micros>>,
    rng: Mutex<Rng>,
    /// No call arrives before this instant.
    stalled: Mutex<Instant>,
}

impl SimRedis {
    pub(super) fn new(seed: u64) -> Arc<SimRedis> {
        Arc::new(SimRedis {
            counters: MemoryStore::new(1_000),
            ledgers: Mutex::default(),
            announced: Mutex::default(),
            rng: Mutex::new(Rng::new(seed)),
            stalled: Mutex::new(Instant::now()),
        })
    }

    /// Answers no call for a time.
    pub(super) fn stall(&self, length: Duration) {
        *lock(&self.stalled) = Instant::now() + length;
    }

    async fn call<T>(&self, apply: impl FnOnce() -> T) -> Result<T, StoreError> {
        let way = || Duration::from_micros(100 + lock(&self.rng).below(SLOWEST));
        let (there, back, stalled) = (way(), way(), *lock(&self.stalled));
        let (sent, arrives) = (Instant::now(), stalled.max(Instant::now() + there));
        if arrives + back > sent + TIMEOUT {
            sleep(TIMEOUT).await;
            return Err(StoreError::Timeout);
        }
        sleep_until(arrives).await;
        let result = apply();
        sleep(back).await;
        Ok(result)
    }
}

/// The connection of an instance. All clocks are equal: `src/quota/tests/simulation` has others.
#[derive(Clone)]
pub(super) struct SimConnection(pub(super) Arc<SimRedis>);

impl NodeAware for SimConnection {
    fn node(&self, _: &CounterKey) -> NodeId {
        NodeId(0)
    }

    fn node_address(&self, _: NodeId) -> String {
        "simulated".to_owned()
    }
}

impl SharedStore for SimConnection {
    fn now(&self, _: &CounterKey, local: Micros) -> Result<Micros, StoreError> {
        Ok(local)
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    async fn apply_within(
        &self,
        key: &CounterKey,
        step: &Step,
        _: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        self.0.call(|| self.0.counters.apply_now(key, step)).await?
    }

    fn apply_detached(&self, key: &CounterKey, step: Step) {
        let _ = self.0.counters.apply_now(key, &step);
    }

    async fn delete(&self, key: &CounterKey) -> Result<bool, StoreError> {
        Ok(self.0.counters.delete(key))
    }
}

impl QuotaStore for SimConnection {
    async fn settle(
        &self,
        key: &CounterKey,
        settlement: &Settlement,
    ) -> Result<LedgerSnapshot, StoreError> {
        let settle = || lock(&self.0.ledgers).entry(*key).or_default().settle(settlement);
        self.0.call(settle).await
    }

    async fn announce_quota_rules(
        &self,
        rules: &[RuleId],
        local: Micros,
        length: Micros,
    ) -> Result<(), StoreError> {
        let until = local.saturating_add(length);
        let all = rules.iter().map(|rule| (*rule, until));
        self.0.call(|| lock(&self.0.announced).extend(all)).await
    }

    async fn quota_rules(&self, local: Micros) -> Result<Vec<RuleId>, StoreError> {
        let current = || {
            let announced = lock(&self.0.announced);
            let current = announced.iter().filter(|(_, until)| **until > local);
            current.map(|(rule, _)| *rule).collect()
        };
        self.0.call(current).await
    }
}
