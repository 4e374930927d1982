//! Declares the settings `clock.*`.

use crate::settings::format::signed_duration;
use crate::settings::section::section;

section! {
    /// The clock.
    pub struct ClockSettings {
        /// Time that is added to the machine's clock. For tests of instances with wrong clocks only.
        offset: i64 = "0s", signed_duration();
    }
}
