//! The ledger: what every holder of one quota may use, and until when.
//!
//! `lua/quota.lua` does the same to a ledger in Redis, bit for bit.

use std::collections::BTreeMap;

use super::share::SHARES;
use crate::time::Micros;

/// The most holders of one quota. A client may have as many of them as are left: half if it is alone, a third
/// beside another client with as many as it can have. The ledger does not store a further one, so it has no
/// share.
pub const HOLDERS_MAX: usize = 10_000;

/// The largest share that a holding stores. A conversion to a lower limit stops there. The sum of
/// [`HOLDERS_MAX`] such shares is below 2^53, so Lua's doubles represent it exactly.
pub const HELD_MAX: u64 = 900 * SHARES;

/// The identity of a holder: an Envoy in one bucket, or an instance for its own callers.
///
/// The first half is its [client](HolderId::client), and the second half tells the holders of a client apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(pub [u64; 2]);

impl HolderId {
    /// Who has the holder: a hash of the address of an Envoy, or a random number for an instance. Two clients
    /// with one number have one part of a quota together.
    pub fn client(self) -> u64 {
        self.0[0]
    }
}

/// What the ledger has of one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The share, at most [`HELD_MAX`].
    pub share: u64,
    /// The larger share that it had before, which it may still use until `old_until`. 0 if that time
    /// is over.
    pub old_share: u64,
    /// The end of the grace of `old_share`.
    pub old_until: Micros,
    /// From this instant on, the holder uses nothing.
    pub expires: Micros,
    /// [`Want::number`](super::Want::number) of its want. The ledger only stores it.
    pub want: u64,
}

/// A new share of one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The holder.
    pub holder: HolderId,
    /// The share that it should have. A raise is granted as far as there is room.
    pub share: u64,
    /// The share that it surely does not exceed at the moment. It counts as in use if the ledger does
    /// not have the holder, at most [`SHARES`]; otherwise the ledger's own number counts.
    pub held: u64,
    /// See [`Holding::want`].
    pub want: u64,
    /// Until when it uses the share. A change that ends before the stored instant is skipped: each
    /// change of a holder ends later than the one before, so this one arrived late.
    pub expires: Micros,
}

/// Changes of one quota at one instant, applied in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The instant.
    pub now: Micros,
    /// Hits per window of the quota. Below [`HITS_END`](crate::limit::HITS_END).
    pub requests: u64,
    /// The window of the quota. At most [`WINDOW_MAX`](crate::limit::WINDOW_MAX).
    pub window: Micros,
    /// How long a lowered holder may still use its old share.
    pub grace: Micros,
    /// The changes. None: the settlement only reads.
    pub changes: Vec<Change>,
}

/// All holdings of a quota at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerSnapshot {
    /// The holdings, ordered by holder, each holder once.
    pub holdings: Vec<(HolderId, Holding)>,
}

/// The holdings of one quota.
///
/// **Invariant:** the sum over all holdings of `max(share, old_share)` is at most [`SHARES`], if it
/// was so before, and if the `held` of holders that the ledger does not have fits as well.
///
/// Proof, for each operation of [`Ledger::settle`]:
///
/// 1. A conversion to a higher or equal rate raises no share. One to a lower rate is the exception:
///    until the holders are lowered the sum may exceed [`SHARES`].
/// 2. The end of a grace and an expiry lower the sum.
/// 3. A new holder adds `min(held, SHARES)`, which is assumed to fit.
/// 4. Lowering: `old_share` becomes the maximum of both, so the maximum stays.
/// 5. Raising: the new share is at most [`SHARES`] minus the maxima of all other holdings, so the sum
///    is at most [`SHARES`] after it; or the share and the sum stay.
///
/// No step depends on the order of the instants, so wrong clocks change when a share becomes free,
/// and not the sum.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The rate whose parts the shares are: requests per window, neither zero.
    rate: Option<(u64, Micros)>,
    holdings: BTreeMap<HolderId, Holding>,
}

impl Change {
    /// Applies `convert` to the shares.
    pub(super) fn convert(&mut self, convert: impl Fn(u64) -> u64) {
        self.share = convert(self.share);
        self.held = convert(self.held);
    }
}

impl Holding {
    /// The share that counts as in use: the larger one of the two.
    fn used(&self) -> u64 {
        self.share.max(self.old_share)
    }

    /// Sets the share to a smaller one, or to one that fits.
    fn set_share(&mut self, share: u64, settlement: &Settlement) {
        if share < self.share {
            self.old_share = self.used();
            let until = settlement.now.saturating_add(settlement.grace);
            self.old_until = self.old_until.max(until);
        }
        self.share = share;
        self.end_grace(settlement.now);
    }

    fn end_grace(&mut self, now: Micros) {
        if self.old_until <= now {
            self.old_share = 0;
        }
    }
}

