//! What a group knows of the ledger: the last snapshot, and holdings that the ledger lost.

use super::super::ledger::{HolderId, Holding, LedgerSnapshot};
use super::super::share::SHARES;
use crate::time::Micros;

/// Two estimates of another machine's clock differ by less.
pub(super) const CLOCK_SLACK: Micros = Micros::from_millis(250);

/// The last snapshot.
///
/// A holding ends by its expiry only, and its expiry only grows. If a snapshot breaks this, the ledger
/// lost writes, as Redis does when it restarts without its data or fails over to a replica. Its holders
/// still use their shares, so the last holding remains in the view until it expires or is renewed.
#[derive(Debug, Default)]
pub(super) struct LedgerView {
    snapshot: LedgerSnapshot,
    lost: Vec<(HolderId, Holding)>,
    /// When the snapshot was asked for; none before the first one.
    asked: Option<Micros>,
}

impl LedgerView {
    /// Takes a snapshot that was asked for at `asked`. The group itself restores its `own` holders.
    pub(super) fn take(
        &mut self,
        snapshot: LedgerSnapshot,
        own: impl Fn(HolderId) -> bool,
        asked: Micros,
        now: Micros,
    ) {
        let mut known = std::mem::take(&mut self.snapshot.holdings);
        known.append(&mut self.lost);
        known.retain(|(holder, holding)| {
            let stored = snapshot.get(*holder);
            let renewed = stored.is_some_and(|stored| stored.expires >= holding.expires);
            holding.expires > now && !renewed && !own(*holder)
        });
        self.lost = known;
        self.snapshot = snapshot;
        self.asked = Some(asked);
    }

    /// When the snapshot was asked for; none before the first one.
    pub(super) fn asked(&self) -> Option<Micros> {
        self.asked
    }

    /// All unexpired holdings, also lost ones. A holder may appear twice if the ledger has an earlier state.
    pub(super) fn holdings(&self, now: Micros) -> impl Iterator<Item = &(HolderId, Holding)> {
        let all = self.snapshot.holdings.iter().chain(&self.lost);
        all.filter(move |(_, holding)| holding.expires > now)
    }

    /// The unexpired holdings of this holder, as [`holdings`](LedgerView::holdings) has them.
    pub(super) fn holdings_of(
        &self,
        holder: HolderId,
        now: Micros,
    ) -> impl Iterator<Item = &Holding> {
        let lost = self.lost.iter().filter(move |(id, _)| *id == holder);
        let all = self.snapshot.get(holder).into_iter().chain(lost.map(|(_, holding)| holding));
        all.filter(move |holding| holding.expires > now)
    }

    /// Whether there is an unexpired holding of this holder.
    pub(super) fn has(&self, holder: HolderId, now: Micros) -> bool {
        self.holdings_of(holder, now).next().is_some()
    }

    /// The shares that no holder uses.
    pub(super) fn free(&self, now: Micros) -> u64 {
        let lost: u64 = self.lost.iter().map(|(_, holding)| used(holding, now)).sum();
        SHARES.saturating_sub(self.snapshot.used(now).saturating_add(lost))
    }

    /// What this holder uses by the last snapshot.
    pub(super) fn used_by(&self, holder: HolderId, now: Micros) -> u64 {
        self.snapshot.get(holder).map_or(0, |holding| used(holding, now))
    }

    /// Applies `convert` to every share.
    pub(super) fn convert(&mut self, convert: impl Fn(u64) -> u64) {
        for (_, holding) in self.snapshot.holdings.iter_mut().chain(&mut self.lost) {
            holding.share = convert(holding.share);
            holding.old_share = convert(holding.old_share);
        }
    }

    /// The next instant after `now` at which shares become free without a change.
    pub(super) fn next_free(&self, now: Micros) -> Option<Micros> {
        let ends = |(_, holding): &(HolderId, Holding)| [holding.old_until, holding.expires];
        self.holdings(now).flat_map(ends).filter(|end| *end > now).min()
    }
}

/// What a holding uses at `now`.
pub(super) fn used(holding: &Holding, now: Micros) -> u64 {
    if holding.expires <= now {
        0
    } else if holding.old_until > now {
        holding.share.max(holding.old_share)
    } else {
        holding.share
    }
}
