//! Mode synced: decides by a local replica of the counter, and exchanges counts with the store at
//! intervals.
//!
//! The store decides the first request to a counter, and its outcome becomes the replica. The
//! replica decides later requests. Twice per interval, one step adds the hits that passed here to
//! the store, regardless of the limit. The new replica is the outcome of that step plus the hits
//! that have passed here since.
//!
//! So the replica never contains a hit that did not pass. It lacks only hits that the other
//! instances allowed in the last interval: a hit waits at most half an interval for its own
//! exchange, and at most another half for the exchange of each other instance.
//! `docs/design/modes.md` has the proof.
//!
//! The number of replicas is bounded, and with it the memory. The store decides further counters.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use super::CounterCheck;
use crate::algorithm;
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::Mode;
use crate::step::Step;
use crate::store::{Store, StoreError};
use crate::time::Micros;

mod counts;
mod delta;
mod replica;

#[cfg(test)]
mod tests;

pub use counts::SyncedCounts;

use replica::Replica;

/// Shards of the table, each with its own lock.
const SHARDS: usize = 64;

/// Most replicas per shard.
const REPLICAS_MAX: usize = 1_024;

/// Most concurrent exchanges.
const CONCURRENCY: usize = 1_024;

/// Most calls of one exchange. Usually there is one. There is one more after an unconfirmed call,
/// and if a window has ended since the last exchange.
const CALLS_MAX: usize = 8;

/// Timeout of a call, if the store's own timeout is not shorter.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Delay of the next exchange after a failed one, unless half an interval is shorter.
const RETRY_DELAY: Micros = Micros::SECOND;

/// The time without requests after which a replica is removed, unless two intervals are shorter. A
/// replica is only removed once the store has all its counts.
const IDLE_MAX: Micros = Micros::from_secs(10);

/// The path of synced rules.
pub struct SyncedPath<S> {
    store: Arc<S>,
    shards: Box<[Mutex<HashMap<Key, Replica>>]>,
    /// The next exchange of each replica. An entry that differs from its replica's `due` is stale.
    due: Mutex<BinaryHeap<Reverse<(Micros, Key)>>>,
    counts: SyncedCounts,
}

impl<S> SyncedPath<S> {
    /// A path to `store`.
    pub(super) fn new(store: Arc<S>) -> SyncedPath<S> {
        SyncedPath {
            store,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            due: Mutex::default(),
            counts: SyncedCounts::default(),
        }
    }

    /// The path's counts since the process started.
    pub fn counts(&self) -> &SyncedCounts {
        &self.counts
    }

    /// Counters with a replica.
    pub fn replicas(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).len() as u64).sum()
    }

    /// Drops the replica of a counter that is being deleted, and its counts that were not sent yet.
    pub(super) fn delete(&self, key: &Key) {
        self.shard(key).remove(key);
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Replica>> {
        lock(&self.shards[key.0[0] as usize % SHARDS])
    }

    fn schedule(&self, key: Key, at: Micros) {
        lock(&self.due).push(Reverse((at, key)));
    }

    /// Takes the counters whose exchange is due at `local`, or all of them.
    fn take_due(&self, local: Option<Micros>) -> Vec<Key> {
        let mut heap = lock(&self.due);
        let mut keys = Vec::new();
        while let Some(Reverse((at, _))) = heap.peek()
            && local.is_none_or(|local| *at <= local)
        {
            let Some(Reverse((at, key))) = heap.pop() else { break };
            if self.shard(&key).get(&key).is_some_and(|replica| replica.due == at) {
                keys.push(key);
            }
        }
        keys
    }
}

/// Locks `mutex`. A poisoned lock is safe: no panic leaves its content half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The interval of a synced rule.
fn interval(mode: Mode) -> Micros {
    match mode {
        Mode::Synced { interval } => interval,
        Mode::Exact | Mode::Leased => Micros::SECOND,
    }
}

impl<S: Store> SyncedPath<S> {
    /// The decision of the replica, if the counter has one.
    fn decide(&self, check: &CounterCheck<'_>) -> Option<Decision> {
        let mut shard = self.shard(check.key);
        let replica = shard.get_mut(check.key)?;
        let interval = interval(check.mode);
        let now = check.now.ok();
        let (decision, sooner) =
            replica.decide(check.limit, interval, check.hits, now, check.local);
        let due = replica.due;
        drop(shard);
        if sooner {
            self.schedule(*check.key, due);
        }
        Some(decision)
    }

