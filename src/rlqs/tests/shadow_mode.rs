//! Rules in shadow mode: their buckets pass everything, whatever the ledger says or does not say.

use super::*;
use crate::testing::FakeStore;

/// The shadow rule, and one with a limit.
const IDS: [(&str, u64); 2] = [("shadow=1", 50), ("tenant=a", 50)];

#[test]
fn buckets_pass_while_shares_are_learnt_again() {
    let process = Process::new(RlqsConfig { relearn: true, ..config() });
    let mut stream = process.open(None);
    let allowed = BTreeMap::from([("shadow=1".to_owned(), Got::Allow)]);
    for _ in 0..2 {
        stream.report(&report("d", &IDS)).expect("valid");
        assert_eq!(newest(&mut stream), allowed, "before the driver");
        process.pass(5_000);
        assert_eq!(newest(&mut stream), BTreeMap::new());
    }
    process.pass(5_000);
    newest(&mut stream);
    stream.report(&report("d", &IDS)).expect("valid");
    process.settle();
    let all = newest(&mut stream);
    assert_eq!((all.len(), all["shadow=1"]), (2, Got::Allow), "{all:?}");
}

#[test]
fn buckets_pass_while_the_store_fails() {
    let clock = Arc::new(ManualClock::at(Micros::from_secs(1_000)));
    let store = Arc::new(FakeStore::new());
    let denying = RlqsConfig { on_error: OnError::Deny, ..config() };
    let process = Process::with(denying, clock, Some(store.clone()));
    store.set_reachable(false);
    let mut stream = process.open(None);
    for _ in 0..4 {
        stream.report(&report("d", &IDS)).expect("valid");
        let allowed = ("shadow=1".to_owned(), Got::Allow, 12);
        assert_eq!(actions(&mut stream), [allowed], "before the driver");
        process.pass(5_000);
        assert_eq!(actions(&mut stream), []);
    }
    // The mode itself needs no store either.
    process.reload(
        "  - {key: tenant, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 9}}",
    );
    process.settle();
    assert_eq!(newest(&mut stream)["tenant=a"], Got::Allow);
}

/// A reload that ends the mode while there is no share to send: what the Envoy has for expired assignments
/// decides after a second.
#[test]
fn buckets_without_a_share_pass_for_a_second() {
    let clock = Arc::new(ManualClock::at(Micros::from_secs(1_000)));
    let store = Arc::new(FakeStore::new());
    let process = Process::with(config(), clock, Some(store.clone()));
    store.set_reachable(false);
    let mut stream = process.open(None);
    stream.report(&report("d", &IDS)).expect("valid");
    process.settle();
    assert_eq!(actions(&mut stream), [("shadow=1".to_owned(), Got::Allow, 12)]);
    process.reload("  - {key: shadow, rate_limit: {unit: second, requests_per_unit: 10}}");
    process.settle();
    let ended: Vec<_> =
        actions(&mut stream).into_iter().filter(|(id, _, _)| id == "shadow=1").collect();
    assert_eq!(ended, [("shadow=1".to_owned(), Got::Allow, 1)]);
    stream.report(&report("d", &IDS)).expect("valid");
    process.pass(1_000);
    assert!(!newest(&mut stream).contains_key("shadow=1"), "it has no share");
    store.set_reachable(true);
    process.pass(5_000);
    stream.report(&report("d", &IDS)).expect("valid");
    process.pass(5_000);
    assert_eq!(newest(&mut stream)["shadow=1"], Got::Rate(10.0, 2));
}

/// Also with a limit that cannot be divided.
#[test]
fn buckets_of_other_limits_pass_too() {
    let process = Process::new(config());
    process.reload(
        "  - {key: slots, shadow_mode: true, \
         rate_limit: {algorithm: concurrency, max: 5, hold: 60s}}",
    );
    let mut stream = process.open(None);
    stream.report(&report("d", &[("slots=1", 1)])).expect("valid");
    assert_eq!(newest(&mut stream)["slots=1"], Got::Allow);
}
