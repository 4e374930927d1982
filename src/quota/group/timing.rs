//! When a group asks its ledger again.

use super::super::ledger::{HolderId, Holding};
use super::QuotaGroup;
use crate::time::Micros;

/// How often a shared ledger is read while other instances have holders.
const READ_PERIOD: Micros = Micros::SECOND;

/// How often it is read while own holders should get more, but there is no room yet.
const UNMET_READ_PERIOD: Micros = Micros::from_millis(500);

/// How often it is read while no share is raised after an outage. A further outage would prevent the others
/// from writing their holders again, so it must be noticed: the time starts again after it.
const RECOVERY_READ_PERIOD: Micros = Micros::from_millis(500);

/// How often a shared ledger is read otherwise, so that a holder elsewhere soon gets its part.
const LONE_READ_PERIOD: Micros = Micros::from_secs(2);

impl QuotaGroup {
    /// Whether a settlement waits for its [result](QuotaGroup::settled).
    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    pub(super) fn must_read(&self, now: Micros) -> bool {
        let read_at = self.read_at(now);
        self.holders.values().any(|holder| holder.is_new()) || read_at.is_some_and(|at| at <= now)
    }

    /// When to read a shared ledger at the latest.
    pub(super) fn read_at(&self, now: Micros) -> Option<Micros> {
        if !self.config.shared || !self.holders.values().any(|holder| !holder.left) {
            return None;
        }
        let asked = self.view.asked()?;
        let foreign = self.view.holdings(now).any(|(id, _)| !self.holders.contains_key(id));
        let period = match (foreign, self.unmet) {
            _ if now < self.no_raise_until => RECOVERY_READ_PERIOD,
            (true, true) => UNMET_READ_PERIOD,
            (true, false) => READ_PERIOD,
            (false, _) => LONE_READ_PERIOD,
        };
        Some(asked.saturating_add(period))
    }

    /// The next instant at which time alone changes what to settle.
    pub(super) fn next_after(&self, now: Micros) -> Option<Micros> {
        let (life, silence) = (self.config.life(), self.config.silence());
        let silent = |(_, holding): &(HolderId, Holding)| {
            holding.expires.saturating_sub(life.saturating_sub(silence)).saturating_add(Micros(1))
        };
        let times = self.view.holdings(now).map(silent);
        let own = self.holders.values();
        let own = own.flat_map(|holder| [Some(holder.until()), holder.renewal_at()]).flatten();
        let others = [self.view.next_free(now), self.read_at(now)].into_iter().flatten();
        let fixed = [self.no_raise_until, self.config.relearn_until];
        let all = times.chain(own).chain(others).chain(fixed);
        let next = all.filter(|time| *time > now).min();
        if self.holders.is_empty() { None } else { next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{GroupConfig, Ledger, Quota};

    /// A group that has never read the ledger asks soon again, and less often with each failure.
    #[test]
    fn the_first_failures_have_short_pauses() {
        let config = GroupConfig {
            grace: Micros::from_millis(500),
            ttl: Micros::from_secs(12),
            margin: Micros::SECOND,
            shared: true,
            relearn_until: Micros::ZERO,
        };
        let quota = Quota { requests: 300, window: Micros::SECOND, burst: 60 };
        let mut group = QuotaGroup::new(quota, config);
        let mut now = Micros::from_secs(1_000);
        group.join(HolderId([1, 0]), now);
        let fail = |group: &mut QuotaGroup, now: Micros| {
            assert!(group.settlement(now).is_some(), "due at {now:?}");
            group.settled(None, now, now, true);
            let next = group.next().expect("a further attempt");
            assert!(group.settlement(Micros(next.0 - 1)).is_none(), "not sooner");
            next.saturating_sub(now).0 / 1_000
        };
        for pause in [20, 40, 80, 160, 320, 500, 500] {
            assert_eq!(fail(&mut group, now), pause);
            now = now.saturating_add(Micros::from_millis(pause));
        }
        let snapshot = Ledger::default().settle(&group.settlement(now).expect("due"));
        group.settled(Some(&snapshot), now, now, true);
        assert_eq!(fail(&mut group, now), 500, "after the first answer");
    }
}
