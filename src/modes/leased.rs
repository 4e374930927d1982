//! Mode leased: draws hits from the store ahead of requests, as credits, and spends them locally.
//!
//! A refill is one step that takes `m` hits, each of which becomes a credit. The store treats a
//! refill like a request, so it never grants more than the limit. `docs/design/modes.md` proves that
//! spending a credit later than it was drawn does not exceed a limit either.
//!
//! # Cost
//!
//! A counter with less than one request in two seconds is decided by the store, without a credit
//! pool. A busy counter costs one refill in about two seconds, if the limit has that much room.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::CounterCheck;
use super::job::JobSignal;
use crate::algorithm;
use crate::decision::Decision;
use crate::key::CounterKey;
use crate::step::Step;
use crate::store::{self, SharedStore, StoreError};
use crate::time::Micros;

mod credit_pool;
mod credits;
mod demand;
mod hot_keys;
mod in_flight;
mod leased_limit;
mod metrics;
mod operation;
mod pool_shard;
mod spans;

#[cfg(test)]
mod tests;

pub(crate) use demand::{DRAW_AHEAD, LOW_SHIFT, RATE_STALE};
pub(crate) use hot_keys::POOL_GAP_MAX;
pub(crate) use leased_limit::{DRAINED_MAX, FILL_TIME_MIN};
pub use metrics::LeasedMetrics;

use credit_pool::{Acquire, CreditPool};
use in_flight::InFlight;
use leased_limit::LeasedLimit;
use metrics::add;
use operation::Operation;
use pool_shard::PoolShard;

/// Shards of the table, each with its own lock. The background job searches one shard per period for idle pools.
pub(super) const SHARDS: usize = 64;

/// Most credit pools per shard. The store decides further counters.
const POOLS_MAX: usize = 1_024;

/// Most credit pools of an instance.
pub(crate) const CREDIT_POOLS_MAX: usize = SHARDS * POOLS_MAX;

/// Time without a request after which the unspent credits of a counter are returned.
const IDLE_TIMEOUT: Micros = Micros::from_secs(4);

/// Longest time for returning all credits when the process ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Concurrent returns when the process ends.
const CLOSE_CONCURRENCY: usize = 256;

/// The mode of leased rules.
pub struct LeasedMode<S> {
    inner: Arc<Pools<S>>,
}

struct Pools<S> {
    store: Arc<S>,
    shards: Box<[Mutex<PoolShard>]>,
    /// The shard that is searched next.
    next_shard: AtomicUsize,
    /// Whether the process is ending. The store then decides every request.
    closed: AtomicBool,
    /// Operations in flight.
    in_flight: AtomicUsize,
    /// Whether a return of credits failed at the end of the process.
    return_failed: AtomicBool,
    /// Notified when an operation has ended.
    ended: Notify,
    metrics: LeasedMetrics,
    /// Wakes the background job.
    signal: Arc<JobSignal>,
}

/// The result of a check without a call to the store.
enum LocalResult {
    /// The request is decided.
    Decided(Result<Decision, StoreError>),
    /// The request waits for a refill.
    Queued(oneshot::Receiver<Result<Decision, StoreError>>),
    /// The store must decide this number of hits.
    Direct(i64),
}

impl<S: SharedStore> LeasedMode<S> {
    /// The mode over `store`, with this number of shards.
    pub(super) fn with_shards(
        store: Arc<S>,
        signal: Arc<JobSignal>,
        shards: usize,
    ) -> LeasedMode<S> {
        let shard = || Mutex::new(PoolShard::new());
        LeasedMode {
            inner: Arc::new(Pools {
                store,
                shards: (0..shards).map(|_| shard()).collect(),
                next_shard: AtomicUsize::new(0),
                closed: AtomicBool::new(false),
                in_flight: AtomicUsize::new(0),
                return_failed: AtomicBool::new(false),
                ended: Notify::new(),
                metrics: LeasedMetrics::default(),
                signal,
            }),
        }
    }
}

impl<S> LeasedMode<S> {
    /// The metrics of this mode since the process started.
    pub fn metrics(&self) -> &LeasedMetrics {
        &self.inner.metrics
    }

    /// Drops the unspent credits of a counter that is being deleted.
    pub(super) fn delete(&self, key: &CounterKey) {
        self.inner.shard(key).pools.get_mut(key).map(CreditPool::delete);
    }

