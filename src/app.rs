//! The application: builds every part from the settings, runs them, and stops them in order.

use std::fmt::Display;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use tokio::sync::{self, oneshot};

use crate::decision_recorder::{DecisionRecorder, RecorderError};
use crate::key::KeySeed;
use crate::limiter::{Backend, Limiter, LocalCounters};
use crate::modes::Modes;
use crate::rules::{XdsOutcome, XdsResource};
use crate::server::{self, Addresses, LiveFeed, RunningServer, ServerConfig, ServerMetrics};
use crate::settings::{Settings, StoreKind};
use crate::store::{GuardedStore, MemoryStore, RedisStore};
use crate::telemetry::{
    self, Decisions, Exporter, OtlpError, Requests, SeriesBudget, TopDenied, Traces,
};
use crate::thread_priority;
use crate::time::{Clock, SystemClock};
use crate::usage::UsageNames;
use crate::xds::{self, RulesByXds, XdsError};

mod active_rules;
mod activity;
mod admin_pages;
mod background;
mod bucket_settings;
mod certificates;
mod changes;
mod decision_logs;
mod explained_bucket;
mod files;
mod metrics;
mod page_jobs;
mod plans;
mod readiness;
mod rlqs;
mod service;
mod shutdown_tasks;
mod signals;
mod watch;

pub use bucket_settings::BucketSettings;
pub use explained_bucket::ExplainedBucket;
pub use files::check_files;
pub use plans::{plan_warnings, plans_of_files};

use active_rules::{ActiveRules, Trigger};
use admin_pages::AdminPages;
use background::Background;
use certificates::CertificateWatcher;
use metrics::AllMetrics;
use plans::{FileSource, RunningPlans};
use readiness::Readiness;
use rlqs::{EnvoyStreams, RunningRlqs};
use service::{RequestRecorder, Service};
use shutdown_tasks::ShutdownTasks;
use signals::{SignalAction, Signals};
use watch::Watcher;

/// The running process.
pub struct App {
    rules: Arc<ActiveRules>,
    serving: RunningServer,
    shutdown: sync::watch::Sender<bool>,
    shutdown_tasks: ShutdownTasks,
    _certificates: Option<CertificateWatcher>,
    /// `None` without a source of plans.
    plans: Option<RunningPlans>,
    /// `None` unless a server sends rules.
    _xds: Option<xds::XdsClient>,
    /// `None` if `rules.watch` is off.
    _watcher: Option<Watcher>,
}

/// Why the process did not start, or stopped without a signal.
#[derive(Debug)]
pub enum StartError {
    /// Problems of settings or rules, one text each.
    Config(Vec<String>),
    /// An error of the operating system, such as a port in use, or a failed thread of the server.
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

impl From<RecorderError> for StartError {
    fn from(error: RecorderError) -> StartError {
        StartError::Config(vec![error.to_string()])
    }
}

impl From<XdsError> for StartError {
    fn from(error: XdsError) -> StartError {
        match error {
            XdsError::Settings(error) => StartError::Config(vec![error.to_string()]),
            XdsError::Io(error) => StartError::Io(error),
        }
    }
}

/// Runs the service until SIGTERM or SIGINT, then drains it. A second signal ends it at once.
/// SIGHUP reloads the rules.
///
/// # Errors
/// The problems that prevented the start, or the failure that ended the server.
pub fn run(settings: Settings) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // First, because a signal during the start must not kill the process.
        let mut signals = Signals::new()?;
        let drain = settings.drain.clone();
        let app = App::start(settings)?;
        let plan_files = app.plans.as_ref().and_then(RunningPlans::files);
        let reload = reloader(app.rules.clone(), plan_files)?;
        // `join` blocks, so it needs a thread.
        let (joined, server_end) = oneshot::channel();
        thread::spawn(move || joined.send(app.serving.join()));
        let mut server_end = pin!(server_result(server_end));
        // The server also ends without a signal, if one of its threads fails.
        let ended = loop {
            tokio::select! {
                result = &mut server_end => break Some(result),
                action = signals.next() => match action {
                    SignalAction::Stop => break None,
                    // A full channel: a reload that will read the files is about to begin.
                    SignalAction::Reload => {
                        let _ = reload.try_send(());
                    }
                }
            }
        };
        let longest = if ended.is_none() {
            tracing::info!("draining");
            let _ = app.shutdown.send(true);
            drain.delay + drain.timeout
        } else {
            drain.timeout
        };
        let server = async {
            match ended {
                Some(result) => result,
                None => server_end.await,
            }
        };
        let deadline = tokio::time::sleep(longest).deadline();
        tokio::select! {
            result = app.shutdown_tasks.run_after(server, deadline) => {
                result.map_err(StartError::Io)
            }
            () = signals.stop() => {
                tracing::warn!("signal during the drain: stopping at once");
                Ok(())
            }
        }
    })
}

