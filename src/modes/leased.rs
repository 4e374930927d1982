//! LeasedPath: hits are drawn from the store ahead, many at a time, and spent here.
//!
//! A draw is one step that takes `m` hits. The store knows nothing of leases: to it a draw is a
//! request, and so it never grants more than the limit. What has to be shown is that spending a
//! token later than it was drawn breaks no limit either.
//!
//! # Proof
//!
//! All instants are the store's: a request is decided as of the instant it read, and a token is
//! spent only by a request whose instant lies before the token's end. That comparison is made under
//! the counter's lock, so it does not matter which thread is late, or for how long it was stopped.
//!
//! **fixed_window.** A token belongs to the window that the store counted it in (its answer says
//! which) and ends with it. In every window: spent <= drawn <= limit.
//!
//! **sliding_window.** The same, and so at every instant, with `p` and `c` what was drawn in the
//! previous and the present window: spent in each <= drawn in each. The last draw of the window
//! passed with `p * rest / window + c <= limit`; since then `c` is the same and `rest` only
//! smaller. So every hit that is spent would have passed a counter that knows of the spent hits
//! only.
//!
//! **Several tiers.** A draw is counted in all of them, and its tokens end with the first window of
//! any that ends.
//!
//! **token_bucket, leaky_bucket.** A bucket of burst `B` that drains at rate `r` lets through at
//! most `B + r * (b - a)` in any interval `(a, b]`. Tokens live for `T`, so what is spent in
//! `(a, b]` was drawn in `(a - T, b]`. Draws are held against a bucket of `B - r * T`: they are at
//! most `B - r * T + r * (b - a + T) = B + r * (b - a)`. Everybody who counts on a leased counter
//! uses the smaller bucket; `T` is an eighth of the time that it takes to fill, a second at most.
//!
//! **Giving back.** Windows: the step is planned for an instant in the window, so a window that
//! began later loses nothing. Buckets: compare with the counter on which the tokens that are given
//! back had never been drawn. It is never fuller, and the difference is at least, for every draw
//! that is outstanding, its charge less the time since: it shrinks only while the other one is
//! empty, that is by one microsecond in a microsecond. So of a charge `c` as old as `t` at most
//! `c - t` is taken off again; `T` less, to allow for a step that is that long on its way.
//!
//! **Unknown fates.** A draw without an answer counts as spent, a way back without one as arrived:
//! neither is repeated. Both err to the safe side.
//!
//! # Cost
//!
//! A counter that is asked once in a while is asked of the store directly and leaves nothing here.
//! One that is busy costs a draw in two seconds, as long as the limit has that much room.

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

/// Parts of the table, each with a lock of its own. One is looked through per tick.
const SHARDS: usize = 64;

/// Counters that tokens are held of, per shard. Beyond them counters are asked of the store directly.
const POOLS_MAX: usize = 1_024;

/// Unspent tokens go back when nobody has asked for them for so long.
const IDLE: Micros = Micros::from_secs(4);

/// What is left to bring back at the end may take so long.
const CLOSING: Duration = Duration::from_secs(2);

/// Ways back that are under way at the same time at the end.
const CLOSING_AT_ONCE: usize = 256;

/// Decides leased rules.
pub struct LeasedPath<S> {
    inner: Arc<Inner<S>>,
}

struct Inner<S> {
    store: Arc<S>,
    shards: Box<[Mutex<Shard>]>,
    /// The shard that is looked through next.
    turn: AtomicUsize,
    /// Nothing is drawn ahead any more.
    closed: AtomicBool,
    counts: LeasedCounts,
}

struct Shard {
    pools: HashMap<Key, TokenPool>,
    hot_keys: HotKeys,
}

/// What to do about a request.
enum LocalResult {
    /// It is decided.
    Decided(Result<Decision, StoreError>),
    /// It waits for a draw.
    Waits(oneshot::Receiver<Result<Decision, StoreError>>),
    /// The store is asked about so many hits of it.
    Direct(i64),
}

impl<S: Store> LeasedPath<S> {
    /// Around `store`.
    pub(super) fn new(store: Arc<S>) -> LeasedPath<S> {
        let shard = || Mutex::new(Shard { pools: HashMap::new(), hot_keys: HotKeys::new() });
        LeasedPath {
            inner: Arc::new(Inner {
                store,
                shards: (0..SHARDS).map(|_| shard()).collect(),
                turn: AtomicUsize::new(0),
                closed: AtomicBool::new(false),
                counts: LeasedCounts::default(),
            }),
        }
    }
}

