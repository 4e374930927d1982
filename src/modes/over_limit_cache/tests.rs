//! Tests that the over-limit cache makes the same decisions as the plain store, with fewer calls.

use futures_util::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::algorithm;
use crate::decision::Decision;
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::{Lease, LeaseId};
use crate::store::MemoryStore;
use crate::testing::{FakeResult, FakeStore};

mod calendar;
mod unreported;

/// The timeout of a slow store.
const TIMEOUT: Duration = Duration::from_millis(100);

fn fake() -> Arc<FakeStore> {
    Arc::new(FakeStore::new())
}

/// A key of one set, so that all keys of a test evict each other.
fn key(number: u64) -> CounterKey {
    CounterKey([number << 32, number])
}

fn cache(store: &Arc<FakeStore>) -> OverLimitStore<FakeStore> {
    OverLimitStore::new(store.clone(), Arc::new(OverLimitCache::new()), DENIAL_TTL)
}

fn check_memory(store: &MemoryStore, key: &CounterKey, limit: &Limit, step: &Step) -> Decision {
    let outcome = store.apply_now(key, step).expect("there is room");
    algorithm::report(limit, step, &outcome)
}

fn check(store: &impl SharedStore, key: &CounterKey, limit: &Limit, step: &Step) -> Decision {
    let outcome = store.apply(key, step).now_or_never().expect("memory answers at once");
    algorithm::report(limit, step, &outcome.expect("there is room"))
}

fn limit(algorithm: Algorithm, requests: u64) -> Limit {
    let tier = Tier { requests, window: Micros::from_secs(10), burst: requests, calendar: None };
    Limit { algorithm, tiers: Box::new([tier]), count_denied: algorithm == Algorithm::FixedWindow }
}

/// A step on one of the counters.
#[derive(Clone, Debug)]
struct Event {
    counter: u64,
    /// Microseconds since the last step; negative if the clock is set back.
    later: i64,
    hits: i64,
    lease: Option<(u64, bool)>,
    /// A reload to a limit of this number of requests.
    requests: Option<u64>,
    detached: bool,
}

fn event() -> impl Strategy<Value = Event> {
    let later = prop_oneof![
        6 => Just(0),
        6 => 0..4_000_000_i64,
        2 => 0..25_000_000_i64,
        1 => select(vec![9_999_999, 10_000_000, 10_000_001]),
        1 => -3_000_000..0_i64,
    ];
    let hits = prop_oneof![6 => Just(1), 4 => 0..14_i64, 1 => -4..0_i64];
    let lease = proptest::option::weighted(0.1, (0..3_u64, any::<bool>()));
    let requests = proptest::option::weighted(0.03, 0..9_u64);
    (0..12_u64, later, hits, lease, requests, proptest::bool::weighted(0.5)).prop_map(
        |(counter, later, hits, lease, requests, detached)| Event {
            counter,
            later,
            hits,
            lease,
            requests,
            detached,
        },
    )
}

