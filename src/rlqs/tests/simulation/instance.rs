//! An instance of weir: the limiter, the engine of RLQS and its driver, as in production.

use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::redis::SimConnection;
use super::{TestRuleSet, rule_set};
use crate::decision::Code;
use crate::descriptor::{Descriptor, Entry, Request};
use crate::key::KeySeed;
use crate::limiter::{Backend, Limiter};
use crate::modes::Modes;
use crate::rlqs::driver::{exchange_rules, run_always};
use crate::rlqs::{QuotaEngine, RlqsConfig, SharedLedger};
use crate::settings::ResponseSettings;
use crate::store::MemoryStore;
use crate::testing::lock;
use crate::time::{Clock, Micros};

/// A clock that shows the virtual time.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimClock(pub(super) Instant);

impl Clock for SimClock {
    fn now(&self) -> Micros {
        let elapsed = u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX);
        Micros::from_secs(3_600).saturating_add(Micros(elapsed))
    }
}

/// What an instance counts with.
#[derive(Clone)]
pub(super) enum SimBackend {
    Memory,
    Redis(SimConnection),
}

/// One instance. Its process can end and start again.
pub(super) struct Instance {
    backend: SimBackend,
    clock: SimClock,
    /// Whether it serves RLQS.
    has_rlqs: bool,
    config: RlqsConfig,
    rules: Arc<TestRuleSet>,
    process: Mutex<Option<Arc<Process>>>,
    /// Counts the processes that ended.
    ended: watch::Sender<u64>,
}

/// A running process.
pub(super) struct Process {
    pub(super) engine: Arc<QuotaEngine>,
    limiter: Limiter<SimConnection>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Instance {
    pub(super) fn new(
        backend: SimBackend,
        clock: SimClock,
        has_rlqs: bool,
        config: RlqsConfig,
        rules: &str,
    ) -> Instance {
        let rules = Arc::new(TestRuleSet { rules: Mutex::new(rule_set(rules)), version: 1.into() });
        let (process, (ended, _)) = (Mutex::default(), watch::channel(0));
        Instance { backend, clock, has_rlqs, config, rules, process, ended }
    }

    /// Starts a process.
    pub(super) fn start(&self) {
        let seed = KeySeed::fixed([1, 2]);
        let (backend, ledger) = match &self.backend {
            SimBackend::Memory => (Backend::Memory(MemoryStore::new(1_000)), None),
            SimBackend::Redis(redis) => {
                let ledger: Arc<dyn SharedLedger> = Arc::new(redis.clone());
                (Backend::Redis(Modes::small(redis.clone())), Some(ledger))
            }
        };
        let (clock, rules) = (Arc::new(self.clock), self.rules.clone());
        let engine = QuotaEngine::new(self.config.clone(), seed, clock, ledger, rules);
        let limiter = Limiter::new(backend, seed, ResponseSettings::default());
        let mut limiter = limiter.with_on_error(self.config.on_error);
        let mut tasks = Vec::new();
        if self.has_rlqs {
            limiter = limiter.with_divided(engine.any_divided().clone(), engine.clone());
            tasks.push(tokio::spawn(run_always(engine.clone())));
            tasks.push(tokio::spawn(exchange_rules(engine.clone())));
        }
        *lock(&self.process) = Some(Arc::new(Process { engine, limiter, tasks }));
    }

    /// Ends the process, with its streams.
    pub(super) fn stop(&self) {
        *lock(&self.process) = None;
        self.ended.send_modify(|ended| *ended += 1);
    }

    /// The running process.
    pub(super) fn process(&self) -> Option<Arc<Process>> {
        lock(&self.process).clone()
    }

    /// Changes when a process ends.
    pub(super) fn ended(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }

    /// Whether Envoys can use it.
    pub(super) fn serves_rlqs(&self) -> bool {
        self.has_rlqs && lock(&self.process).is_some()
    }

    /// Replaces the rules.
    pub(super) fn reload(&self, rules: &str) {
        *lock(&self.rules.rules) = rule_set(rules);
        self.rules.version.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// A call of `ShouldRateLimit`. Returns whether it passes; `None` without a process.
    pub(super) async fn call(&self, value: &str, hits: u64) -> Option<bool> {
        let process = self.process()?;
        let rules = lock(&self.rules.rules).clone();
        let entries = [Entry { key: "tenant", value }];
        let descriptor = Descriptor {
            entries: &entries,
            limit: None,
            hits_addend: Some(hits),
            is_negative_hits: false,
        };
        let request = Request {
            domain: "d",
            descriptors: &[descriptor],
            hits_addend: 0,
            timeout: None,
            trace: Default::default(),
            must_decide: None,
        };
        let verdict = process.limiter.check(&rules, &request, self.clock.now()).await;
        Some(verdict.code == Code::Ok)
    }
}
