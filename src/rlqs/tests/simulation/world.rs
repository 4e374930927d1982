//! The simulated world: instances, and what Envoys and callers use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::instance::{Instance, SimClock};
use super::judge::{Figures, Judge};
use super::{Fault, SimInstant};
use crate::quota::{Assignment, DueAssignment, HolderId, Quota, SHARES};
use crate::testing::simulated_bucket::SimBucket;
use crate::testing::{Rng, lock};
use crate::time::{Clock, Micros};

/// The time between two samples.
pub(super) const SAMPLE_PERIOD: Micros = Micros::from_millis(250);

/// What a report says about a bucket: its value, allowed and denied requests, and whole seconds.
type Usage = (String, u64, u64, u64);

/// Everything.
pub(super) struct World {
    pub(super) clock: SimClock,
    pub(super) instances: Vec<Instance>,
    pub(super) state: Mutex<State>,
    pub(super) fault: Option<Fault>,
    /// Whether all Envoys use the first instance.
    envoys_at_first: bool,
    /// Of each Envoy: its stream ends.
    cuts: Vec<Notify>,
}

/// What changes.
pub(super) struct State {
    pub(super) rng: Rng,
    /// The buckets of each Envoy, by value.
    pub(super) envoys: Vec<BTreeMap<String, SimBucket>>,
    /// By value.
    pub(super) judges: BTreeMap<String, Judge>,
    pub(super) figures: Figures,
}

impl World {
    pub(super) fn new(
        clock: SimClock,
        instances: Vec<Instance>,
        state: State,
        fault: Option<Fault>,
        envoys_at_first: bool,
    ) -> Arc<World> {
        let cuts = state.envoys.iter().map(|_| Notify::new()).collect();
        let state = Mutex::new(state);
        Arc::new(World { clock, instances, state, fault, envoys_at_first, cuts })
    }

    pub(super) fn now(&self) -> Micros {
        self.clock.now()
    }

    /// The instance of an Envoy: a running one with RLQS.
    pub(super) fn instance_of(&self, envoy: usize) -> Option<usize> {
        let all = 0..if self.envoys_at_first { 1 } else { self.instances.len() };
        let running: Vec<usize> = all.filter(|one| self.instances[*one].serves_rlqs()).collect();
        // Envoys are spread over all instances.
        (!running.is_empty()).then(|| running[envoy % running.len()])
    }

    /// A random time, up to a number of milliseconds.
    pub(super) fn way(&self, slowest: u64) -> Duration {
        Duration::from_millis(lock(&self.state).rng.below(slowest))
    }

    /// What an Envoy reports.
    pub(super) fn usages(&self, envoy: usize) -> Vec<Usage> {
        let now = self.now();
        let mut state = lock(&self.state);
        let usage = |(value, bucket): (&String, &mut SimBucket)| {
            let before = bucket.reported;
            let (asked, passed) = bucket.report(now);
            let elapsed = before.map_or(0, |before| now.saturating_sub(before).0 / 1_000_000);
            let asked = if before.is_none() { 1 } else { asked };
            (value.clone(), passed.min(asked), asked.saturating_sub(passed), elapsed)
        };
        state.envoys[envoy].iter_mut().map(usage).collect()
    }

    /// The stream of an Envoy has ended.
    pub(super) fn lost_stream(&self, envoy: usize) {
        for bucket in lock(&self.state).envoys[envoy].values_mut() {
            bucket.lost_stream = true;
        }
    }

    /// Completes when the stream of an Envoy is cut.
    pub(super) async fn stream_ends(&self, envoy: usize) {
        self.cuts[envoy].notified().await;
    }

    /// The process of an Envoy starts again.
    pub(super) fn restart(&self, envoy: usize) {
        let now = self.now();
        let mut state = lock(&self.state);
        let values: Vec<String> = state.envoys[envoy].keys().cloned().collect();
        for value in values {
            state.change(envoy, &value, now, |bucket| bucket.restart(now));
        }
        self.cuts[envoy].notify_waiters();
    }

