//! SyncedPath: several instances over one store, each with a clock that is moved by hand.

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

/// What becomes of a visit to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// It never ran, and the caller knows.
    Refused,
    /// It never ran, and the caller cannot know.
    LostBefore,
    /// It ran, and the caller cannot know.
    LostAfter,
}

/// The store of several instances.
struct Shared {
    memory: MemoryStore,
    visits: AtomicUsize,
    /// What becomes of the next visits; then all are answered.
    fates: Mutex<VecDeque<Fate>>,
    away: AtomicBool,
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            memory: MemoryStore::new(100_000),
            visits: AtomicUsize::new(0),
            fates: Mutex::default(),
            away: AtomicBool::new(false),
        })
    }

    fn visits(&self) -> usize {
        self.visits.swap(0, Ordering::Relaxed)
    }

    fn meet(&self, fate: Fate) {
        lock(&self.fates).push_back(fate);
    }
}

impl Store for Shared {
    fn now(&self, _: &Key, local: Micros) -> Result<Micros, StoreError> {
        let away = self.away.load(Ordering::Relaxed);
        if away { Err(StoreError::Unreachable) } else { Ok(local) }
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
        if self.away.load(Ordering::Relaxed) {
            return Err(StoreError::Unreachable);
        }
        self.visits.fetch_add(1, Ordering::Relaxed);
        let fate = lock(&self.fates).pop_front().unwrap_or(Fate::Answered);
        match fate {
            Fate::Answered => self.memory.apply_now(key, step),
            Fate::Refused => Err(StoreError::Refused),
            Fate::LostBefore => Err(StoreError::Lost),
            Fate::LostAfter => self.memory.apply_now(key, step).and(Err(StoreError::Timeout)),
        }
    }

    fn apply_detached(&self, key: &Key, step: Step) {
        drop(self.memory.apply_now(key, &step));
    }

    async fn forget(&self, _: &Key) -> Result<bool, StoreError> {
        unreachable!("nobody empties counters here")
    }
}

const KEY: Key = Key([7, 7]);

fn ask(
    synced: &SyncedPath<Shared>,
    limit: &Limit,
    hits: i64,
    now: u64,
) -> Result<Decision, StoreError> {
    ask_for(synced, &KEY, limit, hits, now)
}

fn ask_for(
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
        local,
        now: synced.store.now(key, local),
        timeout: None,
    };
    synced.check(&check).now_or_never().expect("memory answers at once")
}

fn run_due(synced: &SyncedPath<Shared>, now: u64) {
    synced.run_due(Micros(now)).now_or_never().expect("memory answers at once");
}

/// What the store says of the counter.
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

/// The epoch of the tests: the beginning of a window, whatever the window.
const START: u64 = 1_785_000_000_000_000;
