//! Holders that move to another quota, because a reload gave their buckets another rule.

use std::collections::BTreeSet;

use super::super::ledger::{Change, HolderId};
use super::super::share::Quota;
use super::{QuotaGroup, converted, ledger_view};
use crate::time::Micros;

/// What holders of one quota may still use, for the quota that they move to.
#[derive(Clone, Debug)]
pub struct OutstandingShares {
    /// The quota whose parts the shares are.
    rate: Quota,
    shares: Vec<OutstandingShare>,
}

#[derive(Clone, Copy, Debug)]
struct OutstandingShare {
    holder: HolderId,
    share: u64,
    want: u64,
    /// The time until it expires.
    left: Micros,
}

impl QuotaGroup {
    /// Whether the quota has this holder, also one of another instance.
    pub fn knows(&self, holder: HolderId, now: Micros) -> bool {
        self.holders.contains_key(&holder)
            || self.reserved.iter().any(|change| change.holder == holder)
            || self.view.has(holder, now)
    }

    /// What all holders of all instances may use, or `only` one of them.
    pub fn outstanding(&self, only: Option<HolderId>, now: Micros) -> OutstandingShares {
        let is_asked = |holder: HolderId| only.is_none_or(|only| only == holder);
        let own = self.holders.iter().filter(|(_, own)| !own.taken_over);
        let own = own.map(|(id, own)| OutstandingShare {
            holder: *id,
            share: own.held(now, self.config.grace),
            want: own.claim(&self.quota, now, &self.config).number(),
            left: own.until().saturating_sub(now),
        });
        let is_own = |id| self.holders.get(&id).is_some_and(|own| !own.taken_over);
        let others = self.view.holdings(now).filter(|(id, _)| !is_own(*id));
        let others = others.map(|(id, holding)| OutstandingShare {
            holder: *id,
            share: ledger_view::used(holding, now),
            want: holding.want,
            left: holding.expires.saturating_sub(now),
        });
        let in_use =
            |one: &OutstandingShare| is_asked(one.holder) && one.share > 0 && one.left.0 > 0;
        OutstandingShares { rate: self.rate, shares: own.chain(others).filter(in_use).collect() }
    }

    /// Reserves what holders may use of the quota from which they come. The next settlement writes it into the
    /// ledger, as shares of this quota with the same rates. A holder that appears here, at any instance,
    /// continues with its share; the shares of the others are free when they expire.
    pub fn reserve(&mut self, outstanding: &OutstandingShares, now: Micros) {
        let OutstandingShares { rate, shares } = outstanding;
        // A limit of 0 denies everything, so nothing is in use.
        if rate.requests == 0 || self.rate.requests == 0 {
            return;
        }
        let mut known: BTreeSet<HolderId> = self.holders.keys().copied().collect();
        known.extend(self.reserved.iter().map(|change| change.holder));
        known.extend(self.view.holdings(now).map(|(id, _)| *id));
        for OutstandingShare { holder, share, want, left } in shares {
            if known.contains(holder) {
                continue;
            }
            let share = converted(*share, rate, &self.rate);
            let (holder, want, expires) = (*holder, *want, now.saturating_add(*left));
            self.reserved.push(Change { holder, share, held: share, want, expires });
        }
        self.next = Some(Micros::ZERO);
    }
}
