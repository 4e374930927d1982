//! Declares the settings `log.*`.

use crate::settings::format::{checked, choice};
use crate::settings::scalar::log_level;
use crate::settings::section::section;

section! {
    /// The log, on standard error.
    pub struct LogSettings {
        /// `off`, `error`, `warn`, `info`, `debug` or `trace`, also per module:
        /// `warn,weir::rules=debug`.
        level: String = "info", checked("levels", log_level);
        /// `pretty` is for people; `json` writes one object per line.
        format: LogFormat = "pretty", choice([
            ("pretty", LogFormat::Pretty),
            ("json", LogFormat::Json),
        ]);
    }
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object per line.
    Json,
}
