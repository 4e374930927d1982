//! When a quota settles, and how often at most.

use super::group::QuotaGroup;
use super::ledger::Settlement;
use crate::time::Micros;

/// Holders of a quota that settles without a pause.
const HOLDERS_UNPACED: usize = 100;

/// The pause after a settlement for each further holder. Each settlement reads all holders, so one client
/// that opens streams all the time would keep the driver busy: a new holder needs two settlements, of about 8 us
/// for each holder.
const PAUSE_PER_HOLDER: Micros = Micros(50);

/// The pause after a plan for each further holder. Each plan divides the quota among all holders, and every report
/// of another demand is a reason for one.
const PLAN_PAUSE_PER_HOLDER: Micros = Micros(250);

/// The longest pause. It is shorter than a tick of the driver, so that a quota with plans at ticks alone may plan
/// at each.
const PAUSE_MAX: Micros = Micros::from_millis(200);

/// The time for one call to a shared ledger, and the most calls in a row. Reports cause no more calls, however
/// many streams and buckets they come from.
const CALL_PERIOD: Micros = Micros::from_millis(250);
const CALLS_IN_A_ROW: u64 = 4;

/// The pauses of a quota, by the local clock. `now` is its instant, and `at` the same one by the clock of the group,
/// which is that of the ledger.
#[derive(Debug, Default)]
pub struct SettlementPace {
    /// The end of the pause after the last settlement.
    pause_ends: Micros,
    /// The end of the pause after the last plan.
    plan_ends: Micros,
    /// The holders that the last settlement found.
    holders: usize,
    /// The number of plans.
    #[cfg(test)]
    pub(crate) plans: usize,
    /// The end of the time for all calls to a shared ledger.
    calls_end: Micros,
}

impl SettlementPace {
    /// When `group` must be looked at again, by the local clock. None: not without a call of another function of
    /// the group.
    pub fn next(&self, group: &mut QuotaGroup, now: Micros, at: Micros) -> Option<Micros> {
        let next = group.next()?;
        let next = now.saturating_add(next.saturating_sub(at));
        Some(next.max(self.settles_from(group, at)))
    }

    /// The next settlement of `group`, if one is due, none is on its way, and there is no pause.
    pub fn settlement(
        &mut self,
        group: &mut QuotaGroup,
        now: Micros,
        at: Micros,
    ) -> Option<Settlement> {
        if group.is_in_flight() || now < self.settles_from(group, at) {
            return None;
        }
        self.planned(now);
        group.settlement(at)
    }

    /// The same in the instant of the last settlement, with a ledger in memory. A new holder needs a second one, and
    /// the others wait for the next tick if there are many.
    pub fn further_settlement(
        &mut self,
        group: &mut QuotaGroup,
        now: Micros,
        at: Micros,
    ) -> Option<Settlement> {
        if now < self.plan_ends && !group.has_new_holder(at) {
            return None;
        }
        self.planned(now);
        group.settlement(at)
    }

    /// From when on `group` settles. A new holder or a reload waits for the pause after a settlement only.
    fn settles_from(&self, group: &mut QuotaGroup, at: Micros) -> Micros {
        if group.is_urgent(at) { self.pause_ends } else { self.next_plan() }
    }

    /// From when on a quota plans without a new holder or a reload.
    fn next_plan(&self) -> Micros {
        let in_a_row = Micros((CALLS_IN_A_ROW - 1) * CALL_PERIOD.0);
        let next_call = self.calls_end.saturating_sub(in_a_row);
        self.pause_ends.max(next_call).max(self.plan_ends)
    }

    /// Begins the pause after a plan.
    fn planned(&mut self, now: Micros) {
        let many = self.holders.saturating_sub(HOLDERS_UNPACED) as u64;
        let pause = many.saturating_mul(PLAN_PAUSE_PER_HOLDER.0).min(PAUSE_MAX.0);
        self.plan_ends = now.saturating_add(Micros(pause));
        #[cfg(test)]
        {
            self.plans += 1;
        }
    }

    /// Counts a call to a shared ledger. Those for new holders do not wait, so there may be many in a moment. The
    /// others wait for one period at most, because a share that is not renewed expires.
    pub fn call(&mut self, now: Micros) {
        let longest = Micros(CALLS_IN_A_ROW * CALL_PERIOD.0);
        let end = self.calls_end.max(now).saturating_add(CALL_PERIOD);
        self.calls_end = end.min(now.saturating_add(longest));
    }

    /// The holders that the last settlement found.
    pub fn holders(&self) -> usize {
        self.holders
    }

    /// Begins the pause after a settlement with this number of holders.
    pub fn settled(&mut self, holders: usize, now: Micros) {
        self.holders = holders;
        let many = holders.saturating_sub(HOLDERS_UNPACED) as u64;
        let pause = many.saturating_mul(PAUSE_PER_HOLDER.0).min(PAUSE_MAX.0);
        self.pause_ends = now.saturating_add(Micros(pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_wait_after_some_in_a_row() {
        let (mut pace, mut now) = (SettlementPace::default(), Micros::from_secs(1));
        for _ in 0..CALLS_IN_A_ROW {
            assert!(pace.next_plan() <= now);
            pace.call(now);
        }
        for _ in 0..9 {
            assert_eq!(pace.next_plan(), now.saturating_add(CALL_PERIOD));
            now = pace.next_plan();
            pace.call(now);
        }
    }

    #[test]
    fn many_calls_at_once_delay_the_next_by_one_period() {
        let (mut pace, now) = (SettlementPace::default(), Micros::from_secs(1));
        (0..100).for_each(|_| pace.call(now));
        assert_eq!(pace.next_plan(), now.saturating_add(CALL_PERIOD));
    }

    /// A new holder waits for the settlement alone, and the others for the plan.
    #[test]
    fn plans_pause_by_the_number_of_holders() {
        for (holders, settlement, plan) in [
            (0, 0, 0),
            (100, 0, 0),
            (300, 10_000, 50_000),
            (1_100, 50_000, 200_000),
            (10_000, 200_000, 200_000),
        ] {
            let (mut pace, now) = (SettlementPace::default(), Micros::from_secs(1));
            pace.settled(holders, now);
            pace.planned(now);
            assert_eq!(pace.pause_ends.saturating_sub(now), Micros(settlement), "{holders}");
            assert_eq!(pace.next_plan().saturating_sub(now), Micros(plan), "{holders}");
        }
    }
}
