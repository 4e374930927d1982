//! A group: the holders of one quota at one instance, and its view of the ledger.
//!
//! The groups of all instances read the same ledger and calculate the same targets. A group lowers its own
//! holders at once, and raises them as far as there is room. It never changes the holders of other groups.
//!
//! **Claim:** what all Envoys use together is at most the quota. The ledger keeps the sum of all holdings
//! within it. [`OwnHolder`] says why a holding is at least what its Envoy uses. This is true across
//! machines under one assumption: the time from a decision to the Envoy, plus the difference of two
//! clocks, is below [`grace`](GroupConfig::grace), and `grace` below [`margin`](GroupConfig::margin).
//!
//! Exceptions:
//!
//! - A limit that a reload lowers, until the holders are lowered.
//! - A counter that gets another rule with a lower limit, in the same way.
//! - A stream that is cut without a sign to this instance: a message that lowers does not arrive, and
//!   the Envoy uses the old share until its next stream or the end of its TTL.
//! - A ledger that loses its last writes or everything: shares that were raised shortly before, and what was
//!   free, once for each further group, until all have written their holders again. A group gives away no
//!   share that it has seen in the ledger.
//! - Renewals without the ledger, if a rule asks for them, while other groups reach it: they give the shares
//!   away when these expire there. Each group without the ledger adds at most what its holders had.
//! - Two Envoys with one name at two groups: they are one holder until one group has noticed it.
//! - A restart without the ledger: what Envoys used before it is an estimate.

use std::collections::BTreeMap;

use super::assignment::Assignment;
use super::ledger::{HolderId, Holding, LedgerSnapshot, Settlement};
use super::share::Quota;
use crate::time::Micros;

mod demand_meter;
mod earlier_use;
mod ledger_view;
mod moving;
mod new_holders;
mod own_holder;
mod planning;
mod present_use;
mod renewal;
mod reserved_shares;
mod targets;
mod timing;

use earlier_use::EarlierUse;
use ledger_view::LedgerView;
use new_holders::NewHolders;
use own_holder::OwnHolder;
use reserved_shares::ReservedShares;

pub use moving::OutstandingShares;
pub use present_use::PresentUse;

/// The pause after a failure of the store.
const RETRY_PAUSE: Micros = Micros::from_millis(500);

/// The pause after the first failure of a group without a snapshot. It doubles up to [`RETRY_PAUSE`]: until there
/// is a snapshot, the counter decides the callers of `ShouldRateLimit`, and knows nothing of the Envoys.
const FIRST_RETRY_PAUSE: Micros = Micros::from_millis(20);

/// How long no share is raised after an outage in which instances renewed without the ledger: all write
/// their holders again in this time.
const RECOVERY: Micros = Micros::from_secs(2);

/// The times of a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupConfig {
    /// How long a lowered holder may still use its old share.
    pub grace: Micros,
    /// The longest TTL of an assignment.
    pub ttl: Micros,
    /// The time by which the ledger keeps a holding longer than `ttl`. More than `grace`.
    pub margin: Micros,
    /// Whether other instances write the same ledger.
    pub shared: bool,
    /// Until when assignments from before the start of this instance may be in use, if its ledger does
    /// not have them. Zero: the ledger has them.
    pub relearn_until: Micros,
}

impl GroupConfig {
    /// How long the ledger keeps a holding that is not renewed.
    fn life(&self) -> Micros {
        self.ttl.saturating_add(self.margin)
    }

    /// After how long without a report a holder counts as silent.
    fn silence(&self) -> Micros {
        Micros(self.life().0 / 2)
    }
}

/// The entries of a node of a [`BTreeMap`], of which all but one may be free.
const NODE_ENTRIES: usize = 11;

/// The most bytes that a holder takes in its group, also as the only one, and in a ledger in memory.
pub const HOLDER_BYTES: usize = size_of::<OwnHolder>()
    + NODE_ENTRIES * size_of::<(HolderId, Box<OwnHolder>)>()
    + NODE_ENTRIES * size_of::<HolderId>()
    + (NODE_ENTRIES + 2) * size_of::<(HolderId, Holding)>();

/// An assignment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueAssignment {
    /// The holder.
    pub holder: HolderId,
    /// What its Envoy may do.
    pub assignment: Assignment,
    /// Equal for equal assignments, so that Envoy keeps its tokens; 1 to 999 999 999.
    pub generation: u32,
    /// How long it is valid from its arrival, in whole seconds. 0 ends the last assignment.
    pub ttl: Micros,
    /// The share that it should have, as far as others can give it.
    pub target: u64,
}

/// Another instance has the holder now. If its stream is still open here, two Envoys have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another instance has the holder")]
pub struct HolderTakenOver;

