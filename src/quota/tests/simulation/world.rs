//! The simulated world: Envoys, instances, ledgers, and the messages between them, in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use super::envoy::SimEnvoy;
use super::instance::{Division, Instance};
use super::laws::{Figures, SAMPLE_PERIOD, SimQuota};
use super::network::{Faults, ReplicatedLedger};
use crate::quota::{DueAssignment, GroupConfig, HolderId, LedgerSnapshot, Settlement};
use crate::testing::Rng;
use crate::testing::simulated_bucket::SimBucket;
use crate::time::Micros;

/// What an Envoy reports of one bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) quota: usize,
    pub(super) asked: u64,
    pub(super) passed: u64,
    /// Whole seconds.
    pub(super) elapsed: u64,
}

/// A stream of an Envoy to an instance.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) envoy: usize,
    pub(super) instance: usize,
    /// The process of the instance.
    pub(super) epoch: u64,
    /// Whether the instance still has it.
    pub(super) open: bool,
    /// The instance name, if its first report found it free, until another instance has its holder.
    pub(super) name: Option<u64>,
    /// The name that no other stream of the instance may have, and whether there was a report.
    pub(super) claimed: Option<u64>,
    pub(super) is_named: bool,
    pub(super) holders: BTreeMap<usize, HolderId>,
    /// The last arrival on each side: messages keep their order.
    pub(super) arrivals: [Micros; 2],
}

/// A call to the ledger.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) instance: usize,
    pub(super) epoch: u64,
    pub(super) quota: usize,
    /// By the clock of the instance.
    pub(super) sent_at: Micros,
}

/// A change from outside.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Demand {
        envoy: usize,
        quota: usize,
        demand: f64,
    },
    /// The process of an Envoy starts again.
    Restart {
        envoy: usize,
    },
    /// The same, after 50 ms.
    Reopen {
        envoy: usize,
    },
    /// The same, and again after each `period`.
    CrashLoop {
        envoy: usize,
        period: Micros,
    },
    /// A stream ends. Its instance notices it after a time.
    Cut {
        envoy: usize,
        noticed: Micros,
    },
    /// The process of an instance ends, and another one starts after a time.
    Stop {
        instance: usize,
        pause: Micros,
    },
    Faults(Faults),
    /// All ledgers continue without their last writes.
    FailOver {
        lag: Micros,
    },
    /// All ledgers lose everything.
    Flush,
    /// Another limit; instance `i` learns it after `i` times the pause.
    Requests {
        quota: usize,
        requests: u64,
        pause: Micros,
    },
    /// This part of the messages needs up to five seconds.
    Slow {
        percent: u64,
    },
}

#[derive(Debug)]
pub(super) enum Event {
    Tick { envoy: usize, epoch: u64 },
    Report { stream: usize, usages: Vec<Usage> },
    Ended { stream: usize },
    Assigned { stream: usize, quota: usize, sent: Micros, due: DueAssignment },
    Expired { envoy: usize, quota: usize, serial: u64 },
    Drive { instance: usize, epoch: u64 },
    Woken { instance: usize, epoch: u64 },
    Run { call: u64, quota: usize, settlement: Box<Settlement>, reply: Option<Micros> },
    Reply { call: u64, snapshot: LedgerSnapshot },
    Timeout { call: u64 },
    Start { instance: usize },
    Learn { instance: usize, quota: usize },
    Sample,
    Act(Action),
}

struct Entry(Micros, u64, Event);

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.1 == other.1
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// What a control does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Instances that are cut off have their own ledger.
    OwnLedger,
    /// Instances forget what they saw in a ledger that loses everything.
    ForgottenView,
    /// Instances ignore that another one has a holder.
    KeptName,
    /// They forget it at the end of the stream that noticed it.
    ForgottenNames,
    /// Local callers use the whole quota.
    WholeForLocal,
    /// Instances learn no other limit.
    KeptLimit,
    /// Assignments are valid for longer than their holdings.
    LongAssignments,
}

