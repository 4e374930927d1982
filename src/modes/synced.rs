//! Mode synced: decides by a local replica of the counter, and exchanges counts with the store at
//! intervals.
//!
//! The store decides the first request to a counter, and its outcome becomes the replica. Requests
//! that arrive meanwhile wait for it. The replica decides later requests. Twice per interval, one
//! step adds the hits that passed here to the store, regardless of the limit. The new replica is
//! the outcome of that step plus the hits that have passed here since.
//!
//! So the replica never contains a hit that did not pass. It lacks only hits that the other
//! instances allowed in the last interval: a hit waits at most half an interval for its own
//! exchange, and at most another half for the exchange of each other instance, if calls are shorter
//! than that. `docs/guides/modes.md` has the guarantee, and `docs/design/modes.md` the proof.
//!
//! The number of replicas is bounded, and with it the memory. The store decides further counters.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use super::CounterCheck;
use super::job::JobSignal;
use crate::algorithm;
use crate::decision::Decision;
use crate::key::CounterKey;
use crate::limit::Mode;
use crate::step::{Outcome, Step};
use crate::store::{self, SharedStore, StoreError};
use crate::time::{Deadline, Micros};

mod delta;
mod metrics;
mod replica;
mod single_flight;

#[cfg(test)]
mod tests;

pub use metrics::SyncedMetrics;

use replica::Replica;
use single_flight::{Role, SingleFlight};

/// Shards of the table, each with its own lock.
const SHARDS: usize = 64;

/// Most replicas per shard.
const SHARD_REPLICAS_MAX: usize = 1_024;

/// Most replicas of an instance.
pub(crate) const REPLICAS_MAX: usize = SHARDS * SHARD_REPLICAS_MAX;

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
/// replica is only removed once the store has all its hits.
pub(crate) const REPLICA_IDLE_MAX: Micros = Micros::from_secs(10);

/// The mode of synced rules.
pub struct SyncedMode<S> {
    store: Arc<S>,
    shards: Box<[Mutex<HashMap<CounterKey, Replica>>]>,
    /// The next exchange of each replica. An entry that differs from its replica's `due` is stale.
    due: Mutex<BinaryHeap<Reverse<(Micros, CounterKey)>>>,
    single_flight: SingleFlight,
    /// The number of the next replica. An exchange ends with the replica that it began with.
    next_number: AtomicU64,
    metrics: SyncedMetrics,
    /// Wakes the background job.
    signal: Arc<JobSignal>,
}

impl<S> SyncedMode<S> {
    /// The mode over `store`.
    pub(super) fn new(store: Arc<S>, signal: Arc<JobSignal>) -> SyncedMode<S> {
        SyncedMode {
            store,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            due: Mutex::default(),
            single_flight: SingleFlight::default(),
            next_number: AtomicU64::new(0),
            metrics: SyncedMetrics::default(),
            signal,
        }
    }

    /// The metrics of this mode since the process started.
    pub fn metrics(&self) -> &SyncedMetrics {
        &self.metrics
    }

    /// Counters with a replica.
    pub fn replicas(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).len() as u64).sum()
    }

    /// Drops the replica of a counter that is being deleted, and its hits that were not sent yet.
    pub(super) fn delete(&self, key: &CounterKey) {
        self.single_flight.delete(key);
        self.shard(key).remove(key);
    }

    fn shard(&self, key: &CounterKey) -> MutexGuard<'_, HashMap<CounterKey, Replica>> {
        lock(&self.shards[key.0[0] as usize % SHARDS])
    }

    fn schedule(&self, key: CounterKey, at: Micros) {
        lock(&self.due).push(Reverse((at, key)));
        self.signal.work_at(at);
    }

    /// The instant of the next exchange, or an earlier one.
    pub(super) fn next_due(&self) -> Option<Micros> {
        lock(&self.due).peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the counters whose exchange is due at `local`. None is taken again before its exchange
    /// has ended.
    fn take_due(&self, local: Micros) -> Vec<CounterKey> {
        let mut heap = lock(&self.due);
        let mut keys = Vec::new();
        while let Some(Reverse((at, _))) = heap.peek()
            && *at <= local
        {
            let Some(Reverse((at, key))) = heap.pop() else { break };
            if let Some(replica) = self.shard(&key).get_mut(&key)
                && replica.due == Some(at)
            {
                replica.due = None;
                keys.push(key);
            }
        }
        keys
    }

    /// All counters with a replica, in a fixed order.
    fn all_keys(&self) -> Vec<CounterKey> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            keys.extend(lock(shard).keys().copied());
        }
        keys.sort();
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

impl<S: SharedStore> SyncedMode<S> {
    /// The decision of the replica, if the counter has one.
    fn decide(&self, check: &CounterCheck<'_>) -> Option<Decision> {
        let mut shard = self.shard(check.key);
        let replica = shard.get_mut(check.key)?;
        let interval = interval(check.mode);
        let now = check.store_now.ok();
        let (decision, sooner) =
            replica.decide(check.limit, interval, check.hits, now, check.local_now);
        let due = replica.due.filter(|_| sooner);
        drop(shard);
        if let Some(due) = due {
            self.schedule(*check.key, due);
        }
        Some(decision)
    }