/// The holders of one quota at one instance.
#[derive(Debug)]
pub struct QuotaGroup {
    quota: Quota,
    /// The last quota with a rate: shares are parts of it.
    rate: Quota,
    config: GroupConfig,
    /// Boxed: a table with one holder has room for eleven.
    holders: BTreeMap<HolderId, Box<OwnHolder>>,
    new: NewHolders,
    view: LedgerView,
    /// The rate of the settlement in flight.
    in_flight: Option<Quota>,
    /// Shares of another quota whose holders come from there. The ledger gets them with the next settlement.
    reserved: ReservedShares,
    /// Whether they are more than what was free when they were sent for the last time.
    moves_excess: bool,
    /// Whether every assignment is due.
    resend: bool,
    retry_at: Micros,
    /// Failures of the store before the first snapshot.
    failed_reads: u32,
    /// Whether holders were renewed without the ledger since the last snapshot.
    renewed_without_ledger: bool,
    no_raise_until: Micros,
    /// Whether the last attempt to raise shares found too little room.
    unmet: bool,
    due: BTreeMap<HolderId, DueAssignment>,
    next: Option<Micros>,
}

impl QuotaGroup {
    /// A group without holders.
    pub fn new(quota: Quota, config: GroupConfig) -> QuotaGroup {
        QuotaGroup {
            quota,
            rate: quota,
            config,
            holders: BTreeMap::new(),
            new: NewHolders::default(),
            view: LedgerView::default(),
            in_flight: None,
            reserved: ReservedShares::default(),
            moves_excess: false,
            resend: false,
            retry_at: Micros::ZERO,
            failed_reads: 0,
            renewed_without_ledger: false,
            no_raise_until: Micros::ZERO,
            unmet: false,
            due: BTreeMap::new(),
            next: None,
        }
    }

    /// Sets the quota after a reload. Shares are converted, so that they stand for the same rates.
    pub fn set_quota(&mut self, quota: Quota) {
        if quota == self.quota {
            return;
        }
        self.quota = quota;
        if quota.requests > 0 && quota.window > Micros::ZERO {
            let from = std::mem::replace(&mut self.rate, quota);
            let convert = |share: u64| converted(share, &from, &quota);
            self.view.convert(convert);
            self.reserved.convert(convert);
            self.holders.values_mut().for_each(|holder| holder.convert(convert));
        }
        self.send_again();
    }

    /// Makes the assignments of all holders due once more, as with another quota.
    pub fn send_again(&mut self) {
        self.resend = true;
        self.next = Some(Micros::ZERO);
    }

    /// A holder appears, or its stream appears again.
    pub fn join(&mut self, holder: HolderId, now: Micros) {
        let known = self.holders.entry(holder);
        known.and_modify(|known| known.rejoin(now)).or_insert_with(|| OwnHolder::new(now).into());
        self.new.add(holder);
        self.next = Some(Micros::ZERO);
    }

    /// What a holder used before this instance started: `allowed` hits in `elapsed`, by the first report
    /// of its stream. It has an effect until [`GroupConfig::relearn_until`] only: until then the holder
    /// gets no larger share than the least that allows these hits. If no share allows them, it gets at most an
    /// equal part, for which there is one more holder.
    pub fn limit_by_earlier_use(&mut self, holder: HolderId, allowed: u64, elapsed: Micros) {
        let earlier = EarlierUse::of(&self.quota, allowed, elapsed);
        if let Some(holder) = self.holders.get_mut(&holder) {
            holder.set_earlier_use(earlier);
        }
    }

    /// A report: `hits` requests, allowed or denied, since the last one. It renews the holder.
    ///
    /// # Errors
    ///
    /// [`HolderTakenOver`]: the report counts for nothing. The stream needs another holder id.
    pub fn report(
        &mut self,
        holder: HolderId,
        hits: u64,
        now: Micros,
    ) -> Result<(), HolderTakenOver> {
        let known = self.holders.entry(holder).or_insert_with(|| OwnHolder::new(now).into());
        if known.taken_over {
            return Err(HolderTakenOver);
        }
        if known.left {
            known.rejoin(now);
        }
        if known.waits_for_first_share(now, &self.config) {
            self.new.add(holder);
        }
        known.report(hits, now, self.config.grace);
        self.next = Some(Micros::ZERO);
        Ok(())
    }

    /// The stream of the holder ended. The ledger keeps it until it expires.
    pub fn leave(&mut self, holder: HolderId) {
        self.due.remove(&holder);
        self.new.remove(holder);
        if let Some(known) = self.holders.get_mut(&holder) {
            known.leave();
            self.next = Some(Micros::ZERO);
        }
    }

    /// What to settle now, if anything. Until [`settled`](QuotaGroup::settled) there is nothing more.
    /// Lowered shares are due at once, before the ledger answers.
    pub fn settlement(&mut self, now: Micros) -> Option<Settlement> {
        self.holders.retain(|_, holder| !holder.is_over(now));
        if self.in_flight.is_some() || now < self.retry_at {
            return None;
        }
        if std::mem::take(&mut self.resend) {
            self.send(now, |holder| holder.until() > now);
        }
        let mut changes = self.changes(now);
        if !self.reserved.is_empty() {
            self.moves_excess = self.reserved.sum() > self.free(now);
            changes.splice(0..0, self.reserved.send());
        }
        if changes.is_empty() && !self.must_read(now) {
            self.next = self.next_after(now);
            return None;
        }
        self.in_flight = Some(self.rate);
        Some(Settlement {
            now,
            requests: self.quota.requests,
            window: self.quota.window,
            grace: self.config.grace,
            changes,
        })
    }