impl<S> LeasedPath<S> {
    /// What leases did since the start.
    pub fn counts(&self) -> &LeasedCounts {
        &self.inner.counts
    }

    /// Drops the unspent tokens of a counter that is emptied.
    pub(super) fn forget(&self, key: &Key) {
        self.inner.shard(key).pools.get_mut(key).map(TokenPool::empty);
    }

    /// Counters that tokens are held of, or were a moment ago.
    pub fn pools(&self) -> usize {
        self.inner.shards.iter().map(|shard| lock(shard).pools.len()).sum()
    }
}

impl<S: Store> LeasedPath<S> {
    pub(super) async fn check(&self, check: &CounterCheck<'_>) -> Result<Decision, StoreError> {
        match self.inner.decide(check) {
            LocalResult::Decided(result) => result,
            LocalResult::Direct(hits) => self.inner.direct(check, hits).await,
            LocalResult::Waits(told) => {
                let told = async { told.await.unwrap_or(Err(StoreError::Lost)) };
                // As long as for the store itself, however many draws that takes.
                match check.timeout.into_iter().chain(self.inner.store.timeout()).min() {
                    None => told.await,
                    Some(timeout) => store::with_timeout(timeout, told).await,
                }
            }
        }
    }

    pub(super) fn apply_detached(&self, key: &Key, step: Step) {
        if !self.inner.keep(key, &step) {
            self.inner.store.apply_detached(key, step);
        }
    }

    pub(super) fn run_due(&self, local: Micros) {
        let shards = &self.inner.shards;
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed) % shards.len();
        for (key, unspent) in self.inner.tidy(&shards[turn], local) {
            self.inner.send_back(&key, unspent, Some(local));
        }
    }

    pub(super) async fn close(&self, local: Micros) {
        self.inner.closed.store(true, Ordering::Relaxed);
        let mut back = Vec::new();
        for shard in &self.inner.shards {
            for (key, token_pool) in &mut lock(shard).pools {
                for step in self.inner.ways_back(key, token_pool.empty(), Some(local)) {
                    back.push((*key, step));
                }
            }
        }
        let store = &self.inner.store;
        let all = async {
            for some in back.chunks(CLOSING_AT_ONCE) {
                join_all(some.iter().map(|(key, step)| store.apply(key, step))).await;
            }
        };
        if tokio::time::timeout(CLOSING, all).await.is_err() {
            tracing::warn!("some unspent leases were not given back: they end by themselves");
        }
    }
}

impl<S> Inner<S> {
    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        lock(&self.shards[(key.0[0] % self.shards.len() as u64) as usize])
    }
}

impl<S: Store> Inner<S> {
    /// Decides from memory, or says who will.
    fn decide(self: &Arc<Self>, check: &CounterCheck<'_>) -> LocalResult {
        if check.lease.is_some() || self.closed.load(Ordering::Relaxed) {
            return LocalResult::Direct(check.hits);
        }
        let mut shard = self.shard(check.key);
        let Some(token_pool) = shard.token_pool(check) else {
            return LocalResult::Direct(check.hits);
        };
        let mut unspent = Unspent::new();
        let now = token_pool.touch(check.local, check.now.ok());
        if token_pool.policy().limit() != check.limit {
            match TokenPolicy::of(check.limit) {
                Some(policy) => unspent = token_pool.change(policy),
                None => {
                    unspent = token_pool.empty();
                    drop(shard);
                    self.send_back(check.key, unspent, Some(check.local));
                    return LocalResult::Direct(check.hits);
                }
            }
        }
        unspent.extend(token_pool.expire(now));
        let (told, draw) = self.serve(token_pool, check, now);
        drop(shard);
        if let Some(draw) = draw {
            self.start(*check.key, draw);
        }
        self.send_back(check.key, unspent, Some(check.local));
        told
    }

