//! The driver rests while it has nothing to do.

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

/// Whether the driver applies new rules within this time. It does so at ticks.
async fn applies_rules(process: &Process, millis: u64) -> bool {
    process.reload(RULES);
    pass(process, millis).await;
    *process.engine.applied_rules.borrow() == process.rules.version()
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_work_has_no_ticks() {
    let process = Process::new(config());
    let driver = tokio::spawn(run_always(process.engine.clone()));
    assert!(!applies_rules(&process, 60_000).await, "nothing to do since the start");
    let mut stream = process.open(None);
    pass(&process, 50).await;
    assert_eq!(*process.engine.applied_rules.borrow(), 2, "the tick that was overdue");
    assert!(applies_rules(&process, 300).await, "a stream is open");
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    pass(&process, 300).await;
    drop(stream);
    assert!(applies_rules(&process, 300).await, "the assignment is in use");
    pass(&process, 60_000).await;
    assert!(!applies_rules(&process, 60_000).await, "everything has expired");
    assert_eq!(process.engine.divided.own(), []);
    assert_eq!(process.engine.metrics().quotas.get(), 0);
    driver.abort();
}