    /// Creates a replica from the outcome of the first request.
    fn create(&self, check: &CounterCheck<'_>, step: &Step, outcome: &Outcome) {
        let mut shard = self.shard(check.key);
        if shard.len() >= SHARD_REPLICAS_MAX {
            return;
        }
        let interval = interval(check.mode);
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let replica = Replica::new(check.limit, interval, step, outcome, check.local_now, number);
        let Some(replica) = replica else { return };
        let due = replica.due;
        shard.insert(*check.key, replica);
        drop(shard);
        if let Some(due) = due {
            self.schedule(*check.key, due);
        }
    }

    /// Sends the hits of `key` that the store does not have, and receives those of other
    /// instances. Returns whether the exchange succeeded; `None` if no call was needed.
    async fn exchange(&self, key: CounterKey, local: Micros, closing: bool) -> Option<bool> {
        let mut failed = None;
        let mut replica_number = None;
        for call_number in 0..CALLS_MAX {
            let now = self.store.now(&key, local);
            let call = {
                let mut shard = self.shard(&key);
                let replica = shard.get_mut(&key)?;
                // A deletion may have removed the replica, and a request may have created another.
                if *replica_number.get_or_insert(replica.number) != replica.number {
                    return None;
                }
                let at = now.unwrap_or_else(|_| replica.now(local));
                if call_number == 0
                    && replica.is_stored(at)
                    && (closing || replica.is_idle(local, REPLICA_IDLE_MAX))
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
                    if Some(replica.number) != replica_number {
                        return None;
                    }
                    let synced = replica.complete(&call, result.as_ref().map_err(|error| *error));
                    self.metrics.call(synced.overrun);
                    (call.more, result.err())
                }
                Err(error) => (false, Some(error)),
            };
            if let Some(error) = error {
                self.metrics.failure(error);
            }
            failed = Some(error.is_some());
            if error.is_some() || !more {
                break;
            }
        }
        let failed = failed?;
        self.metrics.exchange(failed);
        let mut shard = self.shard(&key);
        let replica =
            shard.get_mut(&key).filter(|replica| Some(replica.number) == replica_number)?;
        if closing && replica.is_stored(replica.now(local)) {
            shard.remove(&key);
            return Some(!failed);
        }
        let due = replica.next_due(local, failed, RETRY_DELAY);
        replica.due = Some(due);
        drop(shard);
        self.schedule(key, due);
        Some(!failed)
    }
}

impl<S: SharedStore> SyncedMode<S> {
    pub(super) async fn check(&self, check: &CounterCheck<'_>) -> Result<Decision, StoreError> {
        if let Some(decision) = self.decide(check) {
            return Ok(decision);
        }
        if check.hits == 0 {
            let step = algorithm::plan(check.limit, 0, check.store_now?);
            let outcome = self.store.apply_within(check.key, &step, check.timeout).await?;
            return Ok(algorithm::report(check.limit, &step, &outcome));
        }
        // The request takes at most the time of one call, even if it first waits for another.
        let most = check.timeout.into_iter().chain(self.store.timeout()).min();
        let deadline = Deadline::after(most);
        let mut timeout = check.timeout;
        loop {
            let room = self.shard(check.key).len() < SHARD_REPLICAS_MAX;
            let flight = match self.single_flight.begin(check.key, room) {
                Role::Caller(flight) => flight,
                Role::Waiter(end) => {
                    // The other request has ended, whatever its outcome.
                    let end = async {
                        let _ = end.await;
                        Ok(())
                    };
                    match deadline.left() {
                        None => end.await?,
                        Some(left) => store::with_timeout(left, end).await?,
                    }
                    timeout = deadline.left();
                    match self.decide(check) {
                        Some(decision) => return Ok(decision),
                        None => continue,
                    }
                }
            };
            if let Some(decision) = self.decide(check) {
                return Ok(decision);
            }
            let step = algorithm::plan(check.limit, check.hits, check.store_now?);
            let outcome = self.store.apply_within(check.key, &step, timeout).await?;
            if flight.creates() {
                self.create(check, &step, &outcome);
            }
            return Ok(algorithm::report(check.limit, &step, &outcome));
        }
    }

    pub(super) fn apply_detached(&self, key: &CounterKey, step: Step) {
        match self.shard(key).get_mut(key) {
            Some(replica) => replica.give_back(&step),
            None => self.store.apply_detached(key, step),
        }
    }

    pub(super) async fn run_due(&self, local: Micros) {
        for chunk in self.take_due(local).chunks(CONCURRENCY) {
            // Concurrently, so that they share batches to the store.
            join_all(chunk.iter().map(|key| self.exchange(*key, local, false))).await;
        }
    }

    pub(super) async fn close(&self, local: Micros) {
        for chunk in self.all_keys().chunks(CONCURRENCY) {
            let all = chunk.iter().map(|key| self.exchange(*key, local, true));
            let succeeded = join_all(all).await;
            if !succeeded.is_empty() && succeeded.iter().all(|one| *one == Some(false)) {
                return; // the store is unreachable, and the process cannot wait for it
            }
        }
    }
}
