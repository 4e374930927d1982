//! Runs a schedule in virtual time on one thread, and records what happens.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{sleep, sleep_until};

use super::history::{Decided, Disturbance, History, RequestKind, RequestRecord};
use super::instance::{Instance, Part, key_of};
use super::recording_store::RecordedCall;
use super::rules;
use super::schedule::{Event, EventKind, FollowUp, Schedule};
use crate::decision::{Code, DecisionReason, Verdict};
use crate::limit::Algorithm;
use crate::testing::lock;
use crate::testing::network::Network;
use crate::testing::simulated_node::{Applied, SimulatedNode};
use crate::time::Micros;

/// Milliseconds after the last event in which the requests and calls end.
const REST: u64 = 8_000;

/// The instances and their surroundings.
struct Simulation {
    schedule: Schedule,
    network: Arc<Network>,
    instances: Vec<Arc<Instance>>,
    /// Whether an instance still takes requests.
    serves: Vec<AtomicBool>,
    /// Requests in progress, per instance.
    busy: Vec<AtomicUsize>,
    variant: AtomicUsize,
    requests: Mutex<Vec<RequestRecord>>,
    disturbances: Mutex<Vec<(Micros, Disturbance)>>,
}

/// Runs `schedule` from its first event until all instances have ended in order.
pub(super) fn run(schedule: &Schedule) -> History {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    runtime.block_on(async {
        let simulation = Simulation::start(schedule.clone());
        for event in &schedule.events {
            sleep_until(simulation.network.at(event.at)).await;
            simulation.begin(event);
        }
        simulation.end().await
    })
}

impl Simulation {
    fn start(schedule: Schedule) -> Arc<Simulation> {
        let epoch = Micros(schedule.epoch);
        let Schedule { seed, nodes, conditions, .. } = schedule;
        let network = Network::new(seed ^ 0xa5a5, epoch, nodes, conditions);
        let instances: Vec<_> = (schedule.offsets.iter().enumerate())
            .map(|(number, &offset)| {
                Instance::start(&network, number, offset, schedule.timeout, schedule.period)
            })
            .collect();
        Arc::new(Simulation {
            serves: instances.iter().map(|_| AtomicBool::new(true)).collect(),
            busy: instances.iter().map(|_| AtomicUsize::new(0)).collect(),
            variant: AtomicUsize::new(schedule.variant),
            requests: Mutex::default(),
            disturbances: Mutex::default(),
            schedule,
            network,
            instances,
        })
    }

    fn record(&self, disturbance: Disturbance) {
        lock(&self.disturbances).push((self.network.now(), disturbance));
    }

    fn begin(self: &Arc<Self>, event: &Event) {
        let simulation = self.clone();
        match event.what.clone() {
            EventKind::Request { instance, parts, then } => {
                tokio::spawn(async move { simulation.request(instance, &parts, then).await });
            }
            EventKind::Reload { variant } => {
                self.variant.store(variant, Ordering::Relaxed);
                self.record(Disturbance::Reload(variant));
            }
            EventKind::Delete { instance, counter } => {
                tokio::spawn(async move { simulation.delete(instance, counter).await });
            }
            EventKind::Conditions { node, conditions } => {
                self.network.set_conditions(node, conditions);
                self.record(Disturbance::Conditions(node, conditions));
            }
            EventKind::Down { node, down } => {
                self.network.set_down(node, down);
                self.record(Disturbance::Down(node, down));
            }
            EventKind::Stalled { node, stalled } => {
                self.network.set_stalled(node, stalled);
                self.record(Disturbance::Stalled(node, stalled));
            }
            EventKind::Drain { instance } => {
                tokio::spawn(async move { simulation.drain(instance).await });
            }
        }
    }

    /// The instance that serves a request to `wanted`: that one, or the next that still serves.
    fn serving(&self, wanted: usize) -> Option<usize> {
        let count = self.instances.len();
        let candidates = (0..count).map(|step| (wanted + step) % count);
        candidates.into_iter().find(|&index| self.serves[index].load(Ordering::Relaxed))
    }

    async fn request(self: &Arc<Self>, wanted: usize, parts: &[(usize, u64)], then: FollowUp) {
        let takes: Vec<_> = parts.iter().map(|&(counter, hits)| (counter, hits as i64)).collect();
        let Some((ids, verdict)) = self.check(wanted, &takes, None).await else { return };
        if verdict.code == Code::OverLimit {
            return;
        }
        let lease = verdict
            .metadata
            .as_ref()
            .and_then(|metadata| Some(metadata.get("lease")?["id"].as_str()?.to_owned()));
        if let Some(rollback) = verdict.rollback {
            rollback.commit();
        }
        let passed = lock(&self.requests)[ids[0]].passed() > 0;
        match then {
            FollowUp::Nothing => {}
            FollowUp::Refund { after, instance } if passed => {
                sleep(Duration::from_millis(after)).await;
                let (counter, hits) = takes[0];
                self.check(instance, &[(counter, -hits)], None).await;
            }
            FollowUp::Close { after, instance, hits } if passed => {
                let Some(lease) = lease else { return };
                sleep(Duration::from_millis(after)).await;
                // The rules may reserve for several counters under one lease.
                let (counter, taken) = takes[0];
                let reserves = self.schedule.counters[counter].reserves;
                let hits = if reserves { hits as i64 } else { taken };
                self.check(instance, &[(counter, hits)], Some((lease, ids[0]))).await;
            }
            FollowUp::Refund { .. } | FollowUp::Close { .. } => {}
        }
    }