fn limits() -> impl Strategy<Value = Limit> {
    let tier = |window: u64| {
        (0..9_u64, 1..9_u64).prop_map(move |(requests, burst)| Tier {
            requests,
            window: Micros::from_secs(window),
            burst,
            calendar: None,
        })
    };
    let tiers = prop_oneof![
        2 => tier(10).prop_map(|tier| vec![tier]),
        1 => (tier(10), tier(7)).prop_map(|(a, b)| vec![a, b]),
    ];
    (select(&Algorithm::ALL[..]), tiers, any::<bool>()).prop_map(
        |(algorithm, tiers, count_denied)| Limit { algorithm, tiers: tiers.into(), count_denied },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn decisions_equal_those_of_the_plain_store(
        mut limit in limits(), events in vec(event(), 1..120),
    ) {
        let (plain, store) = (MemoryStore::new(1_000), fake());
        let cached = cache(&store);
        let (mut now, mut latest) = (1_785_000_000_000_000_i64, 0);
        for event in events {
            // Before that, the store in memory may have dropped the counter.
            now = (now + event.later).max(latest - 999_999);
            latest = latest.max(now);
            let key = key(event.counter % if limit.count_denied { 12 } else { 3 });
            if let Some(requests) = event.requests {
                limit.tiers[0].requests = requests;
            }
            let mut step = algorithm::plan(&limit, event.hits, Micros(now as u64));
            step.lease = event.lease.map(|(id, opens)| {
                let (id, until) = (LeaseId::from_bits(id), Micros(now as u64 + 20_000_000));
                if opens { Lease::Open { id, until } } else { Lease::Close(id) }
            });
            if event.detached && step.gives_back() {
                drop(plain.apply_now(&key, &step));
                cached.apply_detached(&key, step);
                continue;
            }
            let expected = check_memory(&plain, &key, &limit, &step);
            let actual = check(&cached, &key, &limit, &step);
            prop_assert_eq!(actual, expected, "{:?} {:?}", step, limit);
        }
    }
}

#[test]
fn a_full_counter_is_called_once_in_a_second() {
    for algorithm in Algorithm::ALL {
        let (store, limit) = (fake(), limit(algorithm, 3));
        let (cached, key) = (cache(&store), key(1));
        let at = |micros: u64| algorithm::plan(&limit, 1, Micros(1_000_000_000 + micros));
        for micros in 0..3 {
            assert!(check(&cached, &key, &limit, &at(micros)).allowed);
        }
        store.take_calls();
        let wait = check(&cached, &key, &limit, &at(3)).reset_after.0;
        for later in 4..1_000 {
            assert!(!check(&cached, &key, &limit, &at(later)).allowed);
        }
        let last = check(&cached, &key, &limit, &at(3 + wait - 1));
        assert_eq!((last.allowed, last.reset_after), (false, Micros(1)), "{algorithm:?}");
        // The last check is more than a second after the first one. A fixed window first gets the
        // hits that were denied.
        let calls = match algorithm {
            Algorithm::Concurrency => 998,
            Algorithm::FixedWindow => 3,
            _ => 2,
        };
        assert_eq!(store.take_calls(), calls, "{algorithm:?}");
        assert!(check(&cached, &key, &limit, &at(3 + wait)).allowed, "{algorithm:?}");
    }
}

#[test]
fn a_key_flood_does_not_grow_the_cache() {
    let (store, limit) = (fake(), limit(Algorithm::FixedWindow, 0));
    let cached = cache(&store);
    let step = algorithm::plan(&limit, 1, Micros::SECOND);
    for number in 0..200_000_u64 {
        // Stores expect keys that are spread as hashes are.
        let key = CounterKey([number, 7].map(|half: u64| half.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        assert!(!check(&cached, &key, &limit, &step).allowed);
        if number % 3 == 0 {
            cached.apply_detached(&key, algorithm::plan(&limit, -1, Micros::SECOND));
        }
    }
    assert_eq!(cached.cache.counters(), 65_536);
}

/// A full counter of one hit behind a cache.
struct Bench {
    store: Arc<FakeStore>,
    cached: OverLimitStore<FakeStore>,
    limit: Limit,
}

impl Bench {
    fn full() -> Bench {
        let (store, limit) = (fake(), limit(Algorithm::TokenBucket, 1));
        let bench = Bench { cached: cache(&store), store, limit };
        assert!(bench.take(0));
        bench
    }

    fn step(&self, hits: i64, second: u64) -> Step {
        algorithm::plan(&self.limit, hits, Micros::from_secs(1_000 + second))
    }

    fn take(&self, second: u64) -> bool {
        check(&self.cached, &key(1), &self.limit, &self.step(1, second)).allowed
    }
}

#[test]
fn a_denial_during_a_refund_is_not_cached() {
    for detached in [true, false] {
        let bench = Bench::full();
        let (key, take, refund) = (key(1), bench.step(1, 0), bench.step(-1, 0));
        bench.store.set_held(true);
        let mut denial = Box::pin(bench.cached.apply(&key, &take));
        assert!((&mut denial).now_or_never().is_none(), "denied, but the outcome is held back");
        bench.store.set_held(false);
        if detached {
            bench.cached.apply_detached(&key, refund);
        } else {
            check(&bench.cached, &key, &bench.limit, &refund);
        }
        bench.store.release(0, 1);
        assert!(!denial.now_or_never().expect("released").expect("an outcome").allowed);
        assert!(bench.take(0), "there is room again");
    }
}

#[test]
fn a_refund_invalidates_denials_when_it_arrives() {
    for dropped in [true, false] {
        let bench = Bench::full();
        let (key, refund) = (key(1), bench.step(-1, 0));
        bench.store.set_held(true);
        let mut giving = Box::pin(bench.cached.apply(&key, &refund));
        assert!((&mut giving).now_or_never().is_none());
        bench.store.set_held(false);
        // The store has applied the refund, so another instance's hits fill the counter again.
        let other = bench.step(1, 0);
        assert!(check_memory(&bench.store.memory, &key, &bench.limit, &other).allowed);
        assert!(!bench.take(0));
        if dropped {
            drop(giving);
        } else {
            bench.store.release(0, 1);
            giving.now_or_never().expect("released").expect("an outcome");
        }
        bench.store.take_calls();
        assert!(!bench.take(0));
        assert_eq!(bench.store.take_calls(), 1, "it was invalidated");
    }
}

#[test]
fn a_refund_without_outcome_suppresses_denials() {
    for detached in [true, false] {
        let bench = Bench::full();
        let (key, refund) = (key(1), bench.step(0, 0));
        let refund = Step { hits: -1, params: bench.step(-1, 0).params, ..refund };
        assert!(!bench.take(0));
        if detached {
            bench.cached.apply_detached(&key, refund);
        } else {
            bench.store.set_result(FakeResult::Lost(StoreError::Timeout));
            let result = bench.cached.apply(&key, &refund).now_or_never();
            assert_eq!(result, Some(Err(StoreError::Timeout)));
            bench.store.set_result(FakeResult::Applied);
        }
        assert!(bench.take(1), "there is room");
        bench.store.take_calls();
        for _ in 0..5 {
            assert!(!bench.take(1));
        }
        assert_eq!(bench.store.take_calls(), 5, "for a second no denial is cached");
        for _ in 0..5 {
            assert!(!bench.take(3));
        }
        assert_eq!(bench.store.take_calls(), 1);
    }
}

#[test]
fn a_denial_is_cached_for_its_longest_age() {
    let (store, limit) = (fake(), limit(Algorithm::SlidingWindow, 0));
    let (cache, age) = (Arc::new(OverLimitCache::new()), Micros::from_millis(100));
    let cached = OverLimitStore::new(store.clone(), cache, age);
    for millis in 0..1_000 {
        let step = algorithm::plan(&limit, 1, Micros::from_millis(5_000 + millis));
        assert!(!check(&cached, &key(1), &limit, &step).allowed);
    }
    assert_eq!(store.take_calls(), 10);
}

#[test]
fn a_deleted_counter_is_not_denied_from_memory() {
    let store = fake();
    let cache = cache(&store);
    let limit = Limit::fixed_window(1, Micros::from_secs(3600));
    let step = algorithm::plan(&limit, 1, Micros::from_secs(1_000_000));
    let allowed = || check(&cache, &key(1), &limit, &step).allowed;
    assert_eq!([allowed(), allowed()], [true, false]);
    store.take_calls();
    assert!(!allowed());
    assert_eq!(store.take_calls(), 0, "denied from memory");
    assert_eq!(cache.delete(&key(1)).now_or_never(), Some(Ok(true)));
    assert_eq!([allowed(), allowed()], [true, false]);
}
