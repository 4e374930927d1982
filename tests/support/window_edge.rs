//! Window edges: repeats a test during which a window ended.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs `test`, and repeats it if an hour ended meanwhile, because its counters restarted then.
/// `test` must start from fresh counters each time and use windows of an hour or more. Such windows
/// are whole hours since the epoch, so they end when an hour ends.
pub(crate) fn within_an_hour(test: impl Fn()) {
    within(3600, test);
}

/// The same for windows of a minute or more. `test` must take less than a minute.
pub(crate) fn within_a_minute(test: impl Fn()) {
    within(60, test);
}

/// Runs `test` until no multiple of `seconds` passed meanwhile.
fn within(seconds: u64, test: impl Fn()) {
    let window = || {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        since_epoch.expect("the machine's clock is past 1970").as_secs() / seconds
    };
    loop {
        let before = window();
        let result = catch_unwind(AssertUnwindSafe(&test));
        if window() == before {
            return result.unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
}
