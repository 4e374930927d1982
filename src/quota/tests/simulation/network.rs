//! The shared ledgers, and what can fail between them and the instances.

use std::collections::VecDeque;

use crate::quota::{Ledger, LedgerSnapshot, Quota, Settlement};
use crate::testing::Rng;
use crate::time::Micros;

/// A ledger, and a replica that is some settlements behind.
#[derive(Debug, Default)]
pub(super) struct ReplicatedLedger {
    primary: Ledger,
    replica: Ledger,
    pending: VecDeque<(Micros, Settlement)>,
    replicates: bool,
}

impl ReplicatedLedger {
    pub(super) fn new(replicates: bool) -> ReplicatedLedger {
        ReplicatedLedger { replicates, ..ReplicatedLedger::default() }
    }

    pub(super) fn settle(&mut self, settlement: &Settlement, now: Micros) -> LedgerSnapshot {
        if self.replicates {
            self.pending.push_back((now, settlement.clone()));
        }
        self.primary.settle(settlement)
    }

    /// All holdings of the primary.
    pub(super) fn read(&mut self, quota: &Quota, now: Micros) -> LedgerSnapshot {
        let Quota { requests, window, .. } = *quota;
        let (grace, changes) = (Micros::ZERO, Vec::new());
        self.primary.settle(&Settlement { now, requests, window, grace, changes })
    }

    /// The replica becomes the primary without the settlements of the last `lag`.
    pub(super) fn fail_over(&mut self, lag: Micros, now: Micros) {
        while let Some((at, settlement)) = self.pending.pop_front() {
            if at.saturating_add(lag) <= now {
                self.replica.settle(&settlement);
            }
        }
        self.primary = std::mem::take(&mut self.replica);
        self.replicates = false;
    }

    /// All data is lost.
    pub(super) fn flush(&mut self) {
        *self = ReplicatedLedger::default();
    }
}

/// Faults on the way to the ledger, in percent of the calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) lost_requests: u64,
    pub(super) lost_replies: u64,
    /// Requests that are run after the timeout of their caller.
    pub(super) late_requests: u64,
    /// Instances without a connection to the ledger.
    pub(super) cut_off: Vec<usize>,
}

/// After this time a call counts as failed.
pub(super) const CALL_TIMEOUT: Micros = Micros::from_millis(150);

/// The way of one call: when it is run, and when its reply arrives.
pub(super) struct CallTimes {
    pub(super) run: Option<Micros>,
    pub(super) reply: Option<Micros>,
}

impl Faults {
    /// Whether a call may fail.
    pub(super) fn is_active(&self) -> bool {
        let Faults { lost_requests, lost_replies, late_requests, cut_off } = self;
        lost_requests + lost_replies + late_requests > 0 || !cut_off.is_empty()
    }

    /// The times of a call of `instance` at `now`.
    pub(super) fn call(&self, instance: usize, now: Micros, rng: &mut Rng) -> CallTimes {
        let mut way = || Micros(200 + rng.below(20_000));
        let (there, back) = (way(), way());
        if self.cut_off.contains(&instance) || rng.chance(self.lost_requests) {
            return CallTimes { run: None, reply: None };
        }
        if rng.chance(self.late_requests) {
            let late = CALL_TIMEOUT.saturating_add(Micros(rng.below(3_000_000)));
            return CallTimes { run: Some(now.saturating_add(late)), reply: None };
        }
        let run = now.saturating_add(there);
        let reply = (!rng.chance(self.lost_replies)).then(|| run.saturating_add(back));
        CallTimes { run: Some(run), reply }
    }
}
