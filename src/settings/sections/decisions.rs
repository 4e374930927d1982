//! Declares the settings `log.decisions.*`.

use std::path::PathBuf;

use crate::settings::format::{choice, file, number, optional, portion};
use crate::settings::section::section;

section! {
    /// The decision log: a line of JSON per decided request ([decision-log.md](../guides/decision-log.md)).
    pub struct DecisionLogSettings {
        /// File of the log, or `stdout`. Its folder must exist. Empty: no log.
        path: Option<PathBuf> = "", optional(file());
        /// Share of the requests that are logged. They are chosen at random.
        sample: f64 = "1.0", portion();
        /// `denied` logs denied requests only.
        only: LoggedRequests = "all", choice([
            ("all", LoggedRequests::All),
            ("denied", LoggedRequests::Denied),
        ]);
        /// Maximum number of lines per second. Further requests are not logged.
        max_per_second: u32 = "1000", number(1..=1_000_000);
        /// `hashed` writes a hash in place of each value of a request, except for values that the
        /// matched rule names.
        values: LoggedValues = "plain", choice([
            ("plain", LoggedValues::Plain),
            ("hashed", LoggedValues::Hashed),
        ]);
        /// Maximum size of the file in bytes. Then its name gets the end `.1`, in place of the file
        /// that had this name, and a new file begins.
        max_bytes: u64 = "104857600", number(1 << 20..=1 << 40);
    }
}

/// The requests that the decision log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedRequests {
    /// All requests.
    All,
    /// Requests over their limit that did not pass.
    Denied,
}

/// The form of values in the decision log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedValues {
    /// As sent.
    Plain,
    /// A keyed hash.
    Hashed,
}
