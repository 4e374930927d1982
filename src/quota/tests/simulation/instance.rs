//! What instances do in the simulated world: the engine around the groups.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::driver::PacedGroup;
use super::world::{Event, Fault, Stream, Usage, World};
use crate::quota::{
    Assignment, DueAssignment, GroupConfig, HolderId, Ledger, Quota, QuotaGroup, SHARES,
};
use crate::time::Micros;

/// Who divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    /// The groups of weir.
    Groups,
    /// Every holder gets the whole quota, as a control.
    Whole,
}

/// One instance.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) running: bool,
    /// Counts processes.
    pub(super) epoch: u64,
    /// Its clock minus the true time, in microseconds.
    pub(super) skew: u64,
    pub(super) groups: BTreeMap<usize, PacedGroup>,
    /// The requests that it has as the limit of a quota.
    requests: HashMap<usize, u64>,
    /// Its own ledgers, if they are not shared.
    pub(super) ledgers: BTreeMap<usize, Ledger>,
    /// Whether its driver is about to look before its next tick.
    pub(super) is_woken: bool,
    /// The stream of a holder.
    streams: HashMap<HolderId, usize>,
    /// The names of open streams.
    names: HashSet<u64>,
    /// The names that an Envoy of another instance had too. The simulation is shorter than they are kept.
    contested: HashSet<u64>,
    /// The local callers of a holder.
    pub(super) locals: HashMap<HolderId, usize>,
    config: GroupConfig,
}

impl Instance {
    pub(super) fn new(skew: u64, config: GroupConfig) -> Instance {
        Instance {
            running: false,
            epoch: 0,
            skew,
            groups: BTreeMap::new(),
            requests: HashMap::new(),
            ledgers: BTreeMap::new(),
            is_woken: false,
            streams: HashMap::new(),
            names: HashSet::new(),
            contested: HashSet::new(),
            locals: HashMap::new(),
            config,
        }
    }

    /// The group of a quota.
    pub(super) fn group(&self, quota: usize) -> Option<&QuotaGroup> {
        self.groups.get(&quota).map(|paced| &paced.group)
    }

    /// Forgets all groups, as a control.
    pub(super) fn forget_groups(&mut self) {
        self.groups.clear();
    }

    pub(super) fn group_mut(&mut self, quota: usize) -> Option<&mut QuotaGroup> {
        self.groups.get_mut(&quota).map(|paced| &mut paced.group)
    }
}

impl World {
    /// The clock of an instance. It starts at an hour, so that skews and past instants fit.
    pub(super) fn local(&self, instance: usize) -> Micros {
        Micros(self.clock().0 + self.instances[instance].skew)
    }

    /// The process of an instance starts.
    pub(super) fn start(&mut self, instance: usize) {
        let started = self.local(instance);
        let state = &mut self.instances[instance];
        state.running = true;
        let mut config = self.setup.config;
        if self.setup.relearn && state.epoch > 0 {
            config.relearn_until = Micros(started.0 + config.ttl.0 + config.margin.0);
        }
        state.config = config;
        let epoch = state.epoch;
        self.at(self.now, Event::Drive { instance, epoch });
        self.join_local_callers(instance);
    }

    /// The process of an instance ends. Its Envoys notice it at once.
    pub(super) fn stop(&mut self, instance: usize, pause: Micros) {
        if self.setup.relearn {
            self.forget(pause);
        }
        self.end_local_callers(instance);
        let state = &mut self.instances[instance];
        state.running = false;
        state.epoch += 1;
        state.groups.clear();
        state.ledgers.clear();
        state.is_woken = false;
        state.streams.clear();
        state.names.clear();
        state.contested.clear();
        for envoy in 0..self.envoys.len() {
            let stream = self.envoys[envoy].stream;
            if stream.is_some_and(|stream| self.streams[stream].instance == instance) {
                self.envoys[envoy].stream = None;
                self.lose_stream(envoy);
                self.disturb(envoy);
            }
        }
        self.after(pause, Event::Start { instance });
    }

    /// An instance learns the limit of a quota.
    pub(super) fn learn(&mut self, instance: usize, quota: usize) {
        if self.setup.fault == Some(Fault::KeptLimit) {
            return;
        }
        let requests = self.quotas[quota].quota.requests;
        let state = &mut self.instances[instance];
        state.requests.insert(quota, requests);
        if let Some(group) = state.group_mut(quota) {
            let burst = self.quotas[quota].quota.burst;
            let window = self.quotas[quota].quota.window;
            group.set_quota(Quota { requests, window, burst });
        }
    }

    pub(super) fn deliver(
        &mut self,
        instance: usize,
        quota: usize,
        assignments: Vec<DueAssignment>,
    ) {
        for mut due in assignments {
            if self.setup.fault == Some(Fault::LongAssignments) {
                due.ttl = due.ttl.saturating_add(Micros::from_secs(30));
            }
            let Some(stream) = self.instances[instance].streams.get(&due.holder) else {
                self.assign_local(instance, quota, &due);
                continue;
            };
            let stream = *stream;
            self.messages += 1;
            let (sent, way) = (self.now, self.way(100_000));
            let envoy = self.streams[stream].envoy;
            self.quotas[quota].exceptions.late.send(envoy, stream, sent, &due);
            let arrives = self.arrival(stream, 1, way);
            self.at(arrives, Event::Assigned { stream, quota, sent, due });
        }
    }

