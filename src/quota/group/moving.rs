//! Holders that move to another quota, because a reload gave their buckets another rule.

use super::super::ledger::{Change, HolderId, Holding};
use super::super::share::Quota;
use super::own_holder::OwnHolder;
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

impl OutstandingShares {
    /// The quota whose parts the shares are.
    pub fn rate(&self) -> &Quota {
        &self.rate
    }
}

impl QuotaGroup {
    /// Whether the quota has this holder, also one of another instance.
    pub fn knows(&self, holder: HolderId, now: Micros) -> bool {
        self.holders.contains_key(&holder)
            || self.reserved.has(holder)
            || self.view.has(holder, now)
    }

    /// What all holders of all instances may use.
    pub fn outstanding(&self, now: Micros) -> OutstandingShares {
        let own = self.holders.iter().map(|(id, own)| self.of_own(*id, own, now));
        let is_own = |id| self.holders.get(&id).is_some_and(|own| !own.taken_over);
        let others = self.view.holdings(now).filter(|(id, _)| !is_own(*id));
        let others = others.map(|(id, holding)| of_other(*id, holding, now));
        self.in_use(own.flatten().chain(others))
    }

    /// What one holder may use. Thousands of holders may move one by one, so this does not read the others.
    pub fn outstanding_of(&self, holder: HolderId, now: Micros) -> OutstandingShares {
        let own = self.holders.get(&holder).and_then(|own| self.of_own(holder, own, now));
        let others = self.view.holdings_of(holder, now).filter(|_| own.is_none());
        self.in_use(own.into_iter().chain(others.map(|holding| of_other(holder, holding, now))))
    }

    /// What an own holder may use; `None` if another instance has it.
    fn of_own(&self, holder: HolderId, own: &OwnHolder, now: Micros) -> Option<OutstandingShare> {
        (!own.taken_over).then(|| OutstandingShare {
            holder,
            share: own.held(now, self.config.grace),
            want: own.claim(&self.quota, now, &self.config).number(),
            left: own.until().saturating_sub(now),
        })
    }

    fn in_use(&self, all: impl Iterator<Item = OutstandingShare>) -> OutstandingShares {
        let shares = all.filter(|one| one.share > 0 && one.left.0 > 0).collect();
        OutstandingShares { rate: self.rate, shares }
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
        let is_new = |one: &&OutstandingShare| !self.knows(one.holder, now);
        let new: Vec<OutstandingShare> = shares.iter().filter(is_new).copied().collect();
        for OutstandingShare { holder, share, want, left } in new {
            let share = converted(share, rate, &self.rate);
            let expires = now.saturating_add(left);
            self.reserved.add(Change { holder, share, held: share, want, expires });
        }
        self.next = Some(Micros::ZERO);
    }
}

/// What a holder of another instance may use.
fn of_other(holder: HolderId, holding: &Holding, now: Micros) -> OutstandingShare {
    OutstandingShare {
        holder,
        share: ledger_view::used(holding, now),
        want: holding.want,
        left: holding.expires.saturating_sub(now),
    }
}