    /// Counters with a credit pool, which may be empty.
    pub fn pools(&self) -> usize {
        self.inner.shards.iter().map(|shard| lock(shard).pools.len()).sum()
    }
}

impl<S: SharedStore> LeasedMode<S> {
    pub(super) async fn check(&self, check: &CounterCheck<'_>) -> Result<Decision, StoreError> {
        match self.inner.decide(check) {
            LocalResult::Decided(result) => result,
            LocalResult::Direct(hits) => self.inner.direct(check, hits).await,
            LocalResult::Queued(result) => {
                let result = async { result.await.unwrap_or(Err(StoreError::ConnectionLost)) };
                // The request waits at most the time of one call, even if it needs several refills.
                match check.timeout.into_iter().chain(self.inner.store.timeout()).min() {
                    None => result.await,
                    Some(timeout) => store::with_timeout(timeout, result).await,
                }
            }
        }
    }

    pub(super) fn apply_detached(&self, key: &CounterKey, step: Step) {
        if !self.inner.try_refund(key, &step) {
            self.inner.store.apply_detached(key, step);
        }
    }

    /// Returns the idle credits of the next `count` shards, each at most once.
    pub(super) fn run_due(&self, local: Micros, count: usize) {
        let shards = &self.inner.shards;
        for _ in 0..count.min(shards.len()) {
            let index = self.inner.next_shard.fetch_add(1, Ordering::Relaxed) % shards.len();
            for (key, operation) in self.inner.returns(&shards[index], local) {
                self.inner.start(key, operation);
            }
        }
    }

    pub(super) async fn close(&self, local: Micros) {
        if !self.return_all(local).await {
            tracing::warn!(
                "unspent credits were not returned to Redis; they count until their window ends \
                 or their bucket drains"
            );
        }
    }

    /// Returns the credits of all pools. From here on the store decides every request. The result is
    /// false if a return failed or did not end in [`CLOSE_TIMEOUT`].
    async fn return_all(&self, local: Micros) -> bool {
        self.inner.closed.store(true, Ordering::Relaxed);
        let mut returns = Vec::new();
        for shard in &self.inner.shards {
            for (key, pool) in &mut lock(shard).pools {
                let now = pool.now(local);
                returns.extend(
                    pool.return_all(now, &self.inner.metrics).map(|operation| (*key, operation)),
                );
            }
        }
        returns.sort_by_key(|(key, _)| *key);
        let all = async {
            self.inner.wait().await;
            for chunk in returns.chunks(CLOSE_CONCURRENCY) {
                for (key, operation) in chunk {
                    self.inner.start(*key, operation.clone());
                }
                self.inner.wait().await;
            }
        };
        let in_time = tokio::time::timeout(CLOSE_TIMEOUT, all).await.is_ok();
        in_time && !self.inner.return_failed.load(Ordering::Relaxed)
    }
}

