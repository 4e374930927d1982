//! Several processes with one ledger in a shared store.

use super::*;
use crate::testing::FakeStore;

fn processes(number: usize) -> Vec<Process> {
    let clock = Arc::new(ManualClock::at(Micros::from_secs(1_000)));
    let store = Arc::new(FakeStore::new());
    let ledger = || -> Arc<dyn SharedLedger> { store.clone() };
    (0..number).map(|_| Process::with(config(), clock.clone(), Some(ledger()))).collect()
}

/// Two processes divide one quota between their Envoys.
#[test]
fn processes_divide_one_quota() {
    let all = processes(2);
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
        all[1].turn();
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
