//! Mode leased: draws hits from the store ahead of requests, as tokens, and spends them locally.
//!
//! A refill is one step that takes `m` hits, each of which becomes a token. The store treats a
//! refill like a request, so it never grants more than the limit. The proof below shows that
//! spending a token later than it was drawn does not exceed a limit either.
//!
//! # Cost
//!
//! A counter with less than one request in two seconds is decided by the store, without a token
//! pool. A busy counter costs one refill in about two seconds, as long as the limit has that much
//! room.
//!
//! # Proof
//!
//! All instants are by the store's clock. A request is decided as of the instant that it read. It
//! may spend a token only if that instant is before the token's end. The comparison is made under
//! the counter's lock, so a delayed thread cannot spend an ended token, however long the delay.
//!
//! **fixed_window.** A token belongs to the window in which the store counted it, which the
//! outcome names. It ends with that window. In every window: spent <= drawn <= limit.
//!
//! **sliding_window.** As with a fixed window, spent <= drawn in every window. Let `p` and `c` be
//! the tokens drawn in the previous and the current window. The last refill of the window was
//! granted with `p * rest / window + c <= limit`. Since then `c` is the same and `rest` is
//! smaller. So every spent hit would have passed a counter of the spent hits only.
//!
//! **Several tiers.** A refill is counted in all tiers. Its tokens end when the window of any tier
//! ends.
//!
//! **token_bucket, leaky_bucket.** A bucket of burst `B` that drains at rate `r` allows at most
//! `B + r * (b - a)` hits in any interval `(a, b]`. Tokens are valid for `T`, so tokens spent in
//! `(a, b]` were drawn in `(a - T, b]`. Refills use a smaller bucket, of burst `B - r * T`, so they
//! draw at most `B - r * T + r * (b - a + T) = B + r * (b - a)` hits. Every step on a leased
//! counter uses the smaller bucket. `T` is an eighth of the time in which the bucket fills, at most
//! one second.
//!
//! **Returned tokens, windows.** The return step is planned for an instant in the tokens' window,
//! so it does not change a later window.
//!
//! **Returned tokens, buckets.** Compare the counter with a second one, on which the returned
//! tokens were never drawn. The second one is never fuller. For every outstanding refill, the
//! difference is at least its charge less the time since: it shrinks only while the second bucket
//! is empty, by one microsecond per microsecond. So a charge `c` of age `t` may be reduced by at
//! most `c - t`. The return step reduces it by `T` less than that, in case the step is delayed by
//! up to `T`.
//!
//! **Lost outcomes.** Tokens of a refill without an outcome count as spent. Tokens of a return
//! without an outcome count as returned. Neither step is repeated, so both errors lower the number
//! of hits that pass.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::CounterCheck;
use crate::algorithm;
use crate::decision::Decision;
use crate::key::Key;
use crate::step::Step;
use crate::store::{self, Store, StoreError};
use crate::time::Micros;

mod counts;
mod demand;
mod hot_keys;
mod in_flight;
mod policy;
mod token_pool;

#[cfg(test)]
mod tests;

pub use counts::LeasedCounts;

use counts::add;
use hot_keys::HotKeys;
use in_flight::InFlightRefill;
use policy::TokenPolicy;
use token_pool::{Acquire, Refill, TokenPool, Unspent};

/// Shards of the table, each with its own lock. A periodic run searches one shard for idle pools.
const SHARDS: usize = 64;

/// Most token pools per shard. The store decides further counters.
const POOLS_MAX: usize = 1_024;

/// Time without a request after which the unspent tokens of a counter are returned.
const IDLE: Micros = Micros::from_secs(4);

/// Longest time for returning all tokens when the process ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Concurrent returns when the process ends.
const CLOSE_CONCURRENCY: usize = 256;

/// The path of leased rules.
pub struct LeasedPath<S> {
    inner: Arc<Pools<S>>,
}

struct Pools<S> {
    store: Arc<S>,
    shards: Box<[Mutex<PoolShard>]>,
    /// The shard that is searched next.
    next_shard: AtomicUsize,
    /// Whether the process is ending. The store then decides every request.
    closed: AtomicBool,
    counts: LeasedCounts,
}

struct PoolShard {
    pools: HashMap<Key, TokenPool>,
    hot_keys: HotKeys,
}

/// The result of a check without a call to the store.
enum LocalResult {
    /// The path has decided.
    Decided(Result<Decision, StoreError>),
    /// The request waits for a refill.
    Queued(oneshot::Receiver<Result<Decision, StoreError>>),
    /// The store must decide this number of hits.
    Direct(i64),
}

