//! Tests of the memory store against a plain map: the outcomes are equal, also after evictions and
//! expiry.

use std::collections::HashMap;

use proptest::prelude::*;
use smallvec::SmallVec;

use super::*;
use crate::step::{GcraTier, GcraTime, Lease, LeaseId, SlidingWindowTier};

const KEYS: u64 = 24;

/// One operation of a test.
#[derive(Clone, Debug)]
enum Action {
    Apply { key: u64, hits: i64, count_denied: bool, lease: Option<Lease>, late: u64 },
    Wait(Micros),
    Sweep,
    Delete(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let lease = (0_u64..3, any::<bool>(), 0_u64..60).prop_map(|(id, opens, secs)| {
        let id = LeaseId::from_bits(id);
        let until = Micros::from_secs(1000 + 2 * secs);
        if opens { Lease::Open { id, until } } else { Lease::Close(id) }
    });
    let lease = proptest::option::weighted(0.3, lease);
    // Another thread's instant can be earlier, by less than the grace period.
    let late = prop_oneof![4 => Just(0), 1 => 0_u64..1_000_000];
    let apply = (0..KEYS, -3_i64..6, any::<bool>(), lease, late).prop_map(
        |(key, hits, count_denied, lease, late)| Action::Apply {
            key,
            hits,
            count_denied,
            lease,
            late,
        },
    );
    prop_oneof![
        20 => apply,
        2 => (0_u64..3_000_000).prop_map(|micros| Action::Wait(Micros(micros))),
        1 => (0_u64..60).prop_map(|secs| Action::Wait(Micros::from_secs(secs))),
        2 => Just(Action::Sweep),
        1 => (0..KEYS).prop_map(Action::Delete),
    ]
}

/// The parameters of key number `key` at `now`: every algorithm, with one tier and with two.
fn params(key: u64, now: Micros, hits: i64) -> StepParams {
    let max = 4 + key;
    let tiers: &[u64] = if key % 10 < 5 { &[7] } else { &[5, 20] };
    let windows = tiers.iter().map(|&secs| Micros::from_secs(secs));
    match key % 5 {
        0 => StepParams::FixedWindow(windows.map(|w| fixed_window_tier(w, now, max)).collect()),
        1 => StepParams::SlidingWindow(windows.map(|w| sliding_window_tier(w, now, max)).collect()),
        2 => StepParams::Gcra(windows.map(|w| gcra_tier(w, now, max, hits)).collect()),
        3 => StepParams::Log(entries_tiers(windows, now, max)),
        _ => StepParams::Slots(entries_tiers(windows, now, max)),
    }
}

fn fixed_window_tier(window: Micros, now: Micros, max: u64) -> FixedWindowTier {
    let start = Micros(now.0 - now.0 % window.0);
    FixedWindowTier::new(start, window, max)
}

fn sliding_window_tier(window: Micros, now: Micros, max: u64) -> SlidingWindowTier {
    let start = Micros(now.0 - now.0 % window.0);
    SlidingWindowTier { start, window, rest: Micros(window.0 - now.0 % window.0), max }
}

fn gcra_tier(window: Micros, now: Micros, max: u64, hits: i64) -> GcraTier {
    let length =
        |hits: u64| GcraTime { micros: window.0 * hits / max, part: window.0 * hits % max };
    let after = |length: GcraTime| GcraTime { micros: now.0 + length.micros, ..length };
    GcraTier {
        now,
        parts: max,
        cost: length(hits.unsigned_abs()),
        emission_interval: length(1),
        latest_allowed: after(length(max)),
        latest_denied: after(length(2 * max)),
        refund_only_at: None,
    }
}

fn entries_tiers(
    windows: impl Iterator<Item = Micros>,
    now: Micros,
    max: u64,
) -> SmallVec<[EntriesTier; 1]> {
    let tier = |window| {
        let after = now.saturating_sub(window).saturating_add(Micros(1));
        EntriesTier { after, window, max }
    };
    windows.map(tier).collect()
}

proptest! {
    #[test]
    fn outcomes_equal_those_of_a_plain_map(
        actions in proptest::collection::vec(action(), 1..300),
    ) {
        let store = MemoryStore::new(1000);
        let mut owned = MemoryStore::new(1000);
        let mut model: HashMap<u64, Option<State>> = HashMap::new();
        let mut now = Micros::from_secs(1000);
        for action in actions {
            match action {
                Action::Apply { key: n, hits, count_denied, lease, late } => {
                    let now = now.saturating_sub(Micros(late));
                    let params = params(n, now, hits);
                    let step = Step { now, hits, count_denied, lease, params };
                    let expected = step.apply(model.entry(n).or_default());
                    let by_owner = owned.apply_owned(&key(n), &step);
                    prop_assert_eq!(by_owner, Ok(expected.clone()), "{:?}", step);
                    prop_assert_eq!(store.apply_now(&key(n), &step), Ok(expected), "{:?}", step);
                }
                Action::Wait(length) => now = now.saturating_add(length),
                Action::Sweep => {
                    store.sweep(now, 1000);
                    owned.sweep(now, 1000);
                }
                Action::Delete(n) => {
                    store.delete(&key(n));
                    owned.delete(&key(n));
                    model.remove(&n);
                }
            }
            assert_consistent(&store);
            assert_consistent(&owned);
        }
        prop_assert_eq!(store.snapshot().evicted, 0);
    }
}

/// Reading ahead changes no counter and creates none.
#[test]
fn prefetched_counters_are_unchanged() {
    let now = Micros::from_secs(1000);
    let mut store = MemoryStore::new(100_000);
    let known = PREFETCH_COUNTERS_MIN as u64;
    for n in 0..known {
        store
            .apply_owned(&key(n), &count_per(60, now, 1 + n as i64 % 5, 10))
            .expect("there is room");
    }
    let keys: Vec<CounterKey> = (0..known + 100).map(key).collect();
    let states = |store: &MemoryStore| keys.iter().map(|key| store.get(key)).collect::<Vec<_>>();
    let before = (states(&store), store.snapshot());
    store.prefetch(keys.iter());
    assert_eq!((states(&store), store.snapshot()), before);
    assert_consistent(&store);
}
