//! What a ledger that lost writes, or an instance that started without its memory, may add to a quota.

use std::collections::BTreeMap;

use super::instance::Instance;
use super::laws::SimQuota;
use super::world::{Action, Fault, World};
use crate::quota::{HolderId, Holding, LedgerSnapshot, SHARES};
use crate::testing::simulated_bucket::{Fallback, Rate};
use crate::time::Micros;

/// When the sum is right after a loss: each instance has read the ledger and written its holders again, and
/// the others have read that. A ledger is read every 2 s at least, and a message needs up to 0.1 s.
const RESTORED: Micros = Micros::from_millis(5_000);

/// When the last assignment of before a restart has expired.
const EXPIRED: Micros = Micros::from_secs(14);

/// What one loss may add.
#[derive(Debug)]
struct Loss {
    until: Micros,
    /// What the ledger lost: it has room for that.
    forgotten: Rate,
    /// What instances see as free although it is in use, or several of them do.
    unseen: Rate,
    /// Further instances. Each may get what another one has lowered since, until the ledger is complete.
    further: Rate,
}

/// By how much a quota may be exceeded, and until when.
#[derive(Debug, Default)]
pub(super) struct Losses(Vec<Loss>);

impl Losses {
    /// An Envoy got a share that is smaller by this rate.
    pub(super) fn lower(&mut self, rate: Rate) {
        self.0.iter_mut().for_each(|loss| loss.unseen += rate * loss.further);
    }

    /// By how much the sum may exceed the quota.
    pub(super) fn most(&self, now: Micros) -> Rate {
        let active = self.0.iter().filter(|loss| now < loss.until);
        active.map(|loss| loss.forgotten.min(loss.unseen)).sum()
    }
}

/// A share as a rate of the quota.
fn rate_of(quota: &SimQuota, share: u64) -> Rate {
    // The rounding of the group.
    (quota.limit() * i128::from(share)).div_euclid(i128::from(SHARES)) + 1
}

impl World {
    /// All ledgers lose their last writes, or everything.
    pub(super) fn lose_writes(&mut self, loss: &Action) {
        let (now, clock) = (self.now, self.clock());
        for index in 0..self.ledgers.len() {
            let quota = &self.quotas[index].quota;
            let before = self.ledgers[index].read(quota, clock);
            match loss {
                Action::FailOver { lag } => self.ledgers[index].fail_over(*lag, now),
                _ => self.ledgers[index].flush(),
            }
            let after = self.ledgers[index].read(&self.quotas[index].quota, clock);
            let (forgotten, unseen) = self.lost(index, &before, &after);
            let quota = &mut self.quotas[index];
            let loss = Loss {
                until: now.saturating_add(RESTORED),
                forgotten: rate_of(quota, forgotten),
                unseen: rate_of(quota, unseen),
                further: self.instances.len() as Rate - 1,
            };
            quota.exceptions.losses.0.push(loss);
        }
        if self.setup.fault == Some(Fault::ForgottenView) {
            self.instances.iter_mut().for_each(Instance::forget_groups);
        }
        self.fault_everywhere();
    }

    /// The most shares that are given to others although their holders use them, by two bounds.
    ///
    /// The ledger gives at most what it lost. An instance gives at most what it sees as free: a share that it
    /// has seen is not, although the ledger lost it. So the sum is at most what is in use, and what each
    /// instance sees as free.
    fn lost(&self, quota: usize, before: &LedgerSnapshot, after: &LedgerSnapshot) -> (u64, u64) {
        let used = |holding: &Holding| holding.share.max(holding.old_share);
        let later = self.clock().saturating_add(RESTORED);
        let lost = before.holdings.iter().map(|(holder, holding)| {
            used(holding).saturating_sub(after.get(*holder).map_or(0, used))
        });
        let by_ledger: u64 = lost.sum();
        // Graces end meanwhile.
        let holdings = before.holdings.iter().filter(|(_, holding)| holding.expires > later);
        let mut all: BTreeMap<HolderId, u64> =
            holdings.map(|(holder, holding)| (*holder, holding.share)).collect();
        let mut seen_as_free = Vec::new();
        for (index, instance) in self.instances.iter().enumerate() {
            let now = self.local(index).saturating_add(RESTORED);
            let group = instance.group(quota);
            seen_as_free.push(group.map_or(SHARES, |group| group.free(now)));
            // The ledger may not have them, after another loss.
            for (holder, share) in group.into_iter().flat_map(|group| group.held(now)) {
                let known = all.entry(holder).or_default();
                *known = share.max(*known);
            }
        }
        let in_use = all.values().sum::<u64>();
        // A reply may be on the way that shows what is really free.
        let free = seen_as_free.iter().map(|free| *free.max(&SHARES.saturating_sub(in_use)));
        (by_ledger, (in_use + free.sum::<u64>()).saturating_sub(SHARES))
    }

    /// An instance ends that keeps no ledger. The next process gives an Envoy at most what it surely had by
    /// the requests of its last report interval. So it may get the largest share of that time, which another
    /// one has now.
    pub(super) fn forget(&mut self, pause: Micros) {
        let starts = self.now.saturating_add(pause);
        let until = starts.saturating_add(EXPIRED);
        for quota in &mut self.quotas {
            quota.served_from = quota.served_from.max(until);
            let buckets = quota.envoys.iter().map(|envoy| &self.envoys[*envoy].buckets);
            let buckets = buckets.filter_map(|buckets| buckets.get(&quota.index));
            let moved = buckets.clone().map(|bucket| bucket.highest - bucket.rate()).sum();
            let loss = Loss { until, forgotten: moved, unseen: moved, further: 0 };
            quota.exceptions.losses.0.push(loss);
            let mut fallbacks = buckets.map(|bucket| bucket.fallbacks.unassigned);
            if !self.setup.strict && fallbacks.any(|fallback| fallback == Fallback::AllowAll) {
                let (forgotten, unseen) = (quota.limit(), quota.limit());
                // An Envoy that reports no requests keeps its share until it expires.
                let loss = Loss { until, forgotten, unseen, further: 0 };
                quota.exceptions.losses.0.push(loss);
            }
        }
    }
}
