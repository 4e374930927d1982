//! How much of a quota is in use, for operators.

use std::collections::BTreeMap;

use super::super::ledger::HolderId;
use super::{OwnHolder, QuotaGroup, ledger_view};
use crate::time::Micros;

/// Shares of all instances, as the group last read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresentUse {
    /// The sum of all shares.
    pub in_use: u64,
    /// The part of it that no holder is meant to use, and that no other one gets yet: shares of silent
    /// holders, and the excess of lowered ones in their grace.
    pub reserved: u64,
}

impl QuotaGroup {
    /// What each own holder may use.
    #[cfg(test)]
    pub(in crate::quota) fn held(&self, now: Micros) -> impl Iterator<Item = (HolderId, u64)> {
        self.holders.iter().map(move |(id, own)| (*id, own.held(now, self.config.grace)))
    }

    /// The shares at `now`.
    pub fn present_use(&self, now: Micros) -> PresentUse {
        let is_live =
            |holder: &OwnHolder| holder.is_live(now, &self.config) && holder.until() > now;
        let live = self.holders.iter().filter(|(_, holder)| is_live(holder));
        let mut live: BTreeMap<HolderId, u64> =
            live.map(|(id, holder)| (*id, holder.share())).collect();
        let mut found = PresentUse::default();
        for (id, holding) in self.view.holdings(now) {
            let used = ledger_view::used(holding, now);
            let meant = match (live.remove(id), self.holders.get(id)) {
                (Some(share), _) => share,
                (None, Some(own)) if !own.taken_over => 0,
                _ if self.is_silent(holding, now) => 0,
                _ => holding.share,
            };
            found.in_use = found.in_use.saturating_add(used.max(meant));
            found.reserved = found.reserved.saturating_add(used.saturating_sub(meant));
        }
        // Renewed without the ledger, whose last holding has expired.
        found.in_use = live.into_values().fold(found.in_use, u64::saturating_add);
        found
    }
}
