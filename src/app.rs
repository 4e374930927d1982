//! The application: builds every part from the settings, runs them, and stops them in order.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{self, oneshot};

use crate::key::KeySeed;
use crate::limiter::{Backend, Limiter, LocalCounters};
use crate::modes::Modes;
use crate::server::{self, Server, ServerConfig, Serving};
use crate::settings::{Settings, StoreKind};
use crate::store::{Guard, MemoryStore, RedisStore};
use crate::telemetry::{self, Exporter, OtlpError, Traces};
use crate::time::{Clock, SystemClock};

mod admin_view;
mod certificates;
mod metrics;
mod readiness;
mod reload;
mod service;
mod shutdown;
mod sweeper;
mod transition_log;
mod upkeep;
mod watch;

use certificates::CertificateWatcher;
use readiness::Readiness;
use reload::Trigger;
use service::Service;
use shutdown::ShutdownTasks;
use sweeper::Sweeper;
use transition_log::TransitionLog;
use upkeep::Upkeep;
use watch::Watcher;

/// A running service.
pub struct App {
    service: Arc<Service>,
    serving: Serving,
    shutdown: sync::watch::Sender<bool>,
    shutdown_tasks: ShutdownTasks,
    _readiness: Readiness,
    _sweeper: Sweeper,
    _certificates: Option<CertificateWatcher>,
    _transition_log: Option<TransitionLog>,
    /// Nothing where the operator wants to reload by hand.
    _watcher: Option<Watcher>,
}

/// Why the service did not start.
#[derive(Debug)]
pub enum StartError {
    /// Settings or rules that the operator must mend, one text each.
    Config(Vec<String>),
    /// The system said no, for instance to a port.
    Io(io::Error),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> StartError {
        StartError::Io(error)
    }
}

impl From<OtlpError> for StartError {
    fn from(error: OtlpError) -> StartError {
        StartError::Config(vec![error.to_string()])
    }
}

/// Runs the service until SIGTERM or SIGINT, then drains it; a second signal ends it at once.
/// SIGHUP reads the rules again.
pub fn run(settings: Settings) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before anything else: a signal that comes during the start must not kill the process.
        let mut signals = Signals::new()?;
        let drain = settings.drain.clone();
        let app = App::start(settings)?;
        // A thread of its own, because it blocks; the server may also end by itself.
        let (ended, mut end) = oneshot::channel();
        thread::spawn(move || ended.send(app.serving.join()));
        loop {
            tokio::select! {
                result = &mut end => return Ok(result.map_err(io::Error::other)??),
                asked = signals.next() => match asked {
                    Asked::End => break,
                    Asked::Reload => app.service.reload(Trigger::Asked),
                }
            }
        }
        tracing::info!("draining");
        let _ = app.shutdown.send(true);
        let over = tokio::time::sleep(drain.delay + drain.timeout);
        let orderly = async {
            end.await.map_err(io::Error::other)??;
            app.shutdown_tasks.run(over).await;
            Ok(())
        };
        tokio::select! {
            result = orderly => result,
            () = signals.end() => {
                tracing::warn!("second signal: stopping at once");
                Ok(())
            }
        }
    })
}

/// What a signal asks for.
#[derive(PartialEq, Eq)]
enum Asked {
    End,
    Reload,
}

/// The signals that are heard: two ask for an orderly end, one for the rules to be read again.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next order to end.
    async fn end(&mut self) {
        while self.next().await != Asked::End {}
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End,
            _ = self.interrupt.recv() => Asked::End,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}

