//! Several processes with one ledger in a shared store.

use std::time::Duration;

use super::*;
use crate::rlqs::driver::exchange_rules;
use crate::rlqs::refused_reason::RefusedReason;
use crate::testing::FakeStore;

pub(super) fn processes(number: usize) -> (Vec<Process>, Arc<FakeStore>) {
    let clock = Arc::new(ManualClock::at(Micros::from_secs(1_000)));
    let store = Arc::new(FakeStore::new());
    let ledger = || -> Arc<dyn SharedLedger> { store.clone() };
    let process = |_| Process::with(config(), clock.clone(), Some(ledger()));
    ((0..number).map(process).collect(), store)
}

/// Two processes divide one quota between their Envoys.
#[test]
fn processes_divide_one_quota() {
    let (all, _) = processes(2);
    let mut streams: Vec<EnvoyStream> = all.iter().map(|process| process.open(None)).collect();
    let mut rates = [0.0; 2];
    for step in 0..120 {
        if step % 20 == 0 {
            for stream in &mut streams {
                stream.report(&report("d", &[("tenant=a", 1_000)])).expect("valid");
            }
        }
        // The second one only follows the clock that the first one moved.
        all[0].pass(250);
        all[1].settle();
        for (rate, stream) in rates.iter_mut().zip(&mut streams) {
            match newest(stream).get("tenant=a") {
                Some(Got::Rate(new, _)) => *rate = *new,
                Some(Got::Deny) => *rate = 0.0,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
        assert!(rates[0] + rates[1] <= 100.0 + 1e-9, "{rates:?} at step {step}");
    }
    assert!(rates.iter().all(|rate| (rate - 50.0).abs() < 5.0), "{rates:?}");
    for process in &all {
        let metrics = process.engine.metrics();
        assert_eq!((metrics.violations.get(), metrics.settlements_error.get()), (0, 0));
    }
}

/// The rate that an Envoy gets for its bucket; `None` without an assignment.
fn rate(stream: &mut EnvoyStream) -> Option<f64> {
    newest(stream).get("tenant=a").map(|got| match got {
        Got::Rate(rate, _) => *rate,
        Got::Deny => 0.0,
        other => panic!("{other:?}"),
    })
}

/// The number of names that were refused.
fn refused_names(process: &Process) -> u64 {
    process.engine.metrics().refused(RefusedReason::NameInUse)
}

/// Five reports of each stream in 25 s, one process 100 ms after the other. Returns the last rates, and the
/// largest sum of both.
fn reported(all: &[Process], streams: &mut [EnvoyStream]) -> ([f64; 2], f64) {
    let (mut rates, mut largest) = ([0.0; 2], 0.0_f64);
    for _ in 0..5 {
        for (process, stream) in all.iter().zip(&mut *streams) {
            newest(stream);
            stream.report(&report("d", &[("tenant=a", 600)])).expect("valid");
            process.settle();
            all[0].pass(100);
        }
        for _ in 0..19 {
            all[0].pass(250);
            all[1].settle();
            for (last, stream) in rates.iter_mut().zip(&mut *streams) {
                *last = rate(stream).unwrap_or(*last);
            }
            largest = largest.max(rates.iter().sum());
        }
    }
    (rates, largest)
}

/// Two Envoys with one name report to two processes. One gets a random name. The name stays claimed at its
/// process, because other buckets of the stream may have it. The next streams with this name get a random one at
/// once, so they use no share of the other Envoy.
#[test]
fn a_name_is_used_by_one_envoy_only() {
    let (all, _) = processes(2);
    let refused = || [&all[0], &all[1]].map(refused_names);
    let mut streams: Vec<EnvoyStream> =
        all.iter().map(|process| process.open(Some("same"))).collect();
    let mut renamed = 0;
    for stream in 0..3 {
        if stream > 0 {
            streams.remove(renamed);
            streams.insert(renamed, all[renamed].open(Some("same")));
        }
        let before = refused();
        let (rates, largest) = reported(&all, &mut streams);
        assert_eq!(largest > 100.0 + 1e-9, stream == 0, "{largest} per second");
        let after = refused();
        assert_eq!(after.iter().sum::<u64>(), before.iter().sum::<u64>() + 1, "{after:?}");
        let sum: f64 = rates.iter().sum();
        assert!((95.0..=100.0 + 1e-9).contains(&sum), "{rates:?} per second");
        assert!(rates.iter().all(|rate| *rate > 0.0), "{rates:?} per second");
        renamed = usize::from(after[1] > before[1]);
    }
    let before = refused_names(&all[renamed]);
    let mut third = all[renamed].open(Some("same"));
    third.report(&report("d", &[("tenant=b", 1)])).expect("valid");
    assert_eq!(refused_names(&all[renamed]), before + 1);
    // The name is that of its Envoy again after an hour without another one.
    streams.clear();
    drop(third);
    all[0].clock.advance(Micros::from_secs(3_600));
    let mut fourth = all[renamed].open(Some("same"));
    fourth.report(&report("d", &[("tenant=b", 1)])).expect("valid");
    assert_eq!(refused_names(&all[renamed]), before + 1);
}

/// An Envoy that moves to another process and back keeps its share and its name, also if a process notices the end
/// of its stream late.
#[test]
fn an_envoy_that_moves_keeps_its_name() {
    let (all, _) = processes(2);
    let full = report("d", &[("tenant=a", 600)]);
    let mut streams: [Option<EnvoyStream>; 2] = [None, None];
    for turn in [0, 1, 0, 1] {
        // The process ends the stream of before the last turn now.
        streams[turn] = None;
        let mut stream = all[turn].open(Some("own"));
        for _ in 0..2 {
            stream.report(&full).expect("valid");
            all[turn].settle();
            assert_eq!(rate(&mut stream), Some(100.0), "in turn {turn}");
            for _ in 0..20 {
                all[0].pass(250);
                all[1].settle();
            }
        }
        streams[turn] = Some(stream);
    }
    assert_eq!([&all[0], &all[1]].map(refused_names), [0, 0]);
}

/// An Envoy moves while the store fails. Its old process tries its last renewal again and again, and succeeds after
/// the new one. That does not look like another Envoy with its name.
#[test]
fn a_renewal_after_an_outage_takes_no_name() {
    for on_error in ["allow", "deny"] {
        let (all, store) = processes(2);
        for process in &all {
            process.reload(&format!(
                "  - {{key: tenant, rate_limit: {{unit: second, requests_per_unit: 100, \
                 on_error: {on_error}}}}}"
            ));
        }
        let full = report("d", &[("tenant=a", 600)]);
        let mut old = all[0].open(Some("own"));
        old.report(&full).expect("valid");
        all[0].pass(5_000);
        store.set_reachable(false);
        old.report(&full).expect("valid");
        all[0].pass(1_000);
        assert!(all[0].engine.metrics().settlements_error.get() > 1);
        store.set_reachable(true);
        // The old process has not noticed the end of its stream.
        let mut new = all[1].open(Some("own"));
        for _ in 0..3 {
            new.report(&full).expect("valid");
            for _ in 0..20 {
                all[1].settle();
                all[0].pass(250);
            }
            assert_eq!(rate(&mut new), Some(100.0), "{on_error}");
        }
        assert_eq!([&all[0], &all[1]].map(refused_names), [0, 0], "{on_error}");
    }
}

/// While the store fails, an Envoy keeps its share, unless the rule denies.
#[test]
fn a_failing_store_renews_or_not() {
    for (on_error, renewed) in [("allow", Some(100.0)), ("local", Some(100.0)), ("deny", None)] {
        let (all, store) = processes(1);
        all[0].reload(&format!(
            "  - {{key: tenant, rate_limit: {{unit: second, requests_per_unit: 100, \
             on_error: {on_error}}}}}"
        ));
        let mut stream = all[0].open(None);
        stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
        all[0].settle();
        assert_eq!(rate(&mut stream), Some(100.0));
        store.set_reachable(false);
        for _ in 0..6 {
            all[0].pass(5_000);
            rate(&mut stream);
            stream.report(&report("d", &[("tenant=a", 600)])).expect("valid");
            // A failed read just before delays it by half a second.
            all[0].pass(750);
            assert_eq!(rate(&mut stream), renewed, "{on_error}");
        }
        assert!(all[0].engine.metrics().settlements_error.get() > 0);
        store.set_reachable(true);
        all[0].pass(5_000);
        stream.report(&report("d", &[("tenant=a", 600)])).expect("valid");
        all[0].pass(5_000);
        assert!(rate(&mut stream).is_some_and(|rate| rate > 90.0), "{on_error}");
    }
}

/// A settlement whose reply never comes does not stop the others for ever.
#[test]
fn lost_calls_are_made_again() {
    let (all, _) = processes(1);
    let mut stream = all[0].open(None);
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    let mut calls = Vec::new();
    for shard in 0..64 {
        let _ = all[0].engine.settle_due(shard, all[0].clock.now(), &mut calls);
    }
    assert_eq!(calls.len(), 1);
    all[0].pass(5_000);
    assert_eq!(rate(&mut stream), None);
    all[0].engine.fail_calls(all[0].clock.now());
    stream.report(&report("d", &[("tenant=a", 600)])).expect("valid");
    // After an outage the other processes write their holders again, before a share grows.
    all[0].pass(4_000);
    assert_eq!(rate(&mut stream), Some(100.0));
}

/// Callers of a process without Envoys use their share of what another process divides.
#[tokio::test(start_paused = true)]
async fn a_rule_is_divided_in_every_process() {
    let (all, store) = processes(2);
    let mut stream = all[0].open(None);
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    for process in &all {
        tokio::spawn(exchange_rules(process.engine.clone()));
    }
    while !all[1].engine.any_divided().load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // Also after a failure of the ledger, the counter decides until there is a share.
    store.set_reachable(false);
    assert_eq!(all[1].check("b", 1), LocalCheck::ByCounter);
    all[1].settle();
    assert_eq!(all[1].check("b", 1), LocalCheck::ByCounter);
    store.set_reachable(true);
    all[1].pass(4_000);
    assert_eq!(all[1].passed("b", 50), 20);
}

/// A rule that becomes divided later is announced with the next read, not with the next announcement.
#[tokio::test(start_paused = true)]
async fn a_new_rule_is_announced_at_once() {
    let (all, store) = processes(1);
    let mut streams = [all[0].open(None), all[0].open(None)];
    tokio::spawn(exchange_rules(all[0].engine.clone()));
    let announced = async |rules: usize| {
        for second in 0_u32.. {
            let now = all[0].clock.now();
            let ledger: &dyn SharedLedger = &*store;
            if ledger.announced(now).await.is_ok_and(|found| found.len() == rules) {
                return second;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        unreachable!()
    };
    for (number, (stream, id)) in streams.iter_mut().zip(["tenant=a", "shadow=1"]).enumerate() {
        stream.report(&report("d", &[(id, 1)])).expect("valid");
        assert!(announced(number + 1).await <= 2, "{id}");
    }
}

/// The real thread settles a new bucket without a tick of the test.
#[tokio::test]
async fn the_thread_answers_a_report() {
    let process = Process::new(config());
    let driver = start(process.engine.clone()).expect("a thread");
    let mut stream = process.open(None);
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    let message = stream.next().await;
    let response = RateLimitQuotaResponse::decode(&*message).expect("a valid message");
    assert_eq!(response.bucket_action.len(), 1);
    driver.end().await;
}
