//! A fixture: several instances over one store with latency and lost calls, in paused time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::decision::Decision;
use crate::key::Key;
use crate::limit::{Limit, Mode};
use crate::modes::CounterCheck;
use crate::modes::leased::{LeasedPath, SHARDS};
use crate::step::{Outcome, State, Step};
use crate::store::{Store, StoreError};
use crate::time::Micros;

/// The instant at which every test begins. It is the start of a window of every used length.
pub(super) const BEGIN: Micros = Micros::from_secs(1_800_000_000);

/// The random number generator SplitMix64.
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True once in `times`; never if that is 0.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }
}

/// The faults of the shared store.
pub(super) struct Faults {
    /// The longest latency, in microseconds, each way.
    pub(super) latency: u64,
    /// One call in this number is lost, before or after its step is applied. 0 means none.
    pub(super) loses: u64,
}

/// The counters that all instances share.
pub(super) struct Cluster {
    begin: Instant,
    faults: Faults,
    rng: Mutex<Rng>,
    counters: Mutex<HashMap<Key, Option<State>>>,
    /// The largest count of each fixed window.
    pub(super) highest: Mutex<HashMap<(Key, Micros), u64>>,
    pub(super) calls: AtomicU64,
    pub(super) lost: AtomicU64,
    /// Whether the store is unreachable.
    pub(super) unreachable: AtomicBool,
    /// Whether calls never complete.
    pub(super) stalled: AtomicBool,
    /// The store's timeout in milliseconds. 0 means none.
    pub(super) timeout: AtomicU64,
}

impl Cluster {
    pub(super) fn new(seed: u64, faults: Faults) -> Arc<Cluster> {
        Arc::new(Cluster {
            begin: Instant::now(),
            faults,
            rng: Mutex::new(Rng(seed)),
            counters: Mutex::default(),
            highest: Mutex::default(),
            calls: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            unreachable: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            timeout: AtomicU64::new(0),
        })
    }

    /// The current instant by the store's clock.
    pub(super) fn now(&self) -> Micros {
        BEGIN.saturating_add(Micros(self.begin.elapsed().as_micros() as u64))
    }

    pub(super) fn is_slow(&self) -> bool {
        self.faults.latency > 0
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    async fn delay(&self) {
        let latency = self.rng.lock().unwrap().below(self.faults.latency + 1);
        if latency > 0 {
            tokio::time::sleep(Duration::from_micros(latency)).await;
        }
    }

    fn loses(&self) -> bool {
        let lost = self.rng.lock().unwrap().once_in(self.faults.loses);
        self.lost.fetch_add(u64::from(lost), Ordering::Relaxed);
        lost
    }

    async fn apply(&self, key: Key, step: Step) -> Result<Outcome, StoreError> {
        if self.unreachable.load(Ordering::Relaxed) {
            return Err(StoreError::Unreachable);
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.stalled.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.delay().await;
        if self.loses() {
            return Err(StoreError::Timeout);
        }
        let outcome = self.count(key, &step);
        self.delay().await;
        if self.loses() { Err(StoreError::ConnectionLost) } else { Ok(outcome) }
    }

    fn count(&self, key: Key, step: &Step) -> Outcome {
        let mut counters = self.counters.lock().unwrap();
        let state = counters.entry(key).or_default();
        let outcome = step.apply(state);
        if let Some(State::FixedWindow(tiers)) = state {
            let first = tiers.as_slice()[0];
            let mut highest = self.highest.lock().unwrap();
            let most = highest.entry((key, first.start)).or_default();
            *most = first.count.max(*most);
        }
        outcome
    }
}

/// One instance's view of the cluster.
pub(super) struct Shared {
    cluster: Arc<Cluster>,
    /// The instance's clock minus the store's, in microseconds.
    offset: i64,
}

impl Store for Shared {
    fn now(&self, _key: &Key, local: Micros) -> Result<Micros, StoreError> {
        if self.cluster.unreachable.load(Ordering::Relaxed) {
            return Err(StoreError::Unreachable);
        }
        Ok(Micros(local.0.saturating_add_signed(-self.offset)))
    }

    fn timeout(&self) -> Option<Duration> {
        let millis = self.cluster.timeout.load(Ordering::Relaxed);
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    async fn apply_within(
        &self,
        key: &Key,
        step: &Step,
        _: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        self.cluster.apply(*key, step.clone()).await
    }

    fn apply_detached(&self, key: &Key, step: Step) {
        let (cluster, key) = (self.cluster.clone(), *key);
        tokio::spawn(async move { cluster.apply(key, step).await });
    }

    async fn delete(&self, _: &Key) -> Result<bool, StoreError> {
        unreachable!("no test deletes counters")
    }
}

/// One instance.
pub(super) struct Instance {
    pub(super) leased: LeasedPath<Shared>,
    cluster: Arc<Cluster>,
    offset: i64,
}

impl Instance {
    pub(super) fn new(cluster: &Arc<Cluster>, offset: i64) -> Arc<Instance> {
        let shared = Shared { cluster: cluster.clone(), offset };
        let leased = LeasedPath::with_shards(Arc::new(shared), SHARDS);
        Arc::new(Instance { leased, cluster: cluster.clone(), offset })
    }

    /// The instance's clock.
    pub(super) fn local(&self) -> Micros {
        Micros(self.cluster.now().0.saturating_add_signed(self.offset))
    }

    /// A request at the current instant.
    pub(super) async fn hit(
        &self,
        key: &Key,
        limit: &Limit,
        hits: i64,
    ) -> Result<Decision, StoreError> {
        self.hit_as_of(key, limit, hits, self.local()).await
    }

    /// A request that read its clock at `local`.
    pub(super) async fn hit_as_of(
        &self,
        key: &Key,
        limit: &Limit,
        hits: i64,
        local: Micros,
    ) -> Result<Decision, StoreError> {
        self.hit_within(key, limit, hits, local, None).await
    }

    /// A request that read its clock at `local`, from a caller that waits at most `timeout`.
    pub(super) async fn hit_within(
        &self,
        key: &Key,
        limit: &Limit,
        hits: i64,
        local: Micros,
        timeout: Option<Duration>,
    ) -> Result<Decision, StoreError> {
        let shared = Shared { cluster: self.cluster.clone(), offset: self.offset };
        let now = shared.now(key, local);
        let mode = Mode::Leased;
        let check = CounterCheck {
            key,
            limit,
            hits,
            lease: None,
            mode,
            over_limit_cache: true,
            local_now: local,
            store_now: now,
            timeout,
        };
        self.leased.check(&check).await
    }

    /// Runs the periodic work of all shards.
    pub(super) async fn run_due(&self) {
        for _ in 0..super::super::SHARDS {
            self.leased.run_due(self.local());
        }
    }

    pub(super) async fn close(&self) {
        self.leased.close(self.local()).await;
    }
}