    fn serve(
        &self,
        token_pool: &mut TokenPool,
        check: &CounterCheck<'_>,
        now: Micros,
    ) -> (LocalResult, Option<Refill>) {
        let hits = check.hits.unsigned_abs();
        if check.hits < 0 {
            let rest = hits - token_pool.unspend(hits, now);
            return match i64::try_from(rest) {
                Ok(0) => (LocalResult::Decided(Ok(token_pool.look(now))), None),
                _ => (LocalResult::Direct(-i64::try_from(rest).unwrap_or(i64::MAX)), None),
            };
        }
        if token_pool.available(now) < hits.max(1) {
            // Only the store can tell, or nobody.
            match check.now {
                Err(error) => return (LocalResult::Decided(Err(error)), None),
                Ok(_) if hits == 0 || Handle::try_current().is_err() => {
                    return (LocalResult::Direct(check.hits), None);
                }
                Ok(_) => {}
            }
        }
        if hits == 0 {
            return (LocalResult::Decided(Ok(token_pool.look(now))), None);
        }
        let ahead = check.now.is_ok() && Handle::try_current().is_ok();
        match token_pool.acquire(hits, now, ahead, &self.counts) {
            (Acquire::Spent(decision), draw) => (LocalResult::Decided(Ok(decision)), draw),
            (Acquire::Waits(told), draw) => (LocalResult::Waits(told), draw),
        }
    }

    /// Asks the store about `hits`, as a draw that is spent at once.
    async fn direct(&self, check: &CounterCheck<'_>, hits: i64) -> Result<Decision, StoreError> {
        let step = match TokenPolicy::of(check.limit) {
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

    /// Takes the hits of a way back in, if all of them can be spent here again.
    fn keep(&self, key: &Key, step: &Step) -> bool {
        let mut shard = self.shard(key);
        let Some(token_pool) = shard.pools.get_mut(key) else { return false };
        let hits = step.hits.unsigned_abs();
        let ours = algorithm::plan(token_pool.policy().limit(), step.hits, step.now) == *step;
        if step.hits >= 0 || !ours {
            return false;
        }
        token_pool.spent(step.now) >= hits && token_pool.unspend(hits, step.now) == hits
    }

    /// Draws, on a task of its own: whoever waits may go away meanwhile.
    fn start(self: &Arc<Self>, key: Key, draw: Refill) {
        let inner = self.clone();
        let mut in_flight = InFlightRefill { inner, key, draw: Some(draw) };
        tokio::spawn(async move {
            while let Some(draw) = in_flight.draw.clone() {
                let result = in_flight.inner.store.apply(&key, &draw.step).await;
                in_flight.settle(&result);
            }
        });
    }

    /// Gives back what can be at `local`, without waiting; not knowing the time, what does not depend
    /// on it.
    fn send_back(&self, key: &Key, unspent: Unspent, local: Option<Micros>) {
        for step in self.ways_back(key, unspent, local) {
            self.store.apply_detached(key, step);
        }
    }

    /// The steps that give back what can be; the rest has ended.
    fn ways_back(&self, key: &Key, unspent: Unspent, local: Option<Micros>) -> Vec<Step> {
        let mut steps = Vec::new();
        if unspent.is_empty() {
            return steps;
        }
        let now = local.and_then(|local| self.store.now(key, local).ok());
        for (policy, batch) in unspent {
            let step = policy.give_back(&batch, now);
            let returned = step.as_ref().map_or(0, |step| step.hits.unsigned_abs());
            add(&self.counts.returned, returned);
            add(&self.counts.expired, batch.tokens - returned);
            steps.extend(step);
        }
        steps
    }

    /// Takes unspent tokens from counters that nobody asks for, and forgets those without any.
    fn tidy(&self, shard: &Mutex<Shard>, local: Micros) -> Vec<(Key, Unspent)> {
        let mut idle = Vec::new();
        lock(shard).pools.retain(|key, token_pool| {
            if token_pool.is_busy() || token_pool.idle(local) < IDLE {
                return true;
            }
            idle.push((*key, token_pool.empty()));
            false
        });
        idle
    }
}

impl Shard {
    /// What is held of the counter. One that is asked for the second time in a moment is held from
    /// then on, if there is room and its limit can be leased.
    fn token_pool(&mut self, check: &CounterCheck<'_>) -> Option<&mut TokenPool> {
        if !self.pools.contains_key(check.key) {
            let full = self.pools.len() >= POOLS_MAX;
            if check.hits <= 0 || !self.hot_keys.note(check.key, check.local) || full {
                return None;
            }
            let token_pool =
                TokenPool::new(TokenPolicy::of(check.limit)?, check.now.ok()?, check.local);
            self.pools.insert(*check.key, token_pool);
        }
        self.pools.get_mut(check.key)
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
