//! SyncedPath: decides on a copy of the counter, and exchanges counts with the store at intervals.
//!
//! The first request to a counter is decided by the store, and its answer is the copy. From then on
//! requests are decided by the copy; twice in an interval one step adds to the store what passed
//! here, whatever the limit, and its answer with what has passed here since is the new copy. So the
//! copy never knows of a hit that was not let pass, and knows all but what the other instances let
//! pass in the last interval: a hit waits for one exchange to be told, and for another to be heard
//! of. `docs/modes.md` has the promise and the proof.
//!
//! Memory is bounded: beyond a number of copies, further counters are decided by the store.

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

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 64;

/// Counters that a shard keeps copies of.
const REPLICAS_MAX: usize = 1_024;

/// Exchanges that are under way at the same time.
const AT_ONCE: usize = 1_024;

/// Visits of one exchange: one as a rule; one more after a doubt, and where a window has ended since
/// the last one.
const VISITS_MAX: usize = 8;

/// How long one visit is waited for, if the store does not give up earlier.
const TIMEOUT: Duration = Duration::from_secs(1);

/// After a failure the next exchange is tried so much later, or after an interval if that is less.
const AGAIN: Micros = Micros::SECOND;

/// A counter that nobody asks for two intervals is forgotten, once the store knows all; after this
/// time in any case.
const IDLE: Micros = Micros::from_secs(10);

/// Decides synced rules.
pub struct SyncedPath<S> {
    store: Arc<S>,
    shards: Box<[Mutex<HashMap<Key, Replica>>]>,
    /// When each replica is due; entries that do not agree with theirs mean nothing.
    due: Mutex<BinaryHeap<Reverse<(Micros, Key)>>>,
    counts: SyncedCounts,
}

impl<S> SyncedPath<S> {
    /// Around `store`.
    pub(super) fn new(store: Arc<S>) -> SyncedPath<S> {
        SyncedPath {
            store,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            due: Mutex::default(),
            counts: SyncedCounts::default(),
        }
    }

    /// What has happened, for metrics.
    pub fn counts(&self) -> &SyncedCounts {
        &self.counts
    }

    /// Counters that a copy is kept of.
    pub fn replicas(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).len() as u64).sum()
    }

    /// Drops the copy of a counter that is emptied, and what the store was not told of it.
    pub(super) fn forget(&self, key: &Key) {
        self.shard(key).remove(key);
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Replica>> {
        lock(&self.shards[key.0[0] as usize % SHARDS])
    }

    fn is_due(&self, key: Key, at: Micros) {
        lock(&self.due).push(Reverse((at, key)));
    }

    /// The counters whose exchange is due at `local`, or all of them.
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

/// What is locked; a panic elsewhere leaves nothing half done.
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
    /// The decision of the copy, if there is one.
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
            self.is_due(*check.key, due);
        }
        Some(decision)
    }

    /// The counter was asked for the first time.
    fn learn(&self, check: &CounterCheck<'_>, step: &Step, outcome: &crate::step::Outcome) {
        let mut shard = self.shard(check.key);
        if let Some(replica) = shard.get_mut(check.key) {
            return replica.hear_of(step, outcome);
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
        self.is_due(*check.key, due);
    }

    /// Brings to the store what it does not know of `key`, and learns what others did. Tells
    /// whether the store answered, if it was asked.
    async fn exchange(&self, key: Key, local: Micros, closing: bool) -> Option<bool> {
        let mut failed = None;
        for number in 0..VISITS_MAX {
            let now = self.store.now(&key, local);
            let visit = {
                let mut shard = self.shard(&key);
                let replica = shard.get_mut(&key)?;
                let at = now.unwrap_or_else(|_| replica.now(local));
                if number == 0 && replica.is_clean(at) && (closing || replica.is_idle(local, IDLE))
                {
                    shard.remove(&key);
                    return None;
                }
                match now {
                    Ok(now) => Ok(replica.visit(now, local)),
                    Err(error) => Err(error),
                }
            };
            let (again, error) = match visit {
                Ok(visit) => {
                    let answer = self.store.apply_within(&key, &visit.step, Some(TIMEOUT)).await;
                    let mut shard = self.shard(&key);
                    let replica = shard.get_mut(&key)?;
                    let heard = replica.hear(&visit, answer.as_ref().map_err(|error| *error));
                    self.counts.call(heard.overrun);
                    (visit.again, answer.err())
                }
                Err(error) => (false, Some(error)),
            };
            if let Some(error) = error {
                self.counts.failure(error);
            }
            failed = Some(error.is_some());
            if error.is_some() || !again {
                break;
            }
        }
        let failed = failed?;
        let mut shard = self.shard(&key);
        let replica = shard.get_mut(&key)?;
        replica.due = replica.next_due(local, failed, AGAIN);
        let due = replica.due;
        drop(shard);
        self.is_due(key, due);
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
            self.learn(check, &step, &outcome);
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
        for some in self.take_due(Some(local)).chunks(AT_ONCE) {
            // Together, so that they share the way to the store.
            join_all(some.iter().map(|key| self.exchange(*key, local, false))).await;
        }
    }

    pub(super) async fn close(&self, local: Micros) {
        for some in self.take_due(None).chunks(AT_ONCE) {
            let all = some.iter().map(|key| self.exchange(*key, local, true));
            let answered = join_all(all).await;
            if !answered.is_empty() && answered.iter().all(|answered| *answered == Some(false)) {
                return; // the store is away, and the process cannot wait for it
            }
        }
    }
}
