//! Window edges: repeats a test during which a window ended.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs `test`, and repeats it if an hour ended meanwhile, because its counters restarted then.
/// `test` must start from fresh counters each time and use windows of an hour or more. Such windows
/// are whole hours since the epoch, so they end when an hour ends.
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