    /// Creates a replica from the outcome of the first request.
    fn create(&self, check: &CounterCheck<'_>, step: &Step, outcome: &crate::step::Outcome) {
        let mut shard = self.shard(check.key);
        if let Some(replica) = shard.get_mut(check.key) {
            return replica.observe(step, outcome);
        }
        if shard.len() >= REPLICAS_MAX {
            return;
        }
        let interval = interval(check.mode);
        let Some(replica) = Replica::new(check.limit, interval, step, outcome, check.local) else {
            return;
        };
        let due = replica.due;
        shard.insert(*check.key, replica);
        drop(shard);
        self.schedule(*check.key, due);
    }

    /// Sends the counts of `key` that the store does not have, and receives those of other
    /// instances. Returns whether the exchange succeeded; `None` if no call was needed.
    async fn exchange(&self, key: Key, local: Micros, closing: bool) -> Option<bool> {
        let mut failed = None;
        for number in 0..CALLS_MAX {
            let now = self.store.now(&key, local);
            let call = {
                let mut shard = self.shard(&key);
                let replica = shard.get_mut(&key)?;
                let at = now.unwrap_or_else(|_| replica.now(local));
                if number == 0
                    && replica.is_stored(at)
                    && (closing || replica.is_idle(local, IDLE_MAX))
                {
                    shard.remove(&key);
                    return None;
                }
                match now {
                    Ok(now) => Ok(replica.next_call(now, local)),
                    Err(error) => Err(error),
                }
            };
            let (more, error) = match call {
                Ok(call) => {
                    let result = self.store.apply_within(&key, &call.step, Some(TIMEOUT)).await;
                    let mut shard = self.shard(&key);
                    let replica = shard.get_mut(&key)?;
                    let synced = replica.complete(&call, result.as_ref().map_err(|error| *error));
                    self.counts.call(synced.overrun);
                    (call.more, result.err())
                }
                Err(error) => (false, Some(error)),
            };
            if let Some(error) = error {
                self.counts.failure(error);
            }
            failed = Some(error.is_some());
            if error.is_some() || !more {
                break;
            }
        }
        let failed = failed?;
        let mut shard = self.shard(&key);
        let replica = shard.get_mut(&key)?;
        replica.due = replica.next_due(local, failed, RETRY_DELAY);
        let due = replica.due;
        drop(shard);
        self.schedule(key, due);
        self.counts.exchange(failed);
        Some(!failed)
    }
}

impl<S: Store> SyncedPath<S> {
    pub(super) async fn check(&self, check: &CounterCheck<'_>) -> Result<Decision, StoreError> {
        if let Some(decision) = self.decide(check) {
            return Ok(decision);
        }
        let step = algorithm::plan(check.limit, check.hits, check.now?);
        let outcome = self.store.apply_within(check.key, &step, check.timeout).await?;
        if check.hits != 0 {
            self.create(check, &step, &outcome);
        }
        Ok(algorithm::report(check.limit, &step, &outcome))
    }

    pub(super) fn apply_detached(&self, key: &Key, step: Step) {
        match self.shard(key).get_mut(key) {
            Some(replica) => replica.give_back(&step),
            None => self.store.apply_detached(key, step),
        }
    }

    pub(super) async fn run_due(&self, local: Micros) {
        for chunk in self.take_due(Some(local)).chunks(CONCURRENCY) {
            // Concurrently, so that they share batches to the store.
            join_all(chunk.iter().map(|key| self.exchange(*key, local, false))).await;
        }
    }

    pub(super) async fn close(&self, local: Micros) {
        for chunk in self.take_due(None).chunks(CONCURRENCY) {
            let all = chunk.iter().map(|key| self.exchange(*key, local, true));
            let succeeded = join_all(all).await;
            if !succeeded.is_empty() && succeeded.iter().all(|one| *one == Some(false)) {
                return; // the store is unreachable, and the process cannot wait for it
            }
        }
    }
}
