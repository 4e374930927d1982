//! One instance: the limiter of production over simulated connections, with its background jobs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::recording_store::RecordingStore;
use crate::decision::Verdict;
use crate::descriptor::{Descriptor, Entry, Request};
use crate::key::{CounterKey, KeySeed};
use crate::limiter::{Backend, Limiter};
use crate::modes::Modes;
use crate::rules::RuleSet;
use crate::settings::ResponseSettings;
use crate::store::NodeId;
use crate::testing::lock;
use crate::testing::network::{LocalClock, Network};
use crate::testing::simulated_store::SimulatedStore;
use crate::time::Clock;

/// Clock measurements right after connecting.
const FIRST_SAMPLES: usize = 3;

/// Interval of clock measurements.
const CLOCK_INTERVAL: Duration = Duration::from_secs(2);

/// A running instance.
pub(super) struct Instance {
    limiter: Limiter<RecordingStore>,
    clock: LocalClock,
    ends: AtomicBool,
    background: Mutex<Option<Background>>,
}

/// The background job of the modes: its stop signal, and its end.
struct Background {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// One descriptor of a request: the key of the rule, its hits, and the lease that it closes.
pub(super) struct Part<'a> {
    pub(super) name: &'a str,
    pub(super) hits: i64,
    pub(super) lease: Option<&'a str>,
}

impl Instance {
    /// Starts an instance whose clock is `ahead` microseconds ahead of the nodes.
    pub(super) fn start(
        network: &Arc<Network>,
        number: usize,
        ahead: i64,
        timeout: u64,
        period: u64,
    ) -> Arc<Instance> {
        let clock = LocalClock::new(network, ahead);
        let simulated = SimulatedStore::new(network, number, &clock);
        for _ in 0..FIRST_SAMPLES {
            simulated.measure_at_once();
        }
        let timeout = Duration::from_millis(timeout);
        let store = RecordingStore::new(simulated, clock.clone(), number, timeout);
        let backend = Backend::Redis(Modes::small(store));
        let limiter = Limiter::new(backend, KeySeed::fixed([1, 2]), ResponseSettings::default());
        let (ends, background) = (AtomicBool::new(false), Mutex::default());
        let instance = Arc::new(Instance { limiter, clock, ends, background });
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run_modes(instance.clone(), stopped, period));
        *lock(&instance.background) = Some(Background { stop, task });
        tokio::spawn(measure_clocks(instance.clone()));
        instance
    }

    /// The modes, for the laws about what an instance keeps.
    pub(super) fn modes(&self) -> &Modes<RecordingStore> {
        self.limiter.backend().modes().expect("the counters are in Redis")
    }

    /// The store of the instance.
    pub(super) fn store(&self) -> &RecordingStore {
        self.modes().store()
    }

    /// The simulated store of the instance.
    pub(super) fn simulated_store(&self) -> &SimulatedStore {
        self.store().guarded().store()
    }

    /// Calls in flight to all nodes, as the guard counts them.
    pub(super) fn in_flight(&self) -> usize {
        let nodes = 0..self.simulated_store().network().nodes() as u32;
        nodes.map(|node| self.store().guarded().snapshot(NodeId(node)).in_flight).sum()
    }

    /// Checks a request.
    pub(super) async fn check(&self, rules: &RuleSet, domain: &str, parts: &[Part<'_>]) -> Verdict {
        let entries: Vec<Vec<Entry<'_>>> = parts
            .iter()
            .map(|part| {
                let lease = part.lease.map(|value| Entry { key: "lease", value });
                std::iter::once(Entry { key: part.name, value: "" }).chain(lease).collect()
            })
            .collect();
        let descriptors: Vec<Descriptor<'_>> = parts
            .iter()
            .zip(&entries)
            .map(|(part, entries)| Descriptor {
                entries,
                limit: None,
                hits_addend: Some(part.hits.unsigned_abs()),
                is_negative_hits: part.hits < 0,
            })
            .collect();
        let request = Request {
            domain,
            descriptors: &descriptors,
            hits_addend: 0,
            timeout: None,
            trace: Default::default(),
            must_decide: None,
        };
        self.limiter.check(rules, &request, self.clock.now()).await
    }

    /// Deletes the counter of a rule.
    pub(super) async fn delete(&self, rules: &RuleSet, domain: &str, name: &str) {
        let counter = self.limiter.counter(rules, domain, &[Entry { key: name, value: "" }]);
        if let Ok(counter) = counter {
            // An error leaves the counter, as an operator would see.
            let _ = self.limiter.delete(&counter).await;
        }
    }

    /// Ends the instance in order: the job stops, and the modes send what they have.
    pub(super) async fn drain(&self) {
        let background = lock(&self.background).take();
        if let Some(Background { stop, task }) = background {
            self.ends.store(true, Ordering::Relaxed);
            drop(stop);
            task.await.expect("the background job does not panic");
        }
    }
}

/// The key of a counter's rule.
pub(super) fn key_of(rules: &RuleSet, domain: &str, name: &str) -> Option<CounterKey> {
    let entries = [Entry { key: name, value: "" }];
    let crate::rules::Found::Rule(rule) = rules.find(domain, &entries) else { return None };
    Some(rule.key(&KeySeed::fixed([1, 2]), &entries))
}

/// The job of `src/app/background.rs`, with its shutdown.
async fn run_modes(instance: Arc<Instance>, stopped: oneshot::Receiver<()>, period: u64) {
    let stop = async { drop(stopped.await) };
    instance.modes().run(&instance.clock, Duration::from_millis(period), stop).await;
}

/// The measurements of `src/store/redis/discovery.rs`.
async fn measure_clocks(instance: Arc<Instance>) {
    while !instance.ends.load(Ordering::Relaxed) {
        sleep(CLOCK_INTERVAL).await;
        for node in 0..instance.simulated_store().network().nodes() {
            instance.simulated_store().measure(node).await;
        }
    }
}