impl Ledger {
    /// Applies the changes, and returns all holdings after them.
    ///
    /// Expired holdings and ended graces are dropped first. Then holders that the ledger does not
    /// have are stored with what they hold, so that no change gives that to another holder. Then each
    /// change is applied: a lowered holder gets exactly the share of the change; a raised one gets at
    /// most the room, and never less than it had.
    pub fn settle(&mut self, settlement: &Settlement) -> LedgerSnapshot {
        let now = settlement.now;
        self.convert(settlement.requests, settlement.window);
        self.holdings.retain(|_, holding| holding.expires > now);
        self.holdings.values_mut().for_each(|holding| holding.end_grace(now));
        let mut numbers = None;
        settlement.changes.iter().for_each(|change| self.store_unknown(change, now, &mut numbers));
        let mut sum: u64 = self.holdings.values().map(Holding::used).sum();
        for change in &settlement.changes {
            // Only a holder that was not stored is missing.
            let Some(holding) = self.holdings.get_mut(&change.holder) else { continue };
            if change.expires < holding.expires {
                continue;
            }
            let others = sum - holding.used();
            let room = SHARES.saturating_sub(others);
            holding.set_share(change.share.min(room.max(holding.share)), settlement);
            holding.want = change.want;
            holding.expires = change.expires;
            sum = others + holding.used();
        }
        let holdings = self.holdings.iter().map(|(holder, holding)| (*holder, *holding));
        LedgerSnapshot { holdings: holdings.collect() }
    }

    /// Whether no holder is stored.
    pub fn is_empty(&self) -> bool {
        self.holdings.is_empty()
    }

    /// Stores the holder of `change` with what it holds, unless it is stored, has expired, or its client has as
    /// many as are left of [`HOLDERS_MAX`].
    fn store_unknown(
        &mut self,
        change: &Change,
        now: Micros,
        numbers: &mut Option<BTreeMap<u64, usize>>,
    ) {
        let known = self.holdings.contains_key(&change.holder);
        if !known && change.expires > now && self.has_room(change.holder.client(), numbers) {
            let holding = Holding {
                share: change.held.min(SHARES),
                old_share: 0,
                old_until: Micros::ZERO,
                expires: change.expires,
                want: change.want,
            };
            self.holdings.insert(change.holder, holding);
            if let Some(numbers) = numbers {
                *numbers.entry(change.holder.client()).or_default() += 1;
            }
        }
    }

    /// Whether `client` has fewer holders than are left of [`HOLDERS_MAX`]. `numbers` are those of all clients.
    /// They are counted only when one client might have as many.
    fn has_room(&self, client: u64, numbers: &mut Option<BTreeMap<u64, usize>>) -> bool {
        let left = HOLDERS_MAX.saturating_sub(self.holdings.len());
        if self.holdings.len() < left {
            return true;
        }
        let numbers = numbers.get_or_insert_with(|| {
            let mut numbers = BTreeMap::new();
            self.holdings.keys().for_each(|id| *numbers.entry(id.client()).or_default() += 1);
            numbers
        });
        numbers.get(&client).copied().unwrap_or(0) < left
    }

    /// Makes all shares parts of `requests` per `window`. A rate of 0 has no parts: the shares remain
    /// parts of the last rate until there is another one.
    fn convert(&mut self, requests: u64, window: Micros) {
        if requests == 0 || window == Micros::ZERO {
            return;
        }
        if let Some((old_requests, old_window)) = self.rate.replace((requests, window)) {
            // Doubles, because Lua has no other numbers. Equal rates have equal products.
            let up = old_requests as f64 * window.0 as f64;
            let down = requests as f64 * old_window.0 as f64;
            if up != down {
                for holding in self.holdings.values_mut() {
                    holding.share = converted(holding.share, up, down);
                    holding.old_share = converted(holding.old_share, up, down);
                }
            }
        }
    }
}

/// `share * up / down`, or less than three more, at most [`HELD_MAX`]. Never below the exact quotient:
/// up to [`HELD_MAX`] the error of the doubles is less than 1.
fn converted(share: u64, up: f64, down: f64) -> u64 {
    // A share at the end of the range may stand for a larger one, so no rate makes it smaller.
    if share == 0 || share >= HELD_MAX {
        return share;
    }
    // The cast saturates.
    let more = ((share as f64 * up / down).ceil() as u64).saturating_add(1);
    if up < down { more.min(share) } else { more.min(HELD_MAX) }
}

impl LedgerSnapshot {
    /// The holding of this holder.
    pub fn get(&self, holder: HolderId) -> Option<&Holding> {
        let at = self.holdings.binary_search_by_key(&holder, |(id, _)| *id).ok()?;
        Some(&self.holdings[at].1)
    }

    /// The sum of `max(share, old_share)` of all unexpired holdings. An old share counts until the end
    /// of its grace. Saturates.
    pub fn used(&self, now: Micros) -> u64 {
        let used = |(_, holding): &(HolderId, Holding)| {
            let mut at_now = *holding;
            at_now.end_grace(now);
            if holding.expires > now { at_now.used() } else { 0 }
        };
        self.holdings.iter().map(used).fold(0, u64::saturating_add)
    }

    /// What [`used`](LedgerSnapshot::used) leaves of [`SHARES`].
    pub fn free(&self, now: Micros) -> u64 {
        SHARES.saturating_sub(self.used(now))
    }
}

#[cfg(test)]
mod tests;
