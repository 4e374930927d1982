//! Shares of another quota whose holders come from there, until the ledger has them.

use std::collections::BTreeSet;

use super::super::ledger::{Change, HolderId};

/// Shares that the next settlement writes into the ledger, in the order in which they were reserved.
#[derive(Debug, Default)]
pub(super) struct ReservedShares {
    changes: Vec<Change>,
    /// The holders of `changes`. Thousands of holders may move one by one, and each asks for its own.
    holders: BTreeSet<HolderId>,
    /// The number of changes in the settlement in flight.
    sent: usize,
}

impl ReservedShares {
    /// Adds the share of a holder that has none here.
    pub(super) fn add(&mut self, change: Change) {
        self.holders.insert(change.holder);
        self.changes.push(change);
    }

    /// Whether it has a share of this holder.
    pub(super) fn has(&self, holder: HolderId) -> bool {
        self.holders.contains(&holder)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The sum of the shares.
    pub(super) fn sum(&self) -> u64 {
        self.changes.iter().fold(0, |sum: u64, change| sum.saturating_add(change.share))
    }

    /// The changes of a settlement.
    pub(super) fn send(&mut self) -> Vec<Change> {
        self.sent = self.changes.len();
        self.changes.clone()
    }

    /// Removes what was sent: the ledger has it.
    pub(super) fn end_sent(&mut self) {
        for change in self.changes.drain(..std::mem::take(&mut self.sent)) {
            self.holders.remove(&change.holder);
        }
    }

    /// Applies `convert` to every share.
    pub(super) fn convert(&mut self, convert: impl Fn(u64) -> u64) {
        self.changes.iter_mut().for_each(|one| one.convert(&convert));
    }
}
