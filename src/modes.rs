//! Consistency modes of counters in Redis: exact, leased, synced. They differ in how often a
//! decision calls Redis.
//!
//! ```text
//! exact  -> over-limit cache -> store
//! leased -> over-limit cache -> store
//! synced -------------------->  store
//! ```
//!
//! Each mode decides from local state if possible, and otherwise calls the next stage. The over-limit
//! cache implements [`SharedStore`], so a mode works with and without it.
//! `docs/guides/modes.md` has the guarantee of each mode.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;

use crate::decision::Decision;
use crate::key::CounterKey;
use crate::limit::{Limit, Mode};
use crate::step::{self, Lease, Step};
use crate::store::{SharedStore, StoreError};
use crate::time::Micros;

mod exact;
mod job;
mod leased;
mod over_limit_cache;
mod synced;

pub(crate) use job::JOB_PERIOD;
pub use leased::LeasedMetrics;
pub(crate) use leased::{
    CREDIT_POOLS_MAX, DRAINED_MAX, DRAW_AHEAD, FILL_TIME_MIN, LOW_SHIFT, POOL_GAP_MAX, RATE_STALE,
};
pub(crate) use over_limit_cache::DENIALS_MAX;
pub use synced::SyncedMetrics;
pub(crate) use synced::{REPLICA_IDLE_MAX, REPLICAS_MAX};

use exact::ExactMode;
use job::JobSignal;
use leased::LeasedMode;
use over_limit_cache::{OverLimitCache, OverLimitStore};
use synced::SyncedMode;

/// A check of one descriptor against its counter.
#[derive(Clone, Copy, Debug)]
pub struct CounterCheck<'a> {
    /// The counter.
    pub key: &'a CounterKey,
    /// The limit of the counter.
    pub limit: &'a Limit,
    /// Hits to take (positive), to give back (negative), or 0 to peek.
    pub hits: i64,
    /// The lease that the hits open or close. Only mode exact supports leases.
    pub lease: Option<Lease>,
    /// The rule's mode.
    pub mode: Mode,
    /// Whether the over-limit cache may deny. Only mode exact reads this.
    pub over_limit_cache: bool,
    /// The instant of the request, by the local clock.
    pub local_now: Micros,
    /// The instant of the request, by the store's clock; an error if that clock is unknown.
    pub store_now: Result<Micros, StoreError>,
    /// The caller's timeout for the decision.
    pub timeout: Option<Duration>,
}

impl CounterCheck<'_> {
    /// Whether hits or a lease are given back, so that a full counter may have room.
    fn gives_back(&self) -> bool {
        step::gives_back(self.hits, self.lease)
    }
}

/// All modes over one store. The mode of the rule selects one.
pub struct Modes<S> {
    /// The mode of exact rules that do not use the over-limit cache.
    uncached: ExactMode<S>,
    exact: ExactMode<OverLimitStore<S>>,
    leased: LeasedMode<OverLimitStore<S>>,
    synced: SyncedMode<S>,
    over_limit: Arc<OverLimitCache>,
    /// Whether exact rules use the over-limit cache.
    caches_denials: bool,
    /// Wakes the background job.
    signal: Arc<JobSignal>,
}

impl<S: SharedStore> Modes<S> {
    /// The modes over `store`, which several instances share.
    pub fn new(store: S) -> Modes<S> {
        Modes::build(store, true, OverLimitCache::new(), leased::SHARDS)
    }

    /// The modes over `store`, with small tables: a simulation has thousands of instances.
    #[cfg(test)]
    pub(crate) fn small(store: S) -> Modes<S> {
        Modes::build(store, true, OverLimitCache::with_sets(16), 4)
    }

    /// The modes over `store`, without an over-limit cache.
    pub fn without_over_limit_cache(store: S) -> Modes<S> {
        Modes::build(store, false, OverLimitCache::new(), leased::SHARDS)
    }

    fn build(
        store: S,
        caches_denials: bool,
        over_limit: OverLimitCache,
        shards: usize,
    ) -> Modes<S> {
        let (store, over_limit) = (Arc::new(store), Arc::new(over_limit));
        let signal = Arc::<JobSignal>::default();
        let cached = |max_age| OverLimitStore::new(store.clone(), over_limit.clone(), max_age);
        let leased_age = if caches_denials { over_limit_cache::DENIAL_TTL } else { Micros::ZERO };
        Modes {
            uncached: ExactMode::new(store.clone()),
            exact: ExactMode::new(Arc::new(cached(over_limit_cache::DENIAL_TTL))),
            leased: LeasedMode::with_shards(Arc::new(cached(leased_age)), signal.clone(), shards),
            synced: SyncedMode::new(store.clone(), signal.clone()),
            over_limit,
            caches_denials,
            signal,
        }
    }

    /// The store that the instances share.
    pub fn store(&self) -> &S {
        self.uncached.store()
    }

    /// The store that the instances share, for a job beside the modes.
    pub fn store_arc(&self) -> Arc<S> {
        self.uncached.store().clone()
    }

    /// The mode of leased rules.
    pub fn leased(&self) -> &LeasedMode<OverLimitStore<S>> {
        &self.leased
    }

    /// The mode of synced rules.
    pub fn synced(&self) -> &SyncedMode<S> {
        &self.synced
    }

    /// The over-limit cache.
    pub fn over_limit(&self) -> &OverLimitCache {
        &self.over_limit
    }

    /// Decides in the mode of the check.
    ///
    /// # Errors
    ///
    /// The store's error, where the decision needs the store. The rule's `on_error` then decides.
    pub async fn check(&self, check: &CounterCheck<'_>) -> Result<Decision, StoreError> {
        match check.mode {
            // Hits that are given back invalidate the cache, even if the rule no longer uses it.
            Mode::Exact if self.caches_denials && check.over_limit_cache || check.gives_back() => {
                self.exact.check(check).await
            }
            Mode::Exact => self.uncached.check(check).await,
            Mode::Leased => self.leased.check(check).await,
            Mode::Synced { .. } => {
                if check.gives_back() {
                    self.over_limit
                        .invalidate(check.key, check.store_now.unwrap_or(check.local_now));
                }
                self.synced.check(check).await
            }
        }
    }

    /// Applies a step that gives back what a decision in `mode` took, without waiting for the
    /// outcome.
    pub fn apply_detached(&self, key: &CounterKey, mode: Mode, step: Step) {
        match mode {
            Mode::Exact => self.exact.apply_detached(key, step),
            Mode::Leased => self.leased.apply_detached(key, step),
            Mode::Synced { .. } => {
                self.over_limit.invalidate(key, step.now);
                self.synced.apply_detached(key, step);
            }
        }
    }

    /// Sends the counts and unspent credits that the store does not have yet, before the process
    /// ends.
    pub async fn close(&self, local: Micros) {
        join(self.leased.close(local), self.synced.close(local)).await;
    }

    /// Deletes the counter `key` from the store and from the modes' caches. Returns whether it
    /// existed.
    ///
    /// # Errors
    ///
    /// The store's error, if the counter may still exist.
    pub async fn delete(&self, key: &CounterKey) -> Result<bool, StoreError> {
        self.leased.delete(key);
        self.synced.delete(key);
        self.exact.store().delete(key).await
    }
}
