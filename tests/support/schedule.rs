//! The schedule of tests: a test shares the machine or runs exclusively.
//!
//! Every test starts its own processes and takes its own ports, so most tests share the machine.
//! Latencies are not asserted; bounds that define a guarantee are, under `exclusive` (a store
//! timeout below a second, a rate, an interval): another test that keeps both cores busy could make
//! such a test fail. `cargo test` bounds the number of tests that run at once by the number of
//! cores.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static RUNNING: RwLock<()> = RwLock::new(());

/// The right to run, until it is dropped.
#[must_use = "the test runs exclusively only while this is held"]
pub(crate) enum Permit {
    Shared(#[allow(dead_code, reason = "held for its drop")] RwLockReadGuard<'static, ()>),
    Exclusive(#[allow(dead_code, reason = "held for its drop")] RwLockWriteGuard<'static, ()>),
}

/// The permit of a test whose outcome does not depend on how busy the machine is.
pub(crate) fn shared() -> Permit {
    Permit::Shared(RUNNING.read().unwrap_or_else(PoisonError::into_inner))
}

/// The permit of a test that asserts a bound on a duration, a rate or a timeout. Waits until all
/// other tests have ended.
pub(crate) fn exclusive() -> Permit {
    Permit::Exclusive(RUNNING.write().unwrap_or_else(PoisonError::into_inner))
}
