//! Bounds the log lines about one connection: one when it fails, one when it works again. The clients
//! of Redis and of xDS share it.
//!
//! An outage that repeats is logged once a minute. Another cause is logged sooner, because the first
//! one may hide it: a server may refuse connections and then the password.

use crate::time::Micros;

/// Shortest time between two lines that a connection failed.
const PAUSE: Micros = Micros::from_secs(60);

/// Shortest time between two such lines of different causes.
const PAUSE_OF_CAUSES: Micros = Micros::from_secs(5);

/// What was logged about one connection.
#[derive(Debug, Default)]
pub(crate) struct OutageLog {
    /// The instant and the cause of the last line that it failed.
    last: Option<(Micros, String)>,
    /// Whether that line is the last one.
    is_down: bool,
}

impl OutageLog {
    /// Whether to log at `now` that the connection failed because of `cause`.
    pub(crate) fn down(&mut self, cause: &str, now: Micros) -> bool {
        let is_due = self.last.as_ref().is_none_or(|(at, logged)| {
            let is_same = logged == cause;
            let pause = if is_same { PAUSE } else { PAUSE_OF_CAUSES };
            // A cause that stays needs one line, however long the outage is.
            !(is_same && self.is_down) && now >= at.saturating_add(pause)
        });
        if is_due {
            self.last = Some((now, cause.to_owned()));
            self.is_down = true;
        }
        is_due
    }

    /// Whether to log that the connection works again.
    pub(crate) fn up(&mut self) -> bool {
        std::mem::take(&mut self.is_down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_once_per_cause() {
        let mut log = OutageLog::default();
        let at = |seconds: u64| Micros::from_secs(1_000 + seconds);
        assert!(!log.up(), "it opens for the first time");
        assert!(log.down("refused", at(0)));
        assert!(!log.down("refused", at(900)), "the same outage");
        assert!(log.down("WRONGPASS", at(901)), "another cause");
        assert!(!log.down("refused", at(902)), "too soon");
        assert!(log.down("refused", at(906)));
        assert!(log.up());
        assert!(!log.up());
        assert!(!log.down("refused", at(907)), "it flaps");
        assert!(!log.up(), "no line said that it failed again");
        assert!(log.down("refused", at(966)));
        assert!(log.up());
    }
}
