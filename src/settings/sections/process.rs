//! Declares the settings `readyz.*`, `drain.*`, `clock.*` and `log.*`.

use std::time::Duration;

use crate::settings::format::{checked, choice, duration, signed_duration, switch};
use crate::settings::scalar::log_level;
use crate::settings::section::section;

section! {
    /// The conditions of readiness.
    pub struct ReadyzSettings {
        /// `/readyz` fails while the store is unreachable.
        require_store: bool = "false", switch();
        /// `loaded`: `/readyz` fails while no domain is defined. `current`: it also fails while the
        /// rule files have errors, although older rules are active. `off` (also `false`): ready
        /// without rules.
        require_rules: RequireRules = "off", choice([
            ("off", RequireRules::Off),
            ("loaded", RequireRules::Loaded),
            ("current", RequireRules::Current),
            ("false", RequireRules::Off),
        ]);
    }
}

/// The rules that readiness requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequireRules {
    /// None.
    Off,
    /// The active rules define at least one domain.
    Loaded,
    /// [`RequireRules::Loaded`], and the files on disk are the active rules: a failed reload fails
    /// readiness.
    Current,
}

section! {
    /// Graceful shutdown.
    pub struct DrainSettings {
        /// Time between failing health and closing the ports, so that load balancers stop sending.
        /// It starts at SIGTERM or SIGINT.
        delay: Duration = "5s", duration();
        /// Time for requests in flight after the ports are closed. A tenth of it, at most 1 s, is
        /// reserved for the last writes to Redis and to collectors.
        timeout: Duration = "30s", duration();
    }
}

section! {
    /// The clock.
    pub struct ClockSettings {
        /// Time that is added to the machine's clock. For tests of instances with wrong clocks only.
        offset: i64 = "0s", signed_duration();
    }
}

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
