//! Envoys inside the process: an engine with its driver, and streams that report every 5 s, one after the
//! other.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::FutureExt;
use weir::descriptor::RequestBounds;
use weir::key::KeySeed;
use weir::limit::OnError;
use weir::rlqs::{
    self, ActiveRuleSet, EnvoyStream, QuotaEngine, RlqsConfig, RlqsDriver, SharedLedger,
};
use weir::rules::{Options, RuleSet, SourceFile, compile};
use weir::time::{Micros, SystemClock};

use super::cpu;
use super::reports::{PERIOD, Reports, Shape};

/// Time between two turns of the thread that reports and reads.
const STEP: Duration = Duration::from_millis(50);

/// Turns in which each stream is read once.
const TURNS: usize = 5;

/// The threads that settle: the driver, and the discovery of Redis.
const SETTLING: [&str; 2] = ["weir-rlqs", "weir-redis"];

/// A running engine.
pub(crate) struct Fleet {
    shape: Shape,
    rules: Arc<BenchRules>,
    engine: Arc<QuotaEngine>,
    driver: RlqsDriver,
    streams: Vec<EnvoyStream>,
    reports: Reports,
    nap_cost: f64,
}

/// How the demand of an Envoy behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// It is the same in each report.
    Steady,
    /// It is another random number in each report.
    Changing,
}

/// The figures of some rounds of reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundFigures {
    /// The length, in seconds.
    pub(crate) seconds: f64,
    /// Reports of all Envoys.
    pub(crate) reports: f64,
    /// Usages in them.
    pub(crate) usages: f64,
    /// CPU time of counting them, in seconds.
    pub(crate) report_cpu: f64,
    /// CPU time of the messages to the Envoys, in seconds.
    pub(crate) message_cpu: f64,
    /// CPU time of the threads that settle, in seconds.
    pub(crate) driver_cpu: f64,
    /// Settlements that the ledger answered.
    pub(crate) settlements: f64,
    /// Shares that changed.
    pub(crate) moves: f64,
    /// How late the latest report was, in seconds. The thread itself may add [`STEP`].
    pub(crate) late: f64,
}

/// What counts up in the engine and its threads.
struct Counts {
    driver_cpu: f64,
    settlements: u64,
    moves: u64,
}

/// Rules that a reload replaces.
struct BenchRules {
    set: Mutex<Arc<RuleSet>>,
    version: AtomicU64,
}

impl ActiveRuleSet for BenchRules {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    fn read(&self, reader: &mut dyn FnMut(&RuleSet)) {
        let set = self.lock().clone();
        reader(&set);
    }
}

impl BenchRules {
    fn lock(&self) -> MutexGuard<'_, Arc<RuleSet>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn compiled(text: &str) -> anyhow::Result<Arc<RuleSet>> {
    let file = SourceFile { name: "bench.yaml".into(), text: text.into() };
    let compiled = compile(&[file], &Options::default());
    Ok(Arc::new(compiled.map_err(|problems| anyhow::anyhow!("{problems:?}"))?.0))
}

impl Fleet {
    /// An engine without streams, over `ledger` or over memory. `clock` is that of the ledger.
    pub(crate) fn new(
        shape: Shape,
        clock: SystemClock,
        ledger: Option<Arc<dyn SharedLedger>>,
    ) -> anyhow::Result<Fleet> {
        let set = Mutex::new(compiled(&shape.rules())?);
        let rules = Arc::new(BenchRules { set, version: AtomicU64::new(1) });
        let (seed, clock) = (KeySeed::random(), Arc::new(clock));
        let engine = QuotaEngine::new(config(shape), seed, clock, ledger, rules.clone());
        let driver = rlqs::start(engine.clone())?;
        let (reports, nap_cost) = (Reports::new(shape), cpu::nap_cost()?);
        // Without a reallocation, which would show as memory of the streams.
        let streams = Vec::with_capacity(shape.streams);
        Ok(Fleet { shape, rules, engine, driver, streams, reports, nap_cost })
    }

    /// Opens the streams.
    pub(crate) fn open(&mut self) -> anyhow::Result<()> {
        let client = IpAddr::from([127, 0, 0, 1]).into();
        for _ in 0..self.shape.streams {
            self.streams.push(self.engine.open(client, None)?);
        }
        Ok(())
    }

