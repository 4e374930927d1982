//! When instances settle: the driver of the engine, around groups with their pace.

use super::network::CALL_TIMEOUT;
use super::world::{Call, Event, Fault, World};
use crate::quota::{GroupConfig, LedgerSnapshot, Quota, QuotaGroup, SettlementPace};
use crate::time::Micros;

/// How often the driver looks for due groups.
const DRIVE_PERIOD: Micros = Micros::from_millis(250);

/// When it looks after a new holder or a reply, with those of the time between.
const WAKE_PAUSE: Micros = Micros::from_millis(2);

/// A group, and its pauses.
#[derive(Debug)]
pub(super) struct PacedGroup {
    pub(super) group: QuotaGroup,
    pace: SettlementPace,
}

impl PacedGroup {
    pub(super) fn new(quota: Quota, config: GroupConfig) -> PacedGroup {
        PacedGroup { group: QuotaGroup::new(quota, config), pace: SettlementPace::default() }
    }
}

impl World {
    /// The tick of the driver.
    pub(super) fn drive(&mut self, instance: usize, epoch: u64) {
        if self.instances[instance].epoch != epoch {
            return;
        }
        self.settle_due(instance);
        self.after(DRIVE_PERIOD, Event::Drive { instance, epoch });
    }

    /// The driver looks before its next tick.
    pub(super) fn wake(&mut self, instance: usize) {
        let state = &mut self.instances[instance];
        if !std::mem::replace(&mut state.is_woken, true) {
            let epoch = state.epoch;
            self.after(WAKE_PAUSE, Event::Woken { instance, epoch });
        }
    }

    pub(super) fn woken(&mut self, instance: usize, epoch: u64) {
        if self.instances[instance].epoch == epoch {
            self.instances[instance].is_woken = false;
            self.settle_due(instance);
        }
    }

    fn settle_due(&mut self, instance: usize) {
        let local = self.local(instance);
        let groups = self.instances[instance].groups.iter_mut();
        let due = groups.filter_map(|(quota, PacedGroup { group, pace })| {
            pace.next(group, local, local).is_some_and(|next| next <= local).then_some(*quota)
        });
        let quotas: Vec<usize> = due.collect();
        quotas.into_iter().for_each(|quota| self.settle(instance, quota));
    }

    /// Settles a group that is due: by a call, or with its own ledger until nothing is left to settle.
    fn settle(&mut self, instance: usize, quota: usize) {
        let local = self.local(instance);
        let is_alone =
            self.setup.fault == Some(Fault::OwnLedger) && self.faults.cut_off.contains(&instance);
        let calls = self.setup.config.shared && !is_alone;
        let mut is_first = true;
        loop {
            let state = &mut self.instances[instance];
            let Some(PacedGroup { group, pace }) = state.groups.get_mut(&quota) else { return };
            let settlement = if std::mem::take(&mut is_first) {
                pace.settlement(group, local, local)
            } else {
                pace.further_settlement(group, local, local)
            };
            if calls && settlement.is_some() {
                pace.call(local);
            }
            let assignments = group.take_due_assignments();
            if group.is_empty() {
                state.groups.remove(&quota);
            }
            self.deliver(instance, quota, assignments);
            let Some(settlement) = settlement else { return };
            self.calls_made += 1;
            if calls {
                let call = self.calls_made;
                let times = self.faults.call(instance, self.now, &mut self.rng);
                let epoch = self.instances[instance].epoch;
                self.calls.insert(call, Call { instance, epoch, quota, sent_at: local });
                if let Some(run) = times.run {
                    let (settlement, reply) = (Box::new(settlement), times.reply);
                    self.at(run, Event::Run { call, quota, settlement, reply });
                }
                if times.reply.is_none() {
                    self.after(CALL_TIMEOUT, Event::Timeout { call });
                }
                return;
            }
            let state = &mut self.instances[instance];
            let snapshot = state.ledgers.entry(quota).or_default().settle(&settlement);
            let group = state.groups.get_mut(&quota).expect("it was there");
            group.pace.settled(snapshot.holdings.len(), local);
            group.group.settled(Some(&snapshot), local, local, false);
        }
    }

    /// The result of a call, or its timeout.
    pub(super) fn answered(&mut self, call: u64, snapshot: Option<&LedgerSnapshot>) {
        let Some(call) = self.calls.remove(&call) else { return };
        let Call { instance, epoch, quota, sent_at } = call;
        if self.instances[instance].epoch != epoch {
            return;
        }
        let local = self.local(instance);
        let state = &mut self.instances[instance];
        let Some(PacedGroup { group, pace }) = state.groups.get_mut(&quota) else { return };
        let is_ok = snapshot.is_some();
        if let Some(snapshot) = snapshot {
            pace.settled(snapshot.holdings.len(), local);
        }
        group.settled(snapshot, sent_at, local, self.setup.renew_without_ledger);
        let assignments = group.take_due_assignments();
        self.deliver(instance, quota, assignments);
        if is_ok {
            self.settle(instance, quota);
        }
        self.wake(instance);
    }
}
