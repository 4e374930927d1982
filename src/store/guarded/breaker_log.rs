//! Bounds the log lines about one breaker: per minute at most one that it opened, and one that it
//! closed.

use super::BreakerState;
use crate::time::Micros;

/// Shortest time between two lines that the breaker opened.
const PAUSE: Micros = Micros::from_secs(60);

/// A line that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakerLine {
    /// The breaker opened. `openings` counts this opening and those since the last such line.
    Opened { openings: u64 },
    /// The breaker closed, and the last line reported that it opened.
    Closed,
}

/// What was logged about one breaker.
#[derive(Debug, Default)]
pub(super) struct BreakerLog {
    /// The instant of the last line that the breaker opened.
    last: Option<Micros>,
    /// Whether that line is the last one.
    open_is_last: bool,
    /// Openings since that line.
    openings: u64,
}

impl BreakerLog {
    /// The line that is due at `now`, when the breaker went from `before` to `after`. Call it after
    /// every report, also without a change: an opening that was not logged becomes due while the
    /// breaker stays open.
    pub(super) fn line(
        &mut self,
        before: BreakerState,
        after: BreakerState,
        now: Micros,
    ) -> Option<BreakerLine> {
        if after == BreakerState::Closed {
            return std::mem::take(&mut self.open_is_last).then_some(BreakerLine::Closed);
        }
        self.openings += u64::from(before == BreakerState::Closed);
        let is_early = self.last.is_some_and(|last| now < last.saturating_add(PAUSE));
        if self.open_is_last || is_early {
            return None;
        }
        self.last = Some(now);
        self.open_is_last = true;
        Some(BreakerLine::Opened { openings: std::mem::take(&mut self.openings) })
    }
}

#[cfg(test)]
mod tests {
    use super::BreakerState::{Closed, Open, Probing};
    use super::*;

    #[test]
    fn at_most_one_opening_per_minute_is_logged() {
        let mut log = BreakerLog::default();
        let mut line = |second, before, after| log.line(before, after, Micros::from_secs(second));
        let opened = |openings| Some(BreakerLine::Opened { openings });
        assert_eq!(line(100, Closed, Closed), None);
        assert_eq!(line(100, Closed, Open), opened(1));
        assert_eq!(line(101, Probing, Open), None, "it was open before");
        assert_eq!(line(102, Probing, Closed), Some(BreakerLine::Closed));
        assert_eq!(line(103, Closed, Open), None, "within a minute");
        assert_eq!(line(104, Probing, Closed), None, "no line said that it opened again");
        assert_eq!(line(105, Closed, Open), None);
        assert_eq!(line(159, Probing, Open), None);
        assert_eq!(line(160, Probing, Open), opened(2), "it is still open after the minute");
        assert_eq!(line(900, Probing, Closed), Some(BreakerLine::Closed));
        assert_eq!(line(901, Closed, Open), opened(1));
    }
}