    /// An Envoy gets an assignment, until it expires.
    pub(super) fn assign(
        world: &Arc<World>,
        envoy: usize,
        instance: usize,
        value: &str,
        due: DueAssignment,
    ) {
        let now = world.now();
        let mut state = lock(&world.state);
        let minted = state.change(envoy, value, now, |bucket| bucket.assign(&due, instance, now));
        state.judge(value).mint(minted);
        let serial = state.envoys[envoy][value].serial;
        let (world, value) = (world.clone(), value.to_owned());
        tokio::spawn(async move {
            sleep(Duration::from_micros(due.ttl.0)).await;
            let now = world.now();
            let mut state = lock(&world.state);
            if state.envoys[envoy][&value].serial == serial {
                state.change(envoy, &value, now, |bucket| bucket.expire(now));
            }
        });
    }

    /// Whether every Envoy gets everything, as a control.
    pub(super) fn has_fault_full(&self) -> bool {
        self.fault == Some(Fault::FullShares)
    }

    /// An Envoy gets everything, as a control.
    pub(super) fn assign_everything(self: &Arc<Self>, envoy: usize, instance: usize, value: &str) {
        let quota = lock(&self.state).judge(value).quota;
        let (assignment, ttl) = (Assignment::of(&quota, SHARES), Micros::from_secs(12));
        let holder = HolderId([0, 0]);
        let due = DueAssignment { holder, assignment, generation: 1, ttl, target: SHARES };
        World::assign(self, envoy, instance, value, due);
    }

    /// Sends the calls of an instance for a value: `demand` hits per second, in calls of `hits`, from one
    /// instant to another.
    pub(super) async fn call(
        self: Arc<World>,
        instance: usize,
        value: &'static str,
        (demand, hits): (f64, u64),
        (from, until): (SimInstant, SimInstant),
    ) {
        /// The time between two calls at least.
        const STEP: Duration = Duration::from_millis(10);
        tokio::time::sleep_until(from).await;
        let mut owed = 0.0;
        while SimInstant::now() < until {
            owed += demand * STEP.as_secs_f64();
            while owed >= hits as f64 {
                owed -= hits as f64;
                let world = self.clone();
                tokio::spawn(async move {
                    let asked = world.now();
                    let result = world.instances[instance].call(value, hits).await;
                    let Some(allowed) = result else { return };
                    let allowed = match world.fault {
                        Some(Fault::AllCallsPass) => true,
                        Some(Fault::NoCallPasses) => false,
                        _ => allowed,
                    };
                    let now = world.now();
                    let mut state = lock(&world.state);
                    let State { judges, figures, .. } = &mut *state;
                    let judge = judges.get_mut(value).expect("a value");
                    judge.called(instance, hits, allowed, asked, now, figures);
                });
            }
            sleep(STEP).await;
        }
    }

    /// Takes samples, and judges them, until `end`.
    pub(super) async fn sample(self: Arc<World>, end: SimInstant) {
        while SimInstant::now() < end {
            sleep(Duration::from_micros(SAMPLE_PERIOD.0)).await;
            let now = self.now();
            let mut state = lock(&self.state);
            let State { envoys, judges, figures, .. } = &mut *state;
            for (value, judge) in judges {
                let buckets = envoys.iter_mut().filter_map(|envoy| envoy.get_mut(value));
                judge.sample(buckets, now, figures);
            }
        }
    }
}

impl State {
    /// The judge of a value.
    pub(super) fn judge(&mut self, value: &str) -> &mut Judge {
        self.judges.get_mut(value).expect("a value")
    }

    /// Changes a bucket, and judges the sum of the rates.
    fn change<T>(
        &mut self,
        envoy: usize,
        value: &str,
        now: Micros,
        change: impl FnOnce(&mut SimBucket) -> T,
    ) -> T {
        let bucket = self.envoys[envoy].get_mut(value).expect("a bucket");
        let result = change(bucket);
        let rates = self.envoys.iter().filter_map(|envoy| envoy.get(value)).map(SimBucket::rate);
        let sum = rates.sum();
        let judge = self.judges.get_mut(value).expect("a value");
        judge.rates(sum, now, &mut self.figures);
        result
    }

    /// An Envoy deletes a bucket.
    pub(super) fn abandon(&mut self, envoy: usize, value: &str, now: Micros) {
        self.change(envoy, value, now, |bucket| bucket.restart(now));
    }

    /// The quotas have this limit, in all rules.
    pub(super) fn new(
        seed: u64,
        quota: Quota,
        envoys: Vec<BTreeMap<String, SimBucket>>,
        values: &[&str],
    ) -> State {
        let judges = values.iter().map(|value| ((*value).to_owned(), Judge::new(quota))).collect();
        State { rng: Rng::new(seed), envoys, judges, figures: Figures::default() }
    }
}