    /// One request: its records, and its verdict. `None` if no instance serves.
    async fn check(
        &self,
        wanted: usize,
        takes: &[(usize, i64)],
        lease: Option<(String, usize)>,
    ) -> Option<(Vec<usize>, Verdict)> {
        let instance = self.serving(wanted)?;
        self.busy[instance].fetch_add(1, Ordering::Relaxed);
        let variant = self.variant.load(Ordering::Relaxed);
        let (rules, begun) = (rules::rules(variant), self.network.now());
        let ids: Vec<usize> = {
            let mut requests = lock(&self.requests);
            let first = requests.len();
            for &(counter, hits) in takes {
                let kind = match &lease {
                    Some((_, opened)) => RequestKind::Closes(*opened),
                    None => RequestKind::Hits,
                };
                let decided = Decided::Pending;
                let end = begun;
                requests.push(RequestRecord { instance, counter, hits, kind, begun, end, decided });
            }
            (first..requests.len()).collect()
        };
        let counters = &self.schedule.counters;
        let names: Vec<String> = takes.iter().map(|&(index, _)| counters[index].name()).collect();
        let lease = lease.as_ref().map(|(id, _)| id.as_str());
        let parts: Vec<Part<'_>> =
            names.iter().zip(takes).map(|(name, &(_, hits))| Part { name, hits, lease }).collect();
        let domain = counters[takes[0].0].domain();
        let verdict = self.instances[instance].check(&rules, domain, &parts).await;
        let end = self.network.now();
        let mut requests = lock(&self.requests);
        for (&id, status) in ids.iter().zip(&verdict.statuses) {
            let counter = counters[requests[id].counter];
            // A denied request gives back its slots, and in some domains its hits.
            let slots = counter.algorithm == Algorithm::Concurrency;
            let freed = verdict.code == Code::OverLimit && (counter.free || slots);
            requests[id].end = end;
            requests[id].decided = match status.reason {
                DecisionReason::Counted { decision, .. } if decision.allowed && freed => {
                    Decided::Freed
                }
                DecisionReason::Counted { decision, .. } if decision.allowed => Decided::Passed,
                DecisionReason::Counted { .. } => Decided::Denied,
                DecisionReason::Fallback { error, .. } => Decided::Failed(error),
                _ => Decided::Pending,
            };
        }
        drop(requests);
        self.busy[instance].fetch_sub(1, Ordering::Relaxed);
        Some((ids, verdict))
    }

    async fn delete(&self, wanted: usize, counter: usize) {
        let Some(instance) = self.serving(wanted) else { return };
        let counter = self.schedule.counters[counter];
        let rules = rules::rules(self.variant.load(Ordering::Relaxed));
        self.record(Disturbance::Delete(instance));
        self.instances[instance].delete(&rules, counter.domain(), &counter.name()).await;
    }

    /// Ends one instance: it takes no more requests, answers those in progress, and stops.
    async fn drain(&self, instance: usize) {
        if !self.serves[instance].swap(false, Ordering::Relaxed) {
            return;
        }
        self.record(Disturbance::Drain(instance));
        while self.busy[instance].load(Ordering::Relaxed) > 0 {
            sleep(Duration::from_millis(1)).await;
        }
        self.instances[instance].drain().await;
        self.record(Disturbance::Drained(instance));
    }

    /// Waits for all requests, ends all instances, and collects the records.
    async fn end(self: Arc<Self>) -> History {
        // Calls in flight and the last refunds.
        sleep(Duration::from_millis(1_300)).await;
        while self.busy.iter().any(|busy| busy.load(Ordering::Relaxed) > 0) {
            sleep(Duration::from_millis(100)).await;
        }
        for instance in 0..self.instances.len() {
            self.drain(instance).await;
        }
        sleep(Duration::from_millis(REST)).await;
        let rules = rules::rules(self.schedule.variant);
        let keys = (self.schedule.counters.iter())
            .map(|counter| key_of(&rules, counter.domain(), &counter.name()).expect("a rule"))
            .collect();
        let left_over = self.instances.iter().map(|instance| {
            let modes = instance.modes();
            (instance.in_flight(), modes.synced().replicas())
        });
        let left_over = left_over.collect();
        let calls: Vec<RecordedCall> =
            self.instances.iter().flat_map(|instance| instance.store().calls()).collect();
        let detached = self.instances.iter().flat_map(|instance| instance.simulated_store().lost());
        let lost = calls.iter().filter_map(RecordedCall::lost).chain(detached).collect();
        let errors =
            self.instances.iter().map(|instance| instance.simulated_store().worst_estimate());
        let clock_error = errors.max().unwrap_or_default();
        let nodes: Vec<SimulatedNode> = (0..self.network.nodes())
            .map(|node| std::mem::take(&mut *self.network.node(node)))
            .collect();
        let mut applied: Vec<Applied> =
            nodes.iter().flat_map(|node| node.applied.iter().cloned()).collect();
        applied.sort_by_key(|one| one.at);
        History {
            keys,
            requests: std::mem::take(&mut *lock(&self.requests)),
            applied,
            calls,
            lost,
            disturbances: std::mem::take(&mut *lock(&self.disturbances)),
            left_over,
            clock_error,
            end: self.network.now(),
            nodes,
        }
    }
}
