//! A fixture: several instances over one node with latency and lost calls, in paused time.

use std::sync::Arc;
use std::time::Duration;

use crate::decision::Decision;
use crate::key::CounterKey;
use crate::limit::{Limit, Mode};
use crate::modes::CounterCheck;
use crate::modes::leased::{LeasedMode, SHARDS};
use crate::store::{SharedStore, StoreError};
use crate::testing::network::{Conditions, LocalClock, Network};
use crate::testing::simulated_store::SimulatedStore;
use crate::time::{Clock, Micros};

/// The instant at which every test begins. It is the start of a window of every used length.
pub(super) const BEGIN: Micros = Micros::from_secs(1_800_000_000);

/// The conditions of a network in which a call takes at most `jitter` milliseconds each way.
pub(super) const fn within(jitter: u64) -> Conditions {
    Conditions { latency: 0, jitter, loss_percent: 0, cut_percent: 0 }
}

/// A network to one node, which all instances share.
pub(super) fn network(seed: u64, conditions: Conditions) -> Arc<Network> {
    Network::new(seed, BEGIN, 1, conditions)
}

/// One instance.
pub(super) struct Instance {
    pub(super) leased: LeasedMode<SimulatedStore>,
    store: Arc<SimulatedStore>,
    clock: LocalClock,
}

impl Instance {
    /// An instance whose clock is `ahead` microseconds ahead of the node.
    pub(super) fn new(network: &Arc<Network>, ahead: i64) -> Arc<Instance> {
        Instance::with_timeout(network, ahead, None)
    }

    /// An instance whose requests wait at most `timeout`.
    pub(super) fn with_timeout(
        network: &Arc<Network>,
        ahead: i64,
        timeout: Option<Duration>,
    ) -> Arc<Instance> {
        let clock = LocalClock::new(network, ahead);
        let store = Arc::new(SimulatedStore::new(network, 0, &clock).with_timeout(timeout));
        let leased = LeasedMode::with_shards(store.clone(), Arc::default(), SHARDS);
        Arc::new(Instance { leased, store, clock })
    }

    /// The instance's clock.
    pub(super) fn local(&self) -> Micros {
        self.clock.now()
    }

    /// A request at the current instant.
    pub(super) async fn hit(
        &self,
        key: &CounterKey,
        limit: &Limit,
        hits: i64,
    ) -> Result<Decision, StoreError> {
        self.hit_as_of(key, limit, hits, self.local()).await
    }

    /// A request that read its clock at `local`.
    pub(super) async fn hit_as_of(
        &self,
        key: &CounterKey,
        limit: &Limit,
        hits: i64,
        local: Micros,
    ) -> Result<Decision, StoreError> {
        self.hit_within(key, limit, hits, local, None).await
    }

    /// A request that read its clock at `local`, from a caller that waits at most `timeout`.
    pub(super) async fn hit_within(
        &self,
        key: &CounterKey,
        limit: &Limit,
        hits: i64,
        local: Micros,
        timeout: Option<Duration>,
    ) -> Result<Decision, StoreError> {
        let check = CounterCheck {
            key,
            limit,
            hits,
            lease: None,
            mode: Mode::Leased,
            over_limit_cache: true,
            local_now: local,
            store_now: self.store.now(key, local),
            timeout,
        };
        self.leased.check(&check).await
    }

    /// Runs the periodic work of all shards.
    pub(super) async fn run_due(&self) {
        for _ in 0..SHARDS {
            self.leased.run_due(self.local(), 1);
        }
    }

    pub(super) async fn close(&self) {
        self.leased.close(self.local()).await;
    }
}
