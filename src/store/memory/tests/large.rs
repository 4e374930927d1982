//! Tests of the bound on the bytes of large states.

use super::*;

const NOW: Micros = Micros::from_secs(1000);
const BUDGET: usize = 64 << 10;

#[test]
fn large_states_stay_within_their_bytes() {
    let store = MemoryStore::with_large_bytes(1000, BUDGET);
    let small = key(u64::MAX);
    store.apply_now(&small, &count(NOW, 1, 100)).unwrap();
    for round in 0..20 {
        for client in 0..200 {
            let now = NOW.saturating_add(Micros::from_millis(round));
            store.apply_now(&key(client), &log(now, 3, 1000)).unwrap();
            let bytes = store.snapshot().large_bytes as usize;
            assert!(bytes <= BUDGET + 1024, "{bytes} bytes");
        }
    }
    assert!(store.snapshot().evicted > 0);
    assert!(store.get(&small).is_some(), "a small state is no help and stays");
    assert_consistent(&store);
}

#[test]
fn a_limited_log_stays_when_bytes_run_out() {
    let store = MemoryStore::with_large_bytes(1000, BUDGET);
    let fill = |&client: &u64| store.apply_now(&key(client), &log(NOW, 100, 100)).is_ok();
    let limited = (0..1000).take_while(fill).count() as u64;
    assert!((10..80).contains(&limited), "{limited} logs of 100 in 64 KiB");
    assert_eq!(store.snapshot().evicted, 0);
    for client in 0..limited {
        let outcome = store.apply_now(&key(client), &log(NOW, 1, 100)).unwrap();
        assert!(!outcome.allowed, "client {client}");
    }
    // Small states still fit.
    assert!(store.apply_now(&key(5000), &count(NOW, 1, 1)).unwrap().allowed);
    assert_consistent(&store);
}

#[test]
fn a_log_that_cannot_grow_is_unchanged() {
    let store = MemoryStore::with_large_bytes(1000, 2000);
    let now = |n| NOW.saturating_add(Micros(n));
    let grows = |n| store.apply_now(&key(1), &log(now(n), 1, 100_000));
    let held = (0..1000).take_while(|&n| grows(n).is_ok()).count() as u64;
    assert!((100..500).contains(&held), "{held} instants in 2000 bytes");
    assert_eq!(grows(held), Err(StoreError::MemoryFull));
    let peek = store.apply_now(&key(1), &log(now(held), 0, 100_000)).unwrap();
    assert_eq!(peek.tiers[0].units().0, held);
    let refund = store.apply_now(&key(1), &log(now(held), -1, 100_000)).unwrap();
    assert_eq!(refund.tiers[0].units().0, held - 1);
    assert_consistent(&store);
}

#[test]
fn a_large_state_of_another_shard_is_evicted() {
    let store = MemoryStore::with_large_bytes(1 << 20, BUDGET);
    assert!(store.shards.len() > 64);
    for client in 0..1000 {
        // Twelve fit, in as many shards, so most new ones are alone in their shard.
        let refused_before = store.snapshot().refused;
        let answer = store.apply_now(&key(client), &log(NOW, 500, 1000));
        assert!(answer.is_ok() || store.snapshot().refused > refused_before);
    }
    let stats = store.snapshot();
    assert!(stats.evicted > 50, "{stats:?}");
    assert_consistent(&store);
}

#[test]
fn a_state_moves_between_entry_and_list() {
    let store = MemoryStore::new(10);
    for round in 0..10 {
        for client in 0..4 {
            let now = Micros::from_secs(1000 + round);
            let step = if round % 2 == 0 { count(now, 1, 10) } else { log(now, 1, 10) };
            assert!(store.apply_now(&key(client), &step).unwrap().allowed);
            assert_consistent(&store);
        }
    }
    for client in 0..4 {
        assert!(store.delete(&key(client)));
        assert!(!store.delete(&key(client)));
        assert_consistent(&store);
    }
    assert_eq!(store.snapshot(), MemorySnapshot::default());
}
