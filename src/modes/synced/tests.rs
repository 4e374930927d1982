//! Tests of mode synced: several instances over one store, each with a manual clock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::{Outcome, State};
use crate::store::MemoryStore;

mod simulation;
mod single;

const INTERVAL: Micros = Micros::from_millis(500);

/// The fate of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Applied,
    /// The step is not applied, and the error says so.
    Refused,
    /// The step is not applied, and the caller gets no outcome.
    LostBefore,
    /// The step is applied, and the caller gets no outcome.
    LostAfter,
}

/// The store of several instances.
struct Shared {
    memory: MemoryStore,
    calls: AtomicUsize,
    /// The fates of the next calls. All calls after them are applied.
    fates: Mutex<VecDeque<Fate>>,
    unreachable: AtomicBool,
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            memory: MemoryStore::new(100_000),
            calls: AtomicUsize::new(0),
            fates: Mutex::default(),
            unreachable: AtomicBool::new(false),
        })
    }

    fn calls(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }

    fn push_fate(&self, fate: Fate) {
        lock(&self.fates).push_back(fate);
    }
}

impl Store for Shared {
    fn now(&self, _: &Key, local: Micros) -> Result<Micros, StoreError> {
        let unreachable = self.unreachable.load(Ordering::Relaxed);
        if unreachable { Err(StoreError::Unreachable) } else { Ok(local) }
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }

    async fn apply_within(
        &self,
        key: &Key,
        step: &Step,
        _: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        if self.unreachable.load(Ordering::Relaxed) {
            return Err(StoreError::Unreachable);
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        let fate = lock(&self.fates).pop_front().unwrap_or(Fate::Applied);
        match fate {
            Fate::Applied => self.memory.apply_now(key, step),
            Fate::Refused => Err(StoreError::ErrorReply),
            Fate::LostBefore => Err(StoreError::ConnectionLost),
            Fate::LostAfter => self.memory.apply_now(key, step).and(Err(StoreError::Timeout)),
        }
    }

    fn apply_detached(&self, key: &Key, step: Step) {
        drop(self.memory.apply_now(key, &step));
    }

    async fn delete(&self, _: &Key) -> Result<bool, StoreError> {
        unreachable!("no test deletes counters")
    }
}

const KEY: Key = Key([7, 7]);

fn hit(
    synced: &SyncedPath<Shared>,
    limit: &Limit,
    hits: i64,
    now: u64,
) -> Result<Decision, StoreError> {
    hit_key(synced, &KEY, limit, hits, now)
}

fn hit_key(
    synced: &SyncedPath<Shared>,
    key: &Key,
    limit: &Limit,
    hits: i64,
    now: u64,
) -> Result<Decision, StoreError> {
    let local = Micros(now);
    let check = CounterCheck {
        key,
        limit,
        hits,
        lease: None,
        mode: Mode::Synced { interval: INTERVAL },
        over_limit_cache: true,
        local_now: local,
        store_now: synced.store.now(key, local),
        timeout: None,
    };
    synced.check(&check).now_or_never().expect("memory answers at once")
}

fn run_due(synced: &SyncedPath<Shared>, now: u64) {
    synced.run_due(Micros(now)).now_or_never().expect("memory answers at once");
}

/// The store's decision of a peek.
fn stored(shared: &Shared, limit: &Limit, now: u64) -> Decision {
    let step = algorithm::plan(limit, 0, Micros(now));
    let outcome = shared.memory.apply_now(&KEY, &step).expect("there is room");
    algorithm::report(limit, &step, &outcome)
}

fn tier(requests: u64, window: u64, burst: u64) -> Tier {
    Tier { requests, window: Micros(window), burst }
}

fn limit(algorithm: Algorithm, requests: u64) -> Limit {
    let tiers = Box::new([tier(requests, 10_000_000, requests)]);
    Limit { algorithm, tiers, count_denied: false }
}

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
];

/// The instant at which every test begins. It is the start of a window of every used length.
const START: u64 = 1_785_000_000_000_000;