    /// Each Envoy reports once per round of 5 s. Messages to the Envoys are read four times a second.
    pub(crate) fn run(&mut self, rounds: usize, demand: Demand) -> anyhow::Result<RoundFigures> {
        let (streams, period) = (self.streams.len(), PERIOD.as_secs_f64());
        let total = rounds * streams;
        let before = self.counts()?;
        let mut figures = RoundFigures::default();
        let (mut sent, mut turns) = (0, 0);
        let mut at = cpu::of_this_thread()?;
        let begin = Instant::now();
        loop {
            figures.seconds = begin.elapsed().as_secs_f64();
            if sent == total && figures.seconds >= period * rounds as f64 {
                break;
            }
            let due = (figures.seconds / period * streams as f64) as usize + 1;
            let due = due.min(total);
            if sent < due {
                let due_at = sent as f64 / streams as f64 * period;
                figures.late = figures.late.max(figures.seconds - due_at);
            }
            for number in sent..due {
                let (stream, round) = (number % streams, number / streams);
                let round = if demand == Demand::Changing { 1 + round } else { 0 };
                let message = self.reports.of(stream, round);
                self.streams[stream].report(message).context("a valid report")?;
            }
            sent = due;
            let reported = cpu::of_this_thread()?;
            for stream in self.streams.iter_mut().skip(turns % TURNS).step_by(TURNS) {
                while stream.next().now_or_never().is_some() {}
            }
            turns += 1;
            let read = cpu::of_this_thread()?;
            figures.report_cpu += reported - at;
            figures.message_cpu += read - reported;
            thread::sleep(STEP);
            at = cpu::of_this_thread()?;
        }
        let after = self.counts()?;
        let naps = self.nap_cost * turns as f64;
        figures.report_cpu = (figures.report_cpu - naps).max(0.0);
        figures.message_cpu = (figures.message_cpu - naps).max(0.0);
        figures.driver_cpu = after.driver_cpu - before.driver_cpu;
        figures.settlements = (after.settlements - before.settlements) as f64;
        figures.moves = (after.moves - before.moves) as f64;
        figures.reports = total as f64;
        figures.usages = (total * self.shape.buckets) as f64;
        Ok(figures)
    }

    /// The number of Envoys and buckets.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The engine.
    pub(crate) fn engine(&self) -> Arc<QuotaEngine> {
        self.engine.clone()
    }

    /// Replaces the rules.
    pub(crate) fn reload(&self, text: &str) -> anyhow::Result<()> {
        *self.rules.lock() = compiled(text)?;
        self.rules.version.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The streams, which the caller gives back.
    pub(crate) fn take_streams(&mut self) -> Vec<EnvoyStream> {
        std::mem::take(&mut self.streams)
    }

    /// Takes the streams back.
    pub(crate) fn return_streams(&mut self, streams: Vec<EnvoyStream>) {
        self.streams = streams;
    }

    /// Reads what waits for the Envoys.
    pub(crate) fn read_waiting(&mut self) {
        for stream in &mut self.streams {
            while stream.next().now_or_never().is_some() {}
        }
    }

    /// The assignments that `engine` sent.
    pub(crate) fn sent_by(engine: &QuotaEngine) -> u64 {
        let metrics = engine.metrics();
        metrics.allow.get() + metrics.deny.get() + metrics.bucket.get()
    }

    /// The assignments that were sent.
    pub(crate) fn assignments_sent(&self) -> u64 {
        Fleet::sent_by(&self.engine)
    }

    /// CPU time of the threads that settle, in seconds.
    pub(crate) fn driver_cpu(&self) -> anyhow::Result<f64> {
        cpu::of_threads(&SETTLING)
    }

    /// Checks that every bucket was counted and that no quota was exceeded, and stops the driver.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        let metrics = self.engine.metrics();
        let (buckets, wanted) = (metrics.buckets.get(), self.shape.total() as u64);
        ensure!(buckets == wanted, "{buckets} buckets instead of {wanted}");
        let (failed, exceeded) = (metrics.settlements_error.get(), metrics.violations.get());
        ensure!(failed == 0, "{failed} settlements failed");
        ensure!(exceeded == 0, "{exceeded} settlements exceeded a quota");
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        runtime.block_on(self.driver.end());
        Ok(())
    }

    fn counts(&self) -> anyhow::Result<Counts> {
        let metrics = self.engine.metrics();
        Ok(Counts {
            driver_cpu: cpu::of_threads(&SETTLING)?,
            settlements: metrics.settlements_ok.get(),
            moves: metrics.raises.get() + metrics.lowers.get(),
        })
    }
}

/// The default settings, with bounds for `shape`. Shares are assigned at once.
fn config(shape: Shape) -> RlqsConfig {
    RlqsConfig {
        assignment_ttl: Micros::from_secs(12),
        idle_timeout: Micros::from_secs(600),
        key_order: Vec::new(),
        burst_percent: 20,
        relearn: false,
        // One client address gets at most half.
        max_streams: 2 * shape.streams,
        max_buckets_per_stream: shape.buckets,
        max_buckets: 2 * shape.total(),
        max_message_bytes: 1 << 20,
        max_local_holders: 1,
        bounds: RequestBounds { max_descriptors: 256, max_entries: 32, max_text_bytes: 65_536 },
        on_error: OnError::default(),
    }
}
