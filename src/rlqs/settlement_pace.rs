//! How often a quota settles at most.

use crate::time::Micros;

/// Holders of a quota that settles without a pause.
const HOLDERS_UNPACED: usize = 100;

/// The pause after a settlement for each further holder. Each settlement reads all holders, so one client
/// that reports all the time would keep the ledger busy.
const PAUSE_PER_HOLDER: Micros = Micros(10);

/// The time for one call to a shared ledger, and the most calls in a row. Reports cause no more calls, however
/// many streams and buckets they come from.
const CALL_PERIOD: Micros = Micros::from_millis(250);
const CALLS_IN_A_ROW: u64 = 4;

/// The pauses of a quota, by the local clock.
#[derive(Debug, Default)]
pub(super) struct SettlementPace {
    /// The end of the pause after the last settlement.
    pause_ends: Micros,
    /// The end of the time for all calls to a shared ledger.
    calls_end: Micros,
}

impl SettlementPace {
    /// From when on a quota in memory settles, and one with a new holder. The new holder waits for that only.
    pub(super) fn after_pause(&self) -> Micros {
        self.pause_ends
    }

    /// From when on another quota calls the shared ledger.
    pub(super) fn next_call(&self) -> Micros {
        let in_a_row = Micros((CALLS_IN_A_ROW - 1) * CALL_PERIOD.0);
        self.pause_ends.max(self.calls_end.saturating_sub(in_a_row))
    }

    /// Counts a call to a shared ledger. Those for new holders do not wait, so there may be many in a moment. The
    /// others wait for one period at most, because a share that is not renewed expires.
    pub(super) fn call(&mut self, now: Micros) {
        let longest = Micros(CALLS_IN_A_ROW * CALL_PERIOD.0);
        let end = self.calls_end.max(now).saturating_add(CALL_PERIOD);
        self.calls_end = end.min(now.saturating_add(longest));
    }

    /// Begins the pause after a settlement with this number of holders.
    pub(super) fn settled(&mut self, holders: usize, now: Micros) {
        let many = holders.saturating_sub(HOLDERS_UNPACED) as u64;
        self.pause_ends = now.saturating_add(Micros(many * PAUSE_PER_HOLDER.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_wait_after_some_in_a_row() {
        let (mut pace, mut now) = (SettlementPace::default(), Micros::from_secs(1));
        for _ in 0..CALLS_IN_A_ROW {
            assert!(pace.next_call() <= now);
            pace.call(now);
        }
        for _ in 0..9 {
            assert_eq!(pace.next_call(), now.saturating_add(CALL_PERIOD));
            now = pace.next_call();
            pace.call(now);
        }
    }

    #[test]
    fn many_calls_at_once_delay_the_next_by_one_period() {
        let (mut pace, now) = (SettlementPace::default(), Micros::from_secs(1));
        (0..100).for_each(|_| pace.call(now));
        assert_eq!(pace.next_call(), now.saturating_add(CALL_PERIOD));
    }
}
