//! Tests of mode synced: several instances over one store, each with a manual clock.

use futures_util::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::State;
use crate::testing::{FakeResult, FakeStore};

mod simulation;
mod single;

const INTERVAL: Micros = Micros::from_millis(500);

/// The step is not applied, and the error says so.
const ERROR_REPLY: FakeResult = FakeResult::Rejected(StoreError::ErrorReply);
/// The step is not applied, and the error leaves that open.
const LOST_BEFORE: FakeResult = FakeResult::Rejected(StoreError::ConnectionLost);
/// The step is applied, and the caller gets no outcome.
const LOST_AFTER: FakeResult = FakeResult::Lost(StoreError::Timeout);

fn shared() -> Arc<FakeStore> {
    Arc::new(FakeStore::new())
}

const KEY: CounterKey = CounterKey([7, 7]);

fn hit(
    synced: &SyncedMode<FakeStore>,
    limit: &Limit,
    hits: i64,
    now: u64,
) -> Result<Decision, StoreError> {
    hit_key(synced, &KEY, limit, hits, now)
}

fn hit_key(
    synced: &SyncedMode<FakeStore>,
    key: &CounterKey,
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

fn run_due(synced: &SyncedMode<FakeStore>, now: u64) {
    synced.run_due(Micros(now)).now_or_never().expect("memory answers at once");
}

/// The store's decision of a peek.
fn stored(shared: &FakeStore, limit: &Limit, now: u64) -> Decision {
    let step = algorithm::plan(limit, 0, Micros(now));
    let outcome = shared.memory.apply_now(&KEY, &step).expect("there is room");
    algorithm::report(limit, &step, &outcome)
}

fn tier(requests: u64, window: u64, burst: u64) -> Tier {
    Tier { requests, window: Micros(window), burst, calendar: None }
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