/// How a world works.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) division: Division,
    pub(super) config: GroupConfig,
    /// Whether instances start with the relearn time.
    pub(super) relearn: bool,
    pub(super) renew_without_ledger: bool,
    pub(super) fault: Option<Fault>,
    /// Whether lost messages that lower a share are excused.
    pub(super) excuse: bool,
    /// Whether the exceptions that a later version may end are none.
    pub(super) strict: bool,
}

/// Everything.
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) now: Micros,
    pub(super) rng: Rng,
    pub(super) envoys: Vec<SimEnvoy>,
    pub(super) instances: Vec<Instance>,
    pub(super) quotas: Vec<SimQuota>,
    pub(super) ledgers: Vec<ReplicatedLedger>,
    pub(super) streams: Vec<Stream>,
    pub(super) calls: HashMap<u64, Call>,
    pub(super) calls_made: u64,
    pub(super) messages: u64,
    pub(super) faults: Faults,
    /// The percentage of the messages that are slow.
    pub(super) slow: u64,
    pub(super) figures: Figures,
    events: BinaryHeap<Reverse<Entry>>,
    count: u64,
}

impl World {
    pub(super) fn new(
        setup: Setup,
        rng: Rng,
        envoys: Vec<SimEnvoy>,
        instances: Vec<Instance>,
        quotas: Vec<SimQuota>,
        replicates: bool,
    ) -> World {
        let mut world = World {
            setup,
            now: Micros::ZERO,
            rng,
            envoys,
            instances,
            ledgers: quotas.iter().map(|_| ReplicatedLedger::new(replicates)).collect(),
            quotas,
            streams: Vec::new(),
            calls: HashMap::new(),
            calls_made: 0,
            messages: 0,
            faults: Faults::default(),
            slow: 0,
            figures: Figures::default(),
            events: BinaryHeap::new(),
            count: 0,
        };
        for envoy in 0..world.envoys.len() {
            let at = world.envoys[envoy].phase;
            world.at(at, Event::Tick { envoy, epoch: 0 });
        }
        for instance in 0..world.instances.len() {
            world.at(Micros(instance as u64 * 70_000), Event::Start { instance });
        }
        world.at(SAMPLE_PERIOD, Event::Sample);
        world
    }

    /// Adds an event.
    pub(super) fn at(&mut self, at: Micros, event: Event) {
        self.count += 1;
        self.events.push(Reverse(Entry(at.max(self.now), self.count, event)));
    }

    /// Adds an event after a time.
    pub(super) fn after(&mut self, pause: Micros, event: Event) {
        self.at(self.now.saturating_add(pause), event);
    }