impl App {
    /// Reads the rules, takes the ports and starts to answer.
    pub fn start(settings: Settings) -> Result<App, StartError> {
        let clock = SystemClock::new().off_by(settings.clock.offset);
        let (first, reloads) = reload::first_rules(&settings, clock.now())?;
        let mut config = ServerConfig::from(&settings);
        config.drain.timeout = shutdown::for_calls(settings.drain.timeout);
        let counters = Arc::clone(&config.server_metrics);
        let (tls, certificates) = CertificateWatcher::load(&settings, &counters, clock)?.unzip();
        config.tls = tls;
        let bound = Server::bind(config)?;
        let at = bound.addresses()?;
        let limiter = limiter(&settings, clock)?;
        let counted = first.rules.rules().len();
        let (traces, exporter) = traces(&settings)?.unzip();
        let service =
            Arc::new(Service::new(limiter, clock, first, reloads, settings, counters, traces));
        let sweeper = Sweeper::start(service.clone())?;
        let transition_log = TransitionLog::start(&service)?;
        let mut shutdown_tasks = ShutdownTasks::default();
        if let Some(upkeep) = Upkeep::start(service.clone())? {
            shutdown_tasks.add("what the layers hold", upkeep.end());
        }
        if let Some(exporter) = exporter {
            shutdown_tasks.add("the last spans", exporter.end());
        }
        if let Some(pusher) = pusher(&service)? {
            shutdown_tasks.add("the last metrics", pusher.end());
        }
        let watcher = reload::watch(&service)?;
        let (readiness, health_seen) = Readiness::start(service.clone())?;
        let (shutdown, told_to_stop) = sync::watch::channel(false);
        let serving = bound.serve(service.clone(), service.clone(), health_seen, told_to_stop)?;
        tracing::info!(
            grpc = %at.grpc,
            http = %at.http,
            admin = %at.admin,
            metrics = at.metrics.map(tracing::field::display),
            rules = counted,
            "listening"
        );
        Ok(App {
            service,
            serving,
            shutdown,
            shutdown_tasks,
            _readiness: readiness,
            _sweeper: sweeper,
            _certificates: certificates,
            _transition_log: transition_log,
            _watcher: watcher,
        })
    }
}

/// Traces, where somebody asked for them.
fn traces(settings: &Settings) -> Result<Option<(Traces, Exporter)>, StartError> {
    if !settings.tracing.enabled {
        return Ok(None);
    }
    Ok(Some(Traces::start(&settings.tracing)?))
}

/// What sends metrics, where somebody asked for that.
fn pusher(service: &Arc<Service>) -> Result<Option<Exporter>, StartError> {
    let (settings, started) = (&service.settings, service.started);
    if !settings.metrics.otlp {
        return Ok(None);
    }
    let service = Arc::clone(service);
    let page = move || (service.clock.now(), service.exposition());
    Ok(Some(telemetry::push(&settings.metrics, &settings.tracing, started, page)?))
}

/// The limiter over the store that the settings chose. Redis need not be there yet.
fn limiter(settings: &Settings, clock: SystemClock) -> Result<Limiter, StartError> {
    let (answer, on_error) = (settings.answer.clone(), settings.fallback.on_error);
    let memory = MemoryStore::new(settings.store.max_counters);
    match settings.store.kind {
        StoreKind::Memory => {
            let limiter = Limiter::new(Backend::Memory(memory), KeySeed::random(), answer);
            Ok(limiter.with_on_error(on_error))
        }
        StoreKind::Redis => {
            let cores = server::worker_count(&settings.grpc);
            let store = RedisStore::start(&settings.redis, cores, clock)
                .map_err(|error| StartError::Config(vec![error.to_string()]))?;
            let guard = Guard::new(store, clock, settings.store.timeout);
            // Without a secret the seed is the same everywhere: instances that disagreed would each let
            // the whole limit through.
            let secret = settings.redis.key_secret.as_ref();
            let seed = KeySeed::from_secret(secret.map_or("", |secret| secret.reveal()));
            let local = LocalCounters::new(memory, settings.fallback.instances);
            let modes = if settings.store.over_limit_cache {
                Modes::new(guard)
            } else {
                Modes::without_over_limit_cache(guard)
            };
            let limiter = Limiter::new(Backend::Redis(modes), seed, answer);
            Ok(limiter.with_on_error(on_error).with_local(local))
        }
    }
}

fn texts(problems: &[impl Display]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}
