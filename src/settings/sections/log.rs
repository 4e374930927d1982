//! Declares the settings `log.*`.

use crate::limit::RequestLines;
use crate::settings::format::{checked, choice, number, portion};
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
        /// Which decided requests get a line at the level `info`: none, denied ones, or all. The field
        /// `log` of a rule overrides this ([the log](../operate/logs.md#lines-about-requests)). For a time,
        /// `PUT /log` adds lines. `false` also means `off`.
        requests: RequestLines = "off", choice([
            ("off", RequestLines::Off),
            ("denied", RequestLines::Denied),
            ("all", RequestLines::All),
            ("false", RequestLines::Off),
        ]);
        /// Share of these requests that get a line. They are chosen at random.
        requests_sample: f64 = "1.0", portion();
        /// Maximum number of lines about requests per second. Further ones are left out and counted.
        requests_per_second: u32 = "100", number(1..=1_000_000);
        /// How lines about requests show the values of entries: `plain` as sent, `hashed` as hashes
        /// except for values that the matched rule names, `none` not at all. Values of keys such as
        /// `authorization` are never plain.
        request_values: LineValues = "hashed", choice([
            ("plain", LineValues::Plain),
            ("hashed", LineValues::Hashed),
            ("none", LineValues::None),
        ]);
    }
}

/// The form of values in lines about requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineValues {
    /// As sent.
    Plain,
    /// A keyed hash.
    Hashed,
    /// Keys without values.
    None,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object per line.
    Json,
}