impl<S: Store> LeasedPath<S> {
    /// A path to `store`.
    pub(super) fn new(store: Arc<S>) -> LeasedPath<S> {
        let shard = || Mutex::new(PoolShard { pools: HashMap::new(), hot_keys: HotKeys::new() });
        LeasedPath {
            inner: Arc::new(Pools {
                store,
                shards: (0..SHARDS).map(|_| shard()).collect(),
                next_shard: AtomicUsize::new(0),
                closed: AtomicBool::new(false),
                counts: LeasedCounts::default(),
            }),
        }
    }
}

impl<S> LeasedPath<S> {
    /// The path's counts since the process started.
    pub fn counts(&self) -> &LeasedCounts {
        &self.inner.counts
    }

    /// Drops the unspent tokens of a counter that is being deleted.
    pub(super) fn delete(&self, key: &Key) {
        self.inner.shard(key).pools.get_mut(key).map(TokenPool::take_all);
    }

    /// Counters with a token pool, which may be empty.
    pub fn pools(&self) -> usize {
        self.inner.shards.iter().map(|shard| lock(shard).pools.len()).sum()
    }
}

impl<S: Store> LeasedPath<S> {
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

    pub(super) fn apply_detached(&self, key: &Key, step: Step) {
        if !self.inner.try_refund(key, &step) {
            self.inner.store.apply_detached(key, step);
        }
    }

    pub(super) fn run_due(&self, local: Micros) {
        let shards = &self.inner.shards;
        let index = self.inner.next_shard.fetch_add(1, Ordering::Relaxed) % shards.len();
        for (key, unspent) in self.inner.take_idle(&shards[index], local) {
            self.inner.return_tokens(&key, unspent, Some(local));
        }
    }

    pub(super) async fn close(&self, local: Micros) {
        self.inner.closed.store(true, Ordering::Relaxed);
        let mut returns = Vec::new();
        for shard in &self.inner.shards {
            for (key, pool) in &mut lock(shard).pools {
                for step in self.inner.return_steps(key, pool.take_all(), Some(local)) {
                    returns.push((*key, step));
                }
            }
        }
        let store = &self.inner.store;
        let all = async {
            for chunk in returns.chunks(CLOSE_CONCURRENCY) {
                join_all(chunk.iter().map(|(key, step)| store.apply(key, step))).await;
            }
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, all).await.is_err() {
            tracing::warn!("not all unspent tokens were returned to Redis; they expire there");
        }
    }
}

impl<S> Pools<S> {
    fn shard(&self, key: &Key) -> MutexGuard<'_, PoolShard> {
        lock(&self.shards[(key.0[0] % self.shards.len() as u64) as usize])
    }
}

impl<S: Store> Pools<S> {
    /// Decides from the counter's token pool, if it has enough tokens.
    fn decide(self: &Arc<Self>, check: &CounterCheck<'_>) -> LocalResult {
        if check.lease.is_some() || self.closed.load(Ordering::Relaxed) {
            return LocalResult::Direct(check.hits);
        }
        let mut shard = self.shard(check.key);
        let Some(pool) = shard.pool(check) else {
            return LocalResult::Direct(check.hits);
        };
        let mut unspent = Unspent::new();
        let now = pool.touch(check.local, check.now.ok());
        if pool.policy().limit() != check.limit {
            match TokenPolicy::for_limit(check.limit) {
                Some(policy) => unspent = pool.change_policy(policy),
                None => {
                    unspent = pool.take_all();
                    drop(shard);
                    self.return_tokens(check.key, unspent, Some(check.local));
                    return LocalResult::Direct(check.hits);
                }
            }
        }
        unspent.extend(pool.take_expired(now));
        let (result, refill) = self.serve(pool, check, now);
        drop(shard);
        if let Some(refill) = refill {
            self.start(*check.key, refill);
        }
        self.return_tokens(check.key, unspent, Some(check.local));
        result
    }