impl<S> Pools<S> {
    fn shard(&self, key: &CounterKey) -> MutexGuard<'_, PoolShard> {
        lock(&self.shards[(key.0[0] % self.shards.len() as u64) as usize])
    }

    /// Waits until no operation is in flight.
    async fn wait(&self) {
        loop {
            let ended = self.ended.notified();
            let mut ended = std::pin::pin!(ended);
            // From here on no notification is missed.
            ended.as_mut().enable();
            if self.in_flight.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl<S: SharedStore> Pools<S> {
    /// Decides from the counter's credit pool, if it has enough credits.
    fn decide(self: &Arc<Self>, check: &CounterCheck<'_>) -> LocalResult {
        if check.lease.is_some() || self.closed.load(Ordering::Relaxed) {
            return LocalResult::Direct(check.hits);
        }
        let mut shard = self.shard(check.key);
        let Some(pool) = shard.pool(check, self.store.timeout(), &self.signal) else {
            return LocalResult::Direct(check.hits);
        };
        let now = pool.touch(check.local_now, check.store_now.ok());
        if pool.limit().as_limit() != check.limit {
            match LeasedLimit::of(check.limit) {
                Some(limit) => pool.change_limit(limit),
                None => {
                    let operation = pool.return_all(now, &self.metrics);
                    drop(shard);
                    self.start_if_any(check.key, operation);
                    return LocalResult::Direct(check.hits);
                }
            }
        }
        pool.take_expired_windows(now);
        let (result, operation) = self.serve(pool, check, now);
        drop(shard);
        self.start_if_any(check.key, operation);
        result
    }

    fn serve(
        &self,
        pool: &mut CreditPool,
        check: &CounterCheck<'_>,
        now: Micros,
    ) -> (LocalResult, Option<Operation>) {
        let hits = check.hits.unsigned_abs();
        if check.hits < 0 {
            let rest = hits - pool.refund(hits, now);
            return match i64::try_from(rest) {
                Ok(0) => (LocalResult::Decided(Ok(pool.peek(now))), None),
                _ => (LocalResult::Direct(-i64::try_from(rest).unwrap_or(i64::MAX)), None),
            };
        }
        if !pool.serves(hits.max(1), now) {
            // The pool has too few credits, so the store must decide. That requires its clock.
            match check.store_now {
                Err(error) => return (LocalResult::Decided(Err(error)), None),
                Ok(_) if hits == 0 || Handle::try_current().is_err() => {
                    return (LocalResult::Direct(check.hits), None);
                }
                Ok(_) => {}
            }
        }
        if hits == 0 {
            return (LocalResult::Decided(Ok(pool.peek(now))), None);
        }
        let ahead = check.store_now.is_ok() && Handle::try_current().is_ok();
        match pool.acquire(hits, now, ahead, &self.metrics) {
            (Acquire::Granted(decision), next) => (LocalResult::Decided(Ok(decision)), next),
            (Acquire::Queued(result), next) => (LocalResult::Queued(result), next),
        }
    }

    /// Lets the store decide `hits`.
    async fn direct(&self, check: &CounterCheck<'_>, hits: i64) -> Result<Decision, StoreError> {
        let step = algorithm::plan_with_lease(check.limit, hits, check.lease, check.store_now?);
        add(&self.metrics.direct, 1);
        let outcome = self.store.apply_within(check.key, &step, check.timeout).await?;
        if hits < 0 {
            // A refill in flight was possibly denied before that.
            self.shard(check.key).pools.get_mut(check.key).map(CreditPool::mark_outdated);
        }
        Ok(algorithm::report(check.limit, &step, &outcome))
    }

    /// Puts the hits of a detached refund back into the pool, if all of them fit.
    fn try_refund(&self, key: &CounterKey, step: &Step) -> bool {
        let mut shard = self.shard(key);
        let Some(pool) = shard.pools.get_mut(key) else { return false };
        let hits = step.hits.unsigned_abs();
        let same_limit = algorithm::plan(pool.limit().as_limit(), step.hits, step.now) == *step;
        if step.hits >= 0 || !same_limit {
            return false;
        }
        pool.spent(step.now) >= hits && pool.refund(hits, step.now) == hits
    }

    /// Sends an operation on a separate task, so that it continues if its requests are cancelled.
    fn start(self: &Arc<Self>, key: CounterKey, operation: Operation) {
        let mut in_flight = InFlight::new(self.clone(), key, operation);
        tokio::spawn(async move {
            while let Some(operation) = in_flight.operation.clone() {
                let result = in_flight.inner.store.apply(&key, &operation.step).await;
                in_flight.complete(&result);
            }
        });
    }

    /// Sends the operation that a request needs. Without a runtime there is none to send it on, and
    /// it completes as lost.
    fn start_if_any(self: &Arc<Self>, key: &CounterKey, operation: Option<Operation>) {
        let Some(operation) = operation else { return };
        match Handle::try_current() {
            Ok(_) => self.start(*key, operation),
            Err(_) => drop(InFlight::new(self.clone(), *key, operation)),
        }
    }

    /// Removes empty pools, and starts to return the credits of idle ones.
    fn returns(&self, shard: &Mutex<PoolShard>, local: Micros) -> Vec<(CounterKey, Operation)> {
        let mut returns = Vec::new();
        lock(shard).pools.retain(|key, pool| {
            if pool.is_busy() {
                return true;
            }
            let now = pool.now(local);
            pool.take_expired_windows(now);
            if pool.idle(local) < IDLE_TIMEOUT {
                returns.extend(
                    pool.next_return(now, &self.metrics).map(|operation| (*key, operation)),
                );
                return true;
            }
            returns.extend(pool.return_all(now, &self.metrics).map(|operation| (*key, operation)));
            !pool.is_empty(local)
        });
        returns.sort_by_key(|(key, _)| *key);
        returns
    }
}

fn lock(shard: &Mutex<PoolShard>) -> MutexGuard<'_, PoolShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
