//! What a group changes: which own holders are lowered, raised and renewed.

use std::collections::BTreeMap;

use super::super::division::Want;
use super::super::ledger::{Change, HolderId, Holding};
use super::targets::{Division, is_significant};
use super::{QuotaGroup, ledger_view};
use crate::time::Micros;

impl QuotaGroup {
    /// The changes of own holders: lowered ones, raised ones as far as there is room, and renewals.
    pub(super) fn changes(&mut self, now: Micros) -> Vec<Change> {
        let mut shares: BTreeMap<HolderId, u64> = BTreeMap::new();
        let mut raises = Vec::new();
        let mut needed = 0_u64;
        self.holders.values_mut().for_each(|holder| holder.end(now));
        let division = self.division(now);
        // The ledger lost writes, or a limit was lowered: even the smallest excess ends.
        let over = division.is_over();
        for (id, target) in division.targets() {
            let Some(holder) = self.holders.get_mut(&id) else { continue };
            let (share, target) = (holder.share(), holder.capped(target, now, &self.config));
            let must_lower = over && target < share;
            if !must_lower && !is_significant(share, target, holder.renews()) {
                continue;
            }
            if target > share {
                needed = needed.saturating_add(target - share);
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
        let room = if waits { 0 } else { self.view.free(now) };
        self.unmet = room < needed;
        for (id, raise) in raises {
            let part = u128::from(raise) * u128::from(room.min(needed)) / u128::from(needed.max(1));
            let Some(holder) = self.holders.get(&id) else { continue };
            let raised = holder.share() + u64::try_from(part).unwrap_or(0);
            if is_significant(holder.share(), raised, holder.renews()) {
                shares.insert(id, raised);
            }
        }
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
                division.add_silent(want, ledger_view::used(holding, now));
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
