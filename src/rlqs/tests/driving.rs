//! The driver while there is more to settle than usual.

use std::time::Duration;

use super::*;
use crate::rlqs::driver::run_always;
use crate::testing::FakeStore;

/// A process with room for many buckets.
fn large(ledger: Option<Arc<dyn SharedLedger>>) -> Process {
    let clock = Arc::new(ManualClock::at(Micros::from_secs(1_000)));
    let bounds = RlqsConfig { max_buckets: 10_000, max_buckets_per_stream: 10_000, ..config() };
    Process::with(bounds, clock, ledger)
}

/// Both clocks move by 10 ms.
async fn step(process: &Process) {
    process.clock.advance(Micros::from_millis(10));
    tokio::time::advance(Duration::from_millis(10)).await;
}

/// The driver does what it can without more time. It yields between shards.
async fn driver_works() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// A report with 100 hits in each of these buckets.
fn report_of(stream: &mut EnvoyStream, ids: &[String]) {
    let usages: Vec<(&str, u64)> = ids.iter().map(|id| (id.as_str(), 100)).collect();
    stream.report(&report("d", &usages)).expect("valid");
}

/// Each limit needs two calls. The driver takes all replies that are there, and waits for the others meanwhile.
#[tokio::test(start_paused = true)]
async fn many_limits_of_a_shared_ledger_settle_soon() {
    let process = large(Some(Arc::new(FakeStore::new())));
    let driver = tokio::spawn(run_always(process.engine.clone()));
    let mut stream = process.open(None);
    let ids: Vec<String> = (0..1_000).map(|number| format!("tenant={number}")).collect();
    report_of(&mut stream, &ids);
    for _ in 0..30 {
        step(&process).await;
        driver_works().await;
    }
    assert_eq!(newest(&mut stream).len(), ids.len());
    driver.abort();
}

/// Reports make limits due again faster than they are settled. New rules are applied at the next tick.
#[tokio::test(start_paused = true)]
async fn a_flood_of_reports_does_not_stop_the_ticks() {
    let process = large(None);
    let mut stream = process.open(None);
    let ids: Vec<String> = (0..6_400).map(|number| format!("tenant={number}")).collect();
    let parts: Vec<&[String]> = ids.chunks(400).collect();
    parts.iter().for_each(|part| report_of(&mut stream, part));
    let driver = tokio::spawn(run_always(process.engine.clone()));
    process.reload(RULES);
    let is_applied = || *process.engine.applied_rules.borrow() == process.rules.version();
    let mut reports = parts.iter().cycle().take(1_000);
    while !is_applied() {
        let part = reports.next().expect("the rules are applied during the flood");
        report_of(&mut stream, part);
        newest(&mut stream);
        step(&process).await;
    }
    driver.abort();
}

/// One client has more limits than a shared ledger can settle. The new bucket of another client waits for its turn,
/// and not for all of those.
#[tokio::test(start_paused = true)]
async fn a_client_with_many_limits_does_not_hold_up_another() {
    let store = FakeStore::new().taking(Duration::from_millis(50), None);
    let process = large(Some(Arc::new(store)));
    let driver = tokio::spawn(run_always(process.engine.clone()));
    let mut stream = process.open(None);
    let ids: Vec<String> = (0..6_400).map(|number| format!("tenant={number}")).collect();
    let parts: Vec<&[String]> = ids.chunks(400).collect();
    let mut reports = parts.iter().cycle();
    let mut other = process.engine.open(address(2), None).expect("a free stream");
    let mut waited = 0;
    for number in 0.. {
        report_of(&mut stream, reports.next().expect("a cycle"));
        newest(&mut stream);
        // All limits of the first client are due by then.
        if number == 100 {
            report_of(&mut other, &["tenant=other".to_owned()]);
        }
        step(&process).await;
        driver_works().await;
        if number >= 100 {
            waited += 10;
            if !newest(&mut other).is_empty() {
                break;
            }
        }
        assert!(waited < 1_000, "no assignment within a second");
    }
    driver.abort();
}