    /// Whether the settlement in flight puts more into the ledger than the quota, with holders that come from
    /// another one.
    pub fn moves_excess(&self) -> bool {
        self.in_flight.is_some() && self.moves_excess && !self.reserved.is_empty()
    }

    fn retry_pause(&mut self) -> Micros {
        if self.view.asked().is_some() {
            return RETRY_PAUSE;
        }
        let doubled = FIRST_RETRY_PAUSE.0 << self.failed_reads.min(5);
        self.failed_reads = self.failed_reads.saturating_add(1);
        Micros(doubled.min(RETRY_PAUSE.0))
    }

    /// The result of the settlement of `sent_at`. `None`: the store failed. Then `renew_without_ledger` says
    /// whether holders that reported get their last share again, or are left to expire.
    pub fn settled(
        &mut self,
        result: Option<&LedgerSnapshot>,
        sent_at: Micros,
        now: Micros,
        renew_without_ledger: bool,
    ) {
        let rate = self.in_flight.take().unwrap_or(self.rate);
        self.next = Some(Micros::ZERO);
        let Some(snapshot) = result else {
            self.retry_at = now.saturating_add(self.retry_pause());
            let config = self.config;
            self.holders.values_mut().for_each(|holder| holder.fail());
            if renew_without_ledger {
                self.renewed_without_ledger = true;
                self.send(now, |holder| holder.renew_without_ledger(now, &config));
            }
            return;
        };
        if std::mem::take(&mut self.renewed_without_ledger) {
            self.no_raise_until = now.saturating_add(RECOVERY);
        }
        self.reserved.end_sent();
        let mut snapshot = snapshot.clone();
        if rate != self.rate {
            let convert = |share: u64| converted(share, &rate, &self.rate);
            snapshot.holdings.iter_mut().for_each(|(_, holding)| {
                (holding.share, holding.old_share) =
                    (convert(holding.share), convert(holding.old_share));
            });
        }
        let grace = self.config.grace;
        for (holder, own) in &mut self.holders {
            if own.take(snapshot.get(*holder), now, grace) {
                let due = own.next_assignment(*holder, &self.quota, now, &self.config);
                self.due.extend(due.map(|due| (*holder, due)));
            }
        }
        let holders = &self.holders;
        let own = |holder| holders.get(&holder).is_some_and(|own| !own.taken_over);
        self.view.take(snapshot, own, sent_at, now);
    }

    /// Own holders whose assignment must be sent, each once. Ask after [`settlement`] and [`settled`],
    /// and send at once: the TTLs count from now.
    ///
    /// [`settlement`]: QuotaGroup::settlement
    /// [`settled`]: QuotaGroup::settled
    pub fn take_due_assignments(&mut self) -> Vec<DueAssignment> {
        std::mem::take(&mut self.due).into_values().collect()
    }

    /// From when on [`settlement`](QuotaGroup::settlement) may return something. None: not without a
    /// call of another function.
    pub fn next(&self) -> Option<Micros> {
        if self.in_flight.is_some() { None } else { self.next.map(|next| next.max(self.retry_at)) }
    }

    /// Whether a holder waits for its first share.
    pub fn has_new_holder(&mut self, now: Micros) -> bool {
        let (holders, config) = (&self.holders, &self.config);
        self.new.any(|id| {
            let own = holders.get(&id);
            own.is_some_and(|own| own.waits_for_first_share(now, config))
        })
    }

    /// Whether a settlement is due that should not wait for others: for a new holder, or after a reload.
    pub fn is_urgent(&mut self, now: Micros) -> bool {
        self.resend || self.has_new_holder(now)
    }

    /// Whether there is no holder. One that left counts until it expired.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// The holders with an open stream, with their share and the number of their want.
    pub fn shares(&self) -> impl Iterator<Item = (HolderId, u64, u64)> {
        let open = self.holders.iter().filter(|(_, holder)| !holder.left);
        open.map(|(id, holder)| (*id, holder.share(), holder.want(&self.quota).number()))
    }

    /// Marks holders as due.
    fn send(&mut self, now: Micros, mut choose: impl FnMut(&mut OwnHolder) -> bool) {
        for (id, holder) in &mut self.holders {
            if choose(holder) {
                let due = holder.next_assignment(*id, &self.quota, now, &self.config);
                self.due.extend(due.map(|due| (*id, due)));
            }
        }
    }
}

/// A share of `from` as a share of `to`, rounded up. Both have a rate.
fn converted(share: u64, from: &Quota, to: &Quota) -> u64 {
    let up = u128::from(from.requests) * u128::from(to.window.0);
    let down = u128::from(to.requests) * u128::from(from.window.0);
    let quotient = u128::from(share).saturating_mul(up).div_ceil(down.max(1));
    u64::try_from(quotient).unwrap_or(u64::MAX).min(super::ledger::HELD_MAX)
}
