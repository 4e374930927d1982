//! Window edges: how a test that counts stays right when the clock strikes the hour.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs `test`, and runs it again if an hour ended meanwhile, because its counters started anew
/// then. `test` must start from fresh counters each time and count in windows of an hour or more:
/// those are all made of whole hours since the epoch, so they end when an hour does.
pub(crate) fn within_an_hour(test: impl Fn()) {
    loop {
        let hour = this_hour();
        let result = catch_unwind(AssertUnwindSafe(&test));
        if this_hour() == hour {
            return result.unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
}

fn this_hour() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.expect("the machine's clock is past 1970").as_secs() / 3600
}
