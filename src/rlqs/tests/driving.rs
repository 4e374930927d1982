//! The driver while there is more to settle than usual.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

use super::*;
use crate::key::RuleId;
use crate::quota::{LedgerSnapshot, Settlement};
use crate::rlqs::driver::run_always;
use crate::store_error::StoreError;
use crate::testing::FakeStore;
use crate::time::ClockOffset;

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

/// A shared ledger that serves one call after the other, as Redis does.
struct BusyLedger {
    store: FakeStore,
    free_at: Mutex<Instant>,
}

impl BusyLedger {
    /// How long the ledger is busy with a call.
    const CALL: Duration = Duration::from_micros(300);
    /// The longest wait for a reply, that of `store.timeout`.
    const TIMEOUT: Duration = Duration::from_millis(10);
}

impl SharedLedger for BusyLedger {
    fn offset(&self, counter: &CounterKey, local: Micros) -> Option<ClockOffset> {
        self.store.offset(counter, local)
    }

    fn settle<'a>(
        &'a self,
        counter: &'a CounterKey,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, Result<LedgerSnapshot, StoreError>> {
        let sent_at = Instant::now();
        let done_at = {
            let mut free_at = self.free_at.lock().expect("no panic");
            *free_at = (*free_at).max(sent_at) + BusyLedger::CALL;
            *free_at
        };
        Box::pin(async move {
            if done_at - sent_at > BusyLedger::TIMEOUT {
                sleep_until(sent_at + BusyLedger::TIMEOUT).await;
                return Err(StoreError::Timeout);
            }
            sleep_until(done_at).await;
            SharedLedger::settle(&self.store, counter, settlement).await
        })
    }

    fn announce<'a>(
        &'a self,
        rules: &'a [RuleId],
        local: Micros,
        length: Micros,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.store.announce(rules, local, length)
    }

    fn announced(&self, local: Micros) -> BoxFuture<'_, Result<Vec<RuleId>, StoreError>> {
        self.store.announced(local)
    }
}

/// One client has more limits than a shared ledger can settle. No call is too late for a reply, so requests of others
/// have theirs too. The new bucket of another client waits for its turn, and not for all limits of the first one,
/// and a bucket of a limit that both use gets its part.
#[tokio::test(start_paused = true)]
async fn a_client_with_many_limits_does_not_delay_another() {
    let free_at = Mutex::new(Instant::now());
    let process = large(Some(Arc::new(BusyLedger { store: FakeStore::new(), free_at })));
    let driver = tokio::spawn(run_always(process.engine.clone()));
    let mut stream = process.open(None);
    let ids: Vec<String> = (0..6_400).map(|number| format!("tenant={number}")).collect();
    let parts: Vec<&[String]> = ids.chunks(400).collect();
    let mut reports = parts.iter().cycle();
    let mut other = process.engine.open(address(2), None).expect("a free stream");
    let mut waits = HashMap::new();
    for millis in 0..6_000 {
        if millis % 10 == 0 {
            report_of(&mut stream, reports.next().expect("a cycle"));
            newest(&mut stream);
        }
        // All limits of the first client are due by then.
        if millis >= 1_000 && millis % 1_000 == 0 {
            report_of(&mut other, &["tenant=other".to_owned(), "tenant=0".to_owned()]);
        }
        process.clock.advance(Micros::from_millis(1));
        tokio::time::advance(Duration::from_millis(1)).await;
        driver_works().await;
        for (id, got) in newest(&mut other) {
            if matches!(got, Got::Rate(..)) {
                waits.entry(id).or_insert(millis - 1_000);
            }
        }
    }
    assert!(waits["tenant=other"] < 200, "{waits:?}");
    assert!(waits["tenant=0"] < 3_000, "{waits:?}");
    assert_eq!(process.engine.metrics().settlements_error.get(), 0);
    driver.abort();
}