/// A thread that reloads the rules, and the files of plans, on request. Files may be on a hanging volume,
/// and signals must be handled meanwhile.
fn reloader(
    rules: Arc<ActiveRules>,
    plan_files: Option<Arc<FileSource>>,
) -> io::Result<SyncSender<()>> {
    let (request, requested) = sync_channel(1);
    thread::Builder::new().name("weir-reload".into()).spawn(move || {
        thread_priority::lower();
        for () in requested {
            rules.reload(Trigger::Signal);
            if let Some(files) = &plan_files {
                files.reload(Trigger::Signal);
            }
        }
    })?;
    Ok(request)
}

/// The result of the server, which the thread that joined it sends.
async fn server_result(joined: oneshot::Receiver<io::Result<()>>) -> io::Result<()> {
    joined.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

impl App {
    /// Loads the rules, binds the listeners and starts to serve.
    pub fn start(settings: Settings) -> Result<App, StartError> {
        let clock = SystemClock::new().off_by(settings.clock.offset);
        let budget = Arc::new(SeriesBudget::new(settings.metrics.max_series));
        let rules = Arc::new(ActiveRules::load(&settings, budget.clone(), clock)?);
        let mut config = ServerConfig::from(&settings);
        config.drain.timeout = shutdown_tasks::in_flight_timeout(settings.drain.timeout);
        let server_metrics = Arc::<ServerMetrics>::default();
        let certificates = CertificateWatcher::load(&settings, &server_metrics, clock)?;
        let (tls, certificates) = certificates.unzip();
        let bound = server::bind(config, tls, server_metrics.clone())?;
        let addresses = bound.addresses()?;
        let limiter = limiter(&settings, clock)?;
        let (limiter, plans) = RunningPlans::start(&settings, limiter, &rules, clock)?;
        let plans_view = plans.as_ref().map(RunningPlans::view);
        let (limiter, changes) = changes::start(&settings, limiter, &rules, clock)?;
        let (limiter, quotas) = RunningRlqs::start(&settings, limiter, &rules, clock)?;
        let (limiter, rlqs) = (Arc::new(limiter), quotas.as_ref().map(|it| it.engine.clone()));
        let seed = decision_logs::values_seed(&settings);
        let records = decision_logs::decision_records(&settings, seed, clock)?;
        let (records, record_writer) = records.unzip();
        let (recorder, span_exporter) = recorder(&settings, budget, records, seed, clock)?;
        rules.use_request_log(recorder.log.clone());
        let xds = xds::start(&settings.xds, rules.clone(), clock)?;
        let xds_status = || xds.as_ref().map(|client| client.status().clone());
        let all_metrics = AllMetrics::new(
            limiter.clone(),
            clock,
            rules.clone(),
            recorder.clone(),
            server_metrics,
            xds_status(),
            &settings,
        );
        let all_metrics = all_metrics.with_rlqs(rlqs.clone()).with_plans(plans_view.clone());
        let all_metrics = Arc::new(all_metrics);
        let readiness = Readiness::new(limiter.clone(), rules.clone(), xds_status(), &settings);
        let (pages_sender, pages_seen) = oneshot::channel();
        let jobs = page_jobs::run(rules.clone(), recorder.clone(), clock, pages_seen);
        let log = recorder.log.clone();
        let (background, health_seen) =
            Background::start(limiter.clone(), clock, readiness, log, jobs)?;
        let mut shutdown_tasks = ShutdownTasks::new(settings.drain.timeout);
        shutdown_tasks.add_flush(background.end());
        if let Some(quotas) = quotas {
            shutdown_tasks.add_flush(quotas.end());
        }
        if let Some(writer) = record_writer {
            shutdown_tasks.add_flush(writer.end());
        }
        let metrics_exporter = metrics_exporter(&settings, &all_metrics, clock)?;
        for exporter in [span_exporter, metrics_exporter].into_iter().flatten() {
            shutdown_tasks.add_export(exporter.end());
        }
        let watcher = settings.rules.watch.then(|| rules.watch()).transpose()?;
        let (shutdown, shutdown_seen) = sync::watch::channel(false);
        let service = Service {
            limiter: limiter.clone(),
            clock,
            rules: rules.clone(),
            recorder: recorder.clone(),
        };
        let streams = rlqs.clone().map(|engine| Arc::new(EnvoyStreams(engine)));
        let has_page = settings.admin.page;
        let live = has_page.then(|| Arc::new(LiveFeed::new(all_metrics.server.clone())));
        let pages = Arc::new(AdminPages {
            limiter,
            clock,
            rules: rules.clone(),
            recorder,
            all_metrics,
            rlqs,
            plans: plans_view,
            changes,
            settings,
            host: admin_pages::host(),
            health: health_seen.clone(),
            shutdown: shutdown_seen.clone(),
            live,
        });
        let _ = pages_sender.send(pages.clone());
        let serving =
            bound.serve(Arc::new(service), streams, pages.clone(), health_seen, shutdown_seen)?;
        log_listening(&addresses, &rules, &pages.settings);
        Ok(App {
            rules,
            serving,
            shutdown,
            shutdown_tasks,
            plans,
            _certificates: certificates,
            _xds: xds,
            _watcher: watcher,
        })
    }
}

/// The registries that record requests, and the exporter of spans. The exporter is `None` unless
/// `tracing.enabled`.
fn recorder(
    settings: &Settings,
    budget: Arc<SeriesBudget>,
    records: Option<DecisionRecorder>,
    values_seed: KeySeed,
    clock: SystemClock,
) -> Result<(Arc<RequestRecorder>, Option<Exporter>), StartError> {
    let started = settings.tracing.enabled.then(|| Traces::start(&settings.tracing));
    let (traces, exporter) = started.transpose()?.unzip();
    let top = TopDenied::new(settings.metrics.top_values);
    let mut decisions = Decisions::new(budget, top, clock.now());
    if settings.metrics.envoy_ratelimit_names {
        decisions = decisions.with_client_named_series();
    }
    let log = decision_logs::request_log(settings, values_seed, &decisions.top, clock);
    let (requests, log) = (Requests::default(), Arc::new(log));
    let recorder = RequestRecorder { decisions, requests, traces, records, log };
    Ok((Arc::new(recorder), exporter))
}

/// The exporter of metrics; `None` unless `metrics.otlp`.
fn metrics_exporter(
    settings: &Settings,
    all_metrics: &Arc<AllMetrics>,
    clock: SystemClock,
) -> Result<Option<Exporter>, StartError> {
    if !settings.metrics.otlp {
        return Ok(None);
    }
    let (started, all_metrics) = (all_metrics.started, Arc::clone(all_metrics));
    let page = move || (clock.now(), all_metrics.exposition());
    Ok(Some(telemetry::start_metrics_export(&settings.metrics, &settings.tracing, started, page)?))
}

impl RulesByXds for ActiveRules {
    fn apply(&self, version: &str, resources: &[XdsResource<'_>]) -> XdsOutcome {
        self.apply_xds(version, resources)
    }

    fn encoded(&self) -> Vec<Vec<u8>> {
        self.xds_resources()
    }
}

/// The limiter over the configured store. Redis may still be unreachable.
fn limiter(settings: &Settings, clock: SystemClock) -> Result<Limiter, StartError> {
    let (response, on_error) = (settings.response.clone(), settings.fallback.on_error);
    let memory = MemoryStore::new(settings.store.max_counters);
    let max_names = settings.usage.max_names;
    match settings.store.kind {
        StoreKind::Memory => {
            let limiter = Limiter::new(Backend::Memory(memory), KeySeed::random(), response);
            Ok(limiter.with_on_error(on_error).with_usage(UsageNames::in_memory(max_names)))
        }
        StoreKind::Redis => {
            let workers = server::worker_count(&settings.grpc);
            let store = RedisStore::start(&settings.redis, workers, clock)
                .map_err(|error| StartError::Config(vec![error.to_string()]))?;
            let guarded = GuardedStore::new(store, clock, settings.store.timeout);
            // Without a secret the seed is the same on all instances. Instances with different
            // seeds would each allow the whole limit.
            let secret = settings.redis.key_secret.as_ref();
            let seed = KeySeed::from_secret(secret.map_or("", |secret| secret.reveal()));
            let local = LocalCounters::new(memory, settings.fallback.instances);
            let modes = if settings.store.over_limit_cache {
                Modes::new(guarded)
            } else {
                Modes::without_over_limit_cache(guarded)
            };
            let limiter = Limiter::new(Backend::Redis(modes), seed, response);
            let limiter = limiter.with_on_error(on_error).with_local(local);
            Ok(limiter.with_usage(UsageNames::shared(max_names)))
        }
    }
}

fn log_listening(addresses: &Addresses, rules: &ActiveRules, settings: &Settings) {
    let version = env!("CARGO_PKG_VERSION");
    let is_shared = settings.store.kind == StoreKind::Redis;
    // `Display` masks the password.
    let redis_url = is_shared.then(|| tracing::field::display(&settings.redis.url));
    tracing::info!(
        version,
        store = settings.store.kind.name(),
        redis_url,
        rules = rules.snapshot().rules.rules().len(),
        paths = ?settings.rules.paths,
        grpc = %addresses.grpc,
        http = %addresses.http,
        admin = %addresses.admin,
        metrics = addresses.metrics.map(tracing::field::display),
        "listening"
    );
}

/// The text of each problem.
fn texts(problems: &[impl Display]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}
