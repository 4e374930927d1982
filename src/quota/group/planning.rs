//! What a group changes: which own holders are lowered, raised and renewed.

use std::collections::BTreeMap;

use super::super::division::Want;
use super::super::ledger::{Change, HolderId, Holding};
use super::targets::{
    Division, HolderTarget, RESERVE_BURST_MIN, Targets, is_significant, leaves_room, wanted_raises,
};
use super::{QuotaGroup, ledger_view};
use crate::time::Micros;

impl QuotaGroup {
    /// The changes of own holders: lowered ones, raised ones as far as there is room, and renewals.
    pub(super) fn changes(&mut self, now: Micros) -> Vec<Change> {
        let mut shares: BTreeMap<HolderId, u64> = BTreeMap::new();
        let mut raises = Vec::new();
        self.holders.values_mut().for_each(|holder| holder.end(now));
        let division = self.division(now);
        // The ledger lost writes, or a limit was lowered: even the smallest excess ends.
        let over = division.is_over();
        let Targets { holders: mut targets, reserve } =
            division.targets(self.quota.burst >= RESERVE_BURST_MIN);
        let count = targets.len();
        for target in &mut targets {
            if let Some(holder) = self.holders.get_mut(&target.holder) {
                target.to = holder.limited(target.to, count, now, &self.config);
                holder.set_target(target.to);
            }
        }
        let free = self.free(now);
        let scarce = wanted_raises(&targets) > free.saturating_sub(reserve);
        for HolderTarget { holder: id, to: target, .. } in targets {
            let Some(holder) = self.holders.get_mut(&id) else { continue };
            let (share, renews) = (holder.share(), holder.renews(now));
            let gives_room = scarce && leaves_room(share, target, renews);
            let must_lower = target < share && (over || gives_room);
            if !must_lower && !is_significant(share, target, renews) {
                continue;
            }
            if target > share {
                raises.push((id, target - share));
                continue;
            }
            holder.lower(target, now, self.config.grace);
            shares.insert(id, target);
            let due = holder.next_assignment(id, &self.quota, now, &self.config);
            self.due.extend(due.map(|due| (id, due)));
        }
        // While others renew without the ledger, what expired in the view may be in use.
        let waits = self.renewed_without_ledger || now < self.no_raise_until;
        let room = if waits { 0 } else { free };
        let (new, known): (Vec<_>, Vec<_>) = raises
            .into_iter()
            .partition(|(id, _)| self.holders.get(id).is_some_and(|holder| holder.share() == 0));
        let left = self.raise(&new, room, now, &mut shares);
        let is_unmet = left == 0 && !new.is_empty();
        let needed = known.iter().fold(0, |sum: u64, (_, raise)| sum.saturating_add(*raise));
        let left = left.saturating_sub(reserve);
        self.unmet = is_unmet || left < needed;
        self.raise(&known, left, now, &mut shares);
        let mut changes = Vec::new();
        for (id, holder) in &mut self.holders {
            let changed = shares.get(id).copied();
            if changed.is_none() && !holder.must_write(now, &self.config) {
                continue;
            }
            let share = changed.unwrap_or(holder.share());
            changes.push(holder.change(*id, share, &self.quota, now, &self.config));
        }
        changes
    }

    /// Raises holders by what they need, or by their parts of `room`. Returns what is left of it.
    fn raise(
        &self,
        raises: &[(HolderId, u64)],
        room: u64,
        now: Micros,
        shares: &mut BTreeMap<HolderId, u64>,
    ) -> u64 {
        let needed = raises.iter().fold(0, |sum: u64, (_, raise)| sum.saturating_add(*raise));
        let given = room.min(needed);
        for (id, raise) in raises {
            let part = u128::from(*raise) * u128::from(given) / u128::from(needed.max(1));
            let Some(holder) = self.holders.get(id) else { continue };
            let raised = holder.share() + u64::try_from(part).unwrap_or(0);
            if is_significant(holder.share(), raised, holder.renews(now)) {
                shares.insert(*id, raised);
            }
        }
        room - given
    }

    /// The shares that no holder uses. The view has no lost holdings of own holders, so what these use and
    /// the ledger does not have is no free share either: it is written again.
    pub(in crate::quota) fn free(&self, now: Micros) -> u64 {
        let own = self.holders.iter().filter(|(_, own)| !own.taken_over);
        let unwritten = own.map(|(id, own)| {
            own.held(now, self.config.grace).saturating_sub(self.view.used_by(*id, now))
        });
        self.view.free(now).saturating_sub(unwritten.fold(0, u64::saturating_add))
    }