    /// A report arrives.
    pub(super) fn reported(&mut self, stream: usize, usages: &[Usage]) {
        let (instance, epoch) = (self.streams[stream].instance, self.streams[stream].epoch);
        if self.instances[instance].epoch != epoch || !self.streams[stream].open {
            return;
        }
        if !std::mem::replace(&mut self.streams[stream].is_named, true)
            && let Some(name) = self.envoys[self.streams[stream].envoy].name
            && !self.instances[instance].contested.contains(&name)
            && self.instances[instance].names.insert(name)
        {
            self.streams[stream].name = Some(name);
            self.streams[stream].claimed = Some(name);
        }
        for usage in usages {
            match self.setup.division {
                Division::Groups => self.count(stream, instance, usage),
                Division::Whole => {
                    let quota = &self.quotas[usage.quota].quota;
                    let due = DueAssignment {
                        holder: HolderId([0, 0]),
                        assignment: Assignment::of(quota, SHARES),
                        // Another one for another limit.
                        generation: quota.requests as u32,
                        ttl: self.setup.config.ttl,
                        target: SHARES,
                    };
                    let arrives = self.arrival(stream, 1, Micros(1_000));
                    let (quota, sent) = (usage.quota, self.now);
                    self.at(arrives, Event::Assigned { stream, quota, sent, due });
                }
            }
        }
    }

    fn count(&mut self, stream: usize, instance: usize, usage: &Usage) {
        let local = self.local(instance);
        let known = self.streams[stream].holders.get(&usage.quota).copied();
        let holder = known.unwrap_or_else(|| self.join(stream, instance, usage));
        let group = self.instances[instance].group_mut(usage.quota);
        let taken_over =
            group.is_none_or(|group| group.report(holder, usage.asked, local).is_err());
        if taken_over && self.setup.fault == Some(Fault::KeptName) {
            return self.keep_name(instance, usage, holder);
        }
        if taken_over {
            self.remove_holder(stream, instance, usage.quota, holder);
            if let Some(name) = self.streams[stream].name.take() {
                self.contest(name, stream, usage.quota);
            }
            let holder = self.join(stream, instance, usage);
            let group = self.instances[instance].group_mut(usage.quota).expect("joined");
            group.report(holder, usage.asked, local).expect("a new holder");
        }
    }

    /// The instance of a stream notices that another one has its name too.
    fn contest(&mut self, name: u64, stream: usize, quota: usize) {
        let Stream { envoy, instance, .. } = self.streams[stream];
        if self.setup.fault != Some(Fault::ForgottenNames) {
            self.instances[instance].contested.insert(name);
        }
        if self.envoys[envoy].buckets[&quota].shares_name {
            // Those of the first quota count for all, because a stream has one name.
            let names = &mut self.quotas[0].exceptions.names;
            names.notice(name, instance, &mut self.figures);
        }
    }

    /// The holder appears again under its name, as a control.
    fn keep_name(&mut self, instance: usize, usage: &Usage, holder: HolderId) {
        let local = self.local(instance);
        let group = self.join_group(instance, usage.quota, holder);
        let _ = group.report(holder, usage.asked, local);
    }

    /// A bucket appears on a stream.
    fn join(&mut self, stream: usize, instance: usize, usage: &Usage) -> HolderId {
        let quota = usage.quota;
        let Stream { envoy, name, .. } = self.streams[stream];
        let own = name.map(|name| name << 32 | quota as u64);
        let own = own.unwrap_or_else(|| self.rng.next() | 1 << 63);
        let holder = HolderId([self.envoys[envoy].client, own]);
        let group = self.join_group(instance, quota, holder);
        if usage.elapsed > 0 {
            group.limit_by_earlier_use(holder, usage.passed, Micros::from_secs(usage.elapsed));
        }
        self.claim(holder, quota, stream, true);
        self.instances[instance].streams.insert(holder, stream);
        self.streams[stream].holders.insert(quota, holder);
        holder
    }

    /// Notes which instances have a holder that several Envoys name.
    fn claim(&mut self, holder: HolderId, quota: usize, stream: usize, is_there: bool) {
        let Stream { envoy, instance, .. } = self.streams[stream];
        if self.envoys[envoy].buckets[&quota].shares_name {
            let names = &mut self.quotas[quota].exceptions.names;
            names.claim(holder, instance, is_there, self.now);
        }
    }

    /// A holder joins the group of an instance.
    pub(super) fn join_group(
        &mut self,
        instance: usize,
        quota: usize,
        holder: HolderId,
    ) -> &mut QuotaGroup {
        self.wake(instance);
        let local = self.local(instance);
        let state = &mut self.instances[instance];
        let mut of_quota = self.quotas[quota].quota;
        of_quota.requests = *state.requests.get(&quota).unwrap_or(&of_quota.requests);
        let new = || PacedGroup::new(of_quota, state.config);
        let PacedGroup { group, .. } = state.groups.entry(quota).or_insert_with(new);
        group.join(holder, local);
        group
    }

    fn remove_holder(&mut self, stream: usize, instance: usize, quota: usize, holder: HolderId) {
        self.claim(holder, quota, stream, false);
        self.streams[stream].holders.remove(&quota);
        self.instances[instance].streams.remove(&holder);
        if let Some(group) = self.instances[instance].group_mut(quota) {
            group.leave(holder);
        }
    }

    /// An instance notices the end of a stream.
    pub(super) fn ended(&mut self, stream: usize) {
        let (instance, epoch) = (self.streams[stream].instance, self.streams[stream].epoch);
        if self.instances[instance].epoch != epoch || !self.streams[stream].open {
            return;
        }
        self.streams[stream].open = false;
        if let Some(name) = self.streams[stream].claimed.take() {
            self.instances[instance].names.remove(&name);
        }
        for (quota, holder) in self.streams[stream].holders.clone() {
            self.remove_holder(stream, instance, quota, holder);
        }
        self.disturb(self.streams[stream].envoy);
    }
}