    fn serve(
        &self,
        pool: &mut TokenPool,
        check: &CounterCheck<'_>,
        now: Micros,
    ) -> (LocalResult, Option<Refill>) {
        let hits = check.hits.unsigned_abs();
        if check.hits < 0 {
            let rest = hits - pool.refund(hits, now);
            return match i64::try_from(rest) {
                Ok(0) => (LocalResult::Decided(Ok(pool.peek(now))), None),
                _ => (LocalResult::Direct(-i64::try_from(rest).unwrap_or(i64::MAX)), None),
            };
        }
        if pool.available(now) < hits.max(1) {
            // The pool has too few tokens, so the store must decide. That requires its clock.
            match check.now {
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
        let ahead = check.now.is_ok() && Handle::try_current().is_ok();
        match pool.acquire(hits, now, ahead, &self.counts) {
            (Acquire::Granted(decision), refill) => (LocalResult::Decided(Ok(decision)), refill),
            (Acquire::Queued(result), refill) => (LocalResult::Queued(result), refill),
        }
    }

    /// Lets the store decide `hits`, under the same policy as a refill.
    async fn direct(&self, check: &CounterCheck<'_>, hits: i64) -> Result<Decision, StoreError> {
        let step = match TokenPolicy::for_limit(check.limit) {
            Some(policy) if check.lease.is_none() => policy.plan(hits, check.now?),
            _ => {
                let mut step = algorithm::plan(check.limit, hits, check.now?);
                step.lease = check.lease;
                step
            }
        };
        add(&self.counts.direct, 1);
        let outcome = self.store.apply_within(check.key, &step, check.timeout).await?;
        Ok(algorithm::report(check.limit, &step, &outcome))
    }

    /// Puts the hits of a detached refund back into the pool, if all of them fit.
    fn try_refund(&self, key: &Key, step: &Step) -> bool {
        let mut shard = self.shard(key);
        let Some(pool) = shard.pools.get_mut(key) else { return false };
        let hits = step.hits.unsigned_abs();
        let same_limit = algorithm::plan(pool.policy().limit(), step.hits, step.now) == *step;
        if step.hits >= 0 || !same_limit {
            return false;
        }
        pool.spent(step.now) >= hits && pool.refund(hits, step.now) == hits
    }

    /// Sends a refill on a separate task, so that it continues if its requests are cancelled.
    fn start(self: &Arc<Self>, key: Key, refill: Refill) {
        let inner = self.clone();
        let mut in_flight = InFlightRefill { inner, key, refill: Some(refill) };
        tokio::spawn(async move {
            while let Some(refill) = in_flight.refill.clone() {
                let result = in_flight.inner.store.apply(&key, &refill.step).await;
                in_flight.complete(&result);
            }
        });
    }

    /// Returns tokens to the store without waiting. `local` is the local time. Without it, only
    /// tokens of windows are returned.
    fn return_tokens(&self, key: &Key, unspent: Unspent, local: Option<Micros>) {
        for step in self.return_steps(key, unspent, local) {
            self.store.apply_detached(key, step);
        }
    }

    /// The steps that return the tokens that have not expired.
    fn return_steps(&self, key: &Key, unspent: Unspent, local: Option<Micros>) -> Vec<Step> {
        let mut steps = Vec::new();
        if unspent.is_empty() {
            return steps;
        }
        let now = local.and_then(|local| self.store.now(key, local).ok());
        for (policy, batch) in unspent {
            let step = policy.return_step(&batch, now);
            let returned = step.as_ref().map_or(0, |step| step.hits.unsigned_abs());
            add(&self.counts.returned, returned);
            add(&self.counts.expired, batch.tokens - returned);
            steps.extend(step);
        }
        steps
    }

    /// Removes idle pools, and returns their unspent tokens.
    fn take_idle(&self, shard: &Mutex<PoolShard>, local: Micros) -> Vec<(Key, Unspent)> {
        let mut idle = Vec::new();
        lock(shard).pools.retain(|key, pool| {
            if pool.is_busy() || pool.idle(local) < IDLE {
                return true;
            }
            idle.push((*key, pool.take_all()));
            false
        });
        idle
    }
}

impl PoolShard {
    /// The counter's pool. A pool is created at the second request within two seconds, if the shard
    /// has room and the limit supports tokens.
    fn pool(&mut self, check: &CounterCheck<'_>) -> Option<&mut TokenPool> {
        if !self.pools.contains_key(check.key) {
            let full = self.pools.len() >= POOLS_MAX;
            if check.hits <= 0 || !self.hot_keys.record(check.key, check.local) || full {
                return None;
            }
            let pool =
                TokenPool::new(TokenPolicy::for_limit(check.limit)?, check.now.ok()?, check.local);
            self.pools.insert(*check.key, pool);
        }
        self.pools.get_mut(check.key)
    }
}

fn lock(shard: &Mutex<PoolShard>) -> MutexGuard<'_, PoolShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