    /// Runs until `end`.
    pub(super) fn run(&mut self, end: Micros) {
        while let Some(Reverse(Entry(at, _, event))) = self.events.pop() {
            if at > end {
                break;
            }
            self.now = at;
            self.handle(event);
        }
        for quota in &mut self.quotas {
            quota.end(&mut self.figures);
        }
        let buckets = self.envoys.iter().flat_map(|envoy| envoy.buckets.values());
        self.figures.by_fallback = buckets.map(|bucket| bucket.by_fallback).sum();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Tick { envoy, epoch } => self.tick(envoy, epoch),
            Event::Report { stream, usages } => self.reported(stream, &usages),
            Event::Ended { stream } => self.ended(stream),
            Event::Assigned { stream, quota, sent, due } => {
                self.assigned(stream, quota, sent, &due);
            }
            Event::Expired { envoy, quota, serial } => {
                self.change_bucket(envoy, quota, |bucket, now| {
                    if bucket.serial == serial {
                        bucket.expire(now);
                    }
                });
            }
            Event::Drive { instance, epoch } => self.drive(instance, epoch),
            Event::Woken { instance, epoch } => self.woken(instance, epoch),
            Event::Run { call, quota, settlement, reply } => {
                let snapshot = self.ledgers[quota].settle(&settlement, self.now);
                if let Some(reply) = reply {
                    self.at(reply, Event::Reply { call, snapshot });
                }
            }
            Event::Reply { call, snapshot } => self.answered(call, Some(&snapshot)),
            Event::Timeout { call } => self.answered(call, None),
            Event::Start { instance } => {
                self.start(instance);
                self.fault_everywhere();
            }
            Event::Learn { instance, quota } => self.learn(instance, quota),
            Event::Sample => self.sample(),
            Event::Act(action) => self.act(action),
        }
    }

    /// Changes a bucket, and judges the first law.
    pub(super) fn change_bucket<T>(
        &mut self,
        envoy: usize,
        quota: usize,
        change: impl FnOnce(&mut SimBucket, Micros) -> T,
    ) -> T {
        let now = self.now;
        let bucket = self.envoys[envoy].buckets.get_mut(&quota).expect("the quota of a bucket");
        self.quotas[quota].with(bucket, now, &mut self.figures, |bucket| change(bucket, now))
    }

    fn sample(&mut self) {
        if self.faults.is_active() || self.slow > 0 {
            let now = self.now;
            self.quotas.iter_mut().for_each(|quota| quota.served_from = now);
        }
        if !self.faults.cut_off.is_empty() || self.slow > 0 {
            self.fault_everywhere();
        }
        for quota in &mut self.quotas {
            let envoys = std::mem::take(&mut quota.envoys);
            let mut of_quota = Vec::with_capacity(envoys.len());
            let mut rest = self.envoys.as_mut_slice();
            let mut skipped = 0;
            for index in &envoys {
                let (envoy, behind) = std::mem::take(&mut rest)[*index - skipped..]
                    .split_first_mut()
                    .expect("ordered envoys");
                (rest, skipped) = (behind, *index + 1);
                let running = |home: usize| self.instances[home].running;
                let connected = envoy.stream.is_some() || envoy.home.is_some_and(running);
                of_quota.push((
                    *index,
                    connected,
                    envoy.buckets.get_mut(&quota.index).expect("a bucket"),
                ));
            }
            quota.sample(of_quota, self.now, &mut self.figures);
            quota.envoys = envoys;
        }
        self.after(SAMPLE_PERIOD, Event::Sample);
    }

    fn act(&mut self, action: Action) {
        let now = self.now;
        match action {
            Action::Demand { envoy, quota, demand } => {
                self.quotas[quota].change(envoy, now, &mut self.figures);
                self.change_bucket(envoy, quota, |bucket, now| {
                    bucket.advance(now);
                    bucket.demand = demand;
                });
                if let Some(instance) = self.home(envoy) {
                    self.join_local_callers(instance);
                }
            }
            Action::Restart { envoy } => {
                let pause = Micros(200_000 + self.rng.below(3_000_000));
                self.restart(envoy, pause);
            }
            Action::Reopen { envoy } => self.restart(envoy, Micros::from_millis(50)),
            Action::CrashLoop { envoy, period } => {
                self.restart(envoy, Micros::from_millis(50));
                for quota in self.envoys[envoy].buckets.keys() {
                    self.quotas[*quota].crashing.get_or_insert((envoy, now));
                }
                self.after(period, Event::Act(action));
            }
            Action::Cut { envoy, noticed } => self.cut(envoy, noticed),
            Action::Stop { instance, pause } => self.stop(instance, pause),
            Action::Faults(faults) => {
                let before = std::mem::replace(&mut self.faults, faults);
                self.note_cut_offs(&before.cut_off);
                self.fault_everywhere();
            }
            Action::FailOver { .. } | Action::Flush => self.lose_writes(&action),
            Action::Slow { percent } => {
                self.slow = percent;
                self.fault_everywhere();
            }
            Action::Requests { quota, requests, pause } => {
                let all = Micros(pause.0 * self.instances.len() as u64);
                self.quotas[quota].set_requests(requests, now, now.saturating_add(all));
                for instance in 0..self.instances.len() {
                    let pause = Micros(pause.0 * instance as u64);
                    self.after(pause, Event::Learn { instance, quota });
                }
            }
        }
    }

    pub(super) fn fault_everywhere(&mut self) {
        for quota in &mut self.quotas {
            quota.fault(self.now);
            quota.departed = self.now;
        }
    }
}