    /// The holders of all instances, of which the own ones that report are lowered and raised.
    fn division(&self, now: Micros) -> Division {
        let mut division = Division::default();
        for (id, holding) in self.view.holdings(now) {
            let own = self.holders.get(id).filter(|own| !own.taken_over);
            if own.is_some_and(|own| own.is_live(now, &self.config)) {
                continue;
            }
            if own.is_none() && !self.is_silent(holding, now) {
                division.add(*id, Want::from_number(holding.want), holding.share);
            } else {
                let want = Want::from_number(holding.want);
                division.add_silent(*id, want, ledger_view::used(holding, now));
            }
        }
        for (id, holder) in &self.holders {
            if holder.is_live(now, &self.config) {
                let want = holder.claim(&self.quota, now, &self.config);
                division.add(*id, want, holder.share());
            }
        }
        division
    }

    /// Whether the report of a holder of another instance is overdue.
    pub(super) fn is_silent(&self, holding: &Holding, now: Micros) -> bool {
        holding.expires.saturating_sub(now)
            < self.config.life().saturating_sub(self.config.silence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{GroupConfig, Ledger, Quota, SHARES};

    const QUOTA: Quota = Quota { requests: 3_000, window: Micros::SECOND, burst: 600 };

    const GRACE: Micros = Micros::from_millis(500);

    fn id(number: u64) -> HolderId {
        HolderId([number, 0])
    }

    /// A group with its ledger, at an instant.
    struct Setting {
        group: QuotaGroup,
        ledger: Ledger,
        now: Micros,
    }

    impl Setting {
        /// `holders` with a demand of the whole quota each, after three reports.
        fn saturated(holders: u64) -> Setting {
            let config = GroupConfig {
                grace: GRACE,
                ttl: Micros::from_secs(15),
                margin: Micros::SECOND,
                shared: false,
                relearn_until: Micros::ZERO,
            };
            let group = QuotaGroup::new(QUOTA, config);
            let mut setting = Setting { group, ledger: Ledger::default(), now: Micros::SECOND };
            for _ in 0..3 {
                setting.pass(Micros::from_secs(5));
                (0..holders).for_each(|holder| setting.report(holder, 15_000));
                setting.settle();
            }
            setting
        }

        fn report(&mut self, holder: u64, hits: u64) {
            self.group.report(id(holder), hits, self.now).expect("one instance");
        }

        fn settle(&mut self) {
            while let Some(settlement) = self.group.settlement(self.now) {
                let snapshot = self.ledger.settle(&settlement);
                self.group.settled(Some(&snapshot), self.now, self.now, false);
            }
        }

        /// Lets time pass, and settles then.
        fn pass(&mut self, time: Micros) {
            self.now = self.now.saturating_add(time);
            self.settle();
        }

        fn share(&self, holder: u64) -> u64 {
            let mut shares = self.group.shares();
            shares.find(|(known, _, _)| *known == id(holder)).map_or(0, |(_, share, _)| share)
        }
    }

    /// The distinct pairs of shares of two holders that need a third of the quota each and report every 5 s,
    /// the second one up to `late` late.
    fn shares_of_steady_demands(late: Micros) -> Vec<[u64; 2]> {
        let mut setting = Setting::saturated(0);
        let mut shares = Vec::new();
        for round in 0..40 {
            setting.report(0, 5_000);
            setting.settle();
            let delay = Micros(late.0 / 4 * [2, 0, 4, 1][round % 4]);
            setting.pass(delay);
            setting.report(1, 5_000);
            setting.settle();
            shares.push([setting.share(0), setting.share(1)]);
            setting.pass(Micros::from_secs(5).saturating_sub(delay));
        }
        // The first reports measure the demands.
        shares.drain(..4);
        shares.dedup();
        shares
    }

    #[test]
    fn steady_demands_move_nothing() {
        let steady = shares_of_steady_demands(Micros::from_millis(40));
        assert_eq!(steady.len(), 1, "{steady:?}");
        // Reports that come at very different times show another demand each.
        assert!(shares_of_steady_demands(Micros::SECOND).len() > 1);
    }

    /// Also while the others have to be lowered for the rest of its part.
    #[test]
    fn a_new_holder_has_a_share_at_once() {
        let mut setting = Setting::saturated(0);
        for _ in 0..4 {
            setting.pass(Micros::from_secs(5));
            // 10 % of the quota each.
            (0..2).for_each(|holder| setting.report(holder, 1_500));
            setting.settle();
        }
        setting.pass(Micros::SECOND);
        assert_eq!(setting.share(0) + setting.share(1), SHARES / 10 * 9);
        setting.report(2, 1);
        setting.settle();
        assert_eq!(setting.share(2), SHARES / 10, "the reserve");
        setting.pass(GRACE);
        assert!(setting.share(2) > SHARES / 3, "{} is too little", setting.share(2));
    }

    /// A quota that is wanted as a whole, and one whose burst has few tokens, have no reserve.
    #[test]
    fn a_reserve_takes_nothing_that_is_wanted() {
        let all = |setting: &Setting| setting.group.shares().map(|(_, share, _)| share).sum();
        let saturated: u64 = all(&Setting::saturated(2));
        assert_eq!(saturated, SHARES);
        let mut setting = Setting::saturated(0);
        setting.group.set_quota(Quota { burst: 9, ..QUOTA });
        for _ in 0..4 {
            setting.pass(Micros::from_secs(5));
            setting.report(0, 10);
            setting.settle();
        }
        let small: u64 = all(&setting);
        assert_eq!(small, SHARES);
    }

    /// The other instances divide by the wants in the ledger, which are parts of the quota.
    #[test]
    fn a_reload_writes_a_want_in_flight_again() {
        let mut setting = Setting::saturated(0);
        for _ in 0..4 {
            setting.pass(Micros::from_secs(5));
            setting.report(0, 1_500);
            setting.settle();
        }
        setting.pass(Micros::from_secs(5));
        setting.report(0, 1_500);
        let in_flight = setting.group.settlement(setting.now).expect("a report");
        setting.group.set_quota(Quota { requests: 6_000, ..QUOTA });
        let snapshot = setting.ledger.settle(&in_flight);
        setting.group.settled(Some(&snapshot), setting.now, setting.now, false);
        let again = setting.group.settlement(setting.now).expect("another want");
        let (_, _, want) = setting.group.shares().next().expect("a holder");
        assert_eq!(again.changes[0].want, want);
        assert_ne!(in_flight.changes[0].want, want);
        let snapshot = setting.ledger.settle(&again);
        setting.group.settled(Some(&snapshot), setting.now, setting.now, false);
        assert_eq!(setting.group.settlement(setting.now).map(|it| it.changes), None, "once");
    }

    #[test]
    fn small_excesses_are_lowered_for_another_holder() {
        let mut setting = Setting::saturated(30);
        setting.pass(Micros::SECOND);
        setting.report(30, 15_000);
        setting.settle();
        setting.pass(GRACE);
        assert!(setting.share(30) > SHARES / 31 * 95 / 100, "{} is too little", setting.share(30));
    }

    /// The new holder needs less than 0.5 % of the share of each other one.
    #[test]
    fn a_report_lowers_the_smallest_excess() {
        let mut setting = Setting::saturated(300);
        setting.pass(Micros::SECOND);
        setting.report(300, 15_000);
        setting.pass(Micros::from_secs(4));
        (0..=300).for_each(|holder| setting.report(holder, 15_000));
        setting.settle();
        setting.pass(GRACE);
        assert!(
            setting.share(300) > SHARES / 301 * 95 / 100,
            "{} is too little",
            setting.share(300)
        );
    }

    /// As after an outage: the holder expired, and the others divided the quota.
    #[test]
    fn a_holder_without_demand_gets_its_part_back() {
        let mut setting = Setting::saturated(2);
        setting.report(2, 1);
        setting.pass(Micros::from_secs(5));
        for _ in 0..6 {
            setting.pass(Micros::from_secs(5));
            (0..2).for_each(|holder| setting.report(holder, 15_000));
            setting.settle();
        }
        assert_eq!(setting.share(2), 0);
        for _ in 0..6 {
            (0..2).for_each(|holder| setting.report(holder, 15_000));
            setting.report(2, 0);
            setting.settle();
            setting.pass(Micros::from_secs(5));
        }
        assert_eq!(setting.share(2), SHARES / 100 / 3);
    }

    /// A stream of one name ends before the message that lowers it can have arrived, and the next one begins
    /// at once. The share that it had before ends when it expires, so another holder gets its part.
    #[test]
    fn a_name_that_reconnects_often_keeps_no_old_share() {
        for (pause, absence) in [(200, 0), (200, 100), (450, 0), (1_000, 0), (3_000, 0)] {
            let mut setting = Setting::saturated(1);
            for step in 0..20_000 / pause {
                if step % (5_000 / pause) == 0 {
                    setting.report(1, 15_000);
                }
                setting.group.leave(id(0));
                setting.pass(Micros::from_millis(absence));
                setting.group.join(id(0), setting.now);
                setting.report(0, 15_000);
                setting.settle();
                setting.pass(Micros::from_millis(pause - absence));
            }
            let share = setting.share(1);
            assert!(share >= SHARES / 100 * 49, "{share} with a stream in {pause} ms");
        }
    }
}
