//! The driver has fewer ticks while it has nothing to do, and still does everything.

use std::time::Duration;

use super::*;
use crate::rlqs::driver::run_always;

/// Both clocks move.
async fn pass(process: &Process, millis: u64) {
    for _ in 0..millis.div_ceil(10) {
        process.clock.advance(Micros::from_millis(10));
        tokio::time::advance(Duration::from_millis(10)).await;
    }
}

/// How many of ten new versions of the rules the driver applies within this time of each. It does so at ticks.
async fn applied(process: &Process, millis: u64) -> usize {
    let mut applied = 0;
    for _ in 0..10 {
        process.reload(RULES);
        pass(process, millis).await;
        applied += usize::from(*process.engine.applied_rules.borrow() == process.rules.version());
    }
    applied
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_work_has_fewer_ticks() {
    let process = Process::new(config());
    let driver = tokio::spawn(run_always(process.engine.clone()));
    pass(&process, 1_000).await;
    assert!(applied(&process, 300).await <= 4, "a tick per second");
    assert_eq!(applied(&process, 1_100).await, 10);
    let mut stream = process.open(None);
    pass(&process, 300).await;
    assert_eq!(applied(&process, 300).await, 10, "a stream is open");
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    pass(&process, 300).await;
    drop(stream);
    assert_eq!(applied(&process, 300).await, 10, "the assignment is in use");
    pass(&process, 30_000).await;
    assert!(applied(&process, 300).await <= 4, "everything has expired");
    assert_eq!(process.engine.divided.own(), []);
    assert_eq!(process.engine.metrics().quotas.get(), 0);
    driver.abort();
}

/// A rule ceases to be divided while its callers owe a minute of it, and nothing else is to do. The places of
/// their values become free.
#[tokio::test(start_paused = true)]
async fn parked_holders_end_without_other_work() {
    let process = Process::new(config());
    process.reload("  - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 6000}}");
    let driver = tokio::spawn(run_always(process.engine.clone()));
    for round in 0..2 {
        let mut stream = process.open(None);
        stream.report(&report("d", &[("tenant=other", 1)])).expect("valid");
        pass(&process, 300).await;
        for number in 0..config().max_local_holders {
            let check = process.check(&format!("{round}-{number}"), 6_000);
            assert!(matches!(check, LocalCheck::Decided(_)), "{round} {number}: {check:?}");
        }
        assert_eq!(process.check("one more", 1), LocalCheck::NotDivided);
        drop(stream);
        pass(&process, 120_000).await;
        assert_eq!(process.engine.metrics().quotas.get(), 0);
    }
    driver.abort();
}
