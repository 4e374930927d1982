//! The plans of rules with `limit_from`: starts the source that the settings name.

use std::sync::{Arc, Mutex, PoisonError};

use super::StartError;
use super::active_rules::{ActiveRules, Trigger};
use super::watch::{Timing, Watcher};
use crate::limiter::Limiter;
use crate::plan_sources::{self, PlanSourceError, RunningSource, SourceStatus};
use crate::plans::{CustomerSource, Plans, PlansConfig};
use crate::rules::RuleSet;
use crate::settings::{PlanSourceKind, PlansSettings, Settings};
use crate::time::{Clock, SystemClock};

mod files;
mod view;

pub(super) use view::PlansView;

use files::PlanFiles;

/// A running source of plans. It stops when this value is dropped.
pub(super) struct RunningPlans {
    view: PlansView,
    /// `None` with another source.
    files: Option<Arc<FileSource>>,
    _watcher: Option<Watcher>,
    /// `None` with files.
    _source: Option<RunningSource>,
}

impl From<PlanSourceError> for StartError {
    fn from(error: PlanSourceError) -> StartError {
        match error {
            PlanSourceError::Settings(text) => StartError::Config(vec![text]),
            PlanSourceError::Io(error) => StartError::Io(error),
        }
    }
}

impl RunningPlans {
    /// Starts the source of the settings. Returns it with the limiter that uses its plans. `None` with
    /// `plans.source: none`.
    ///
    /// # Errors
    ///
    /// The problems of files and settings, or a thread that cannot start.
    pub(super) fn start(
        settings: &Settings,
        limiter: Limiter,
        rules: &Arc<ActiveRules>,
        clock: SystemClock,
    ) -> Result<(Limiter, Option<RunningPlans>), StartError> {
        let settings = &settings.plans;
        if settings.source == PlanSourceKind::None {
            return Ok((limiter, None));
        }
        let plans = Plans::new(config(settings));
        let running = match PlanFiles::of(settings) {
            Some(files) => RunningPlans::of_files(files, plans.clone(), clock)?,
            None => RunningPlans::of_source(settings, plans.clone(), &limiter, clock)?,
        };
        rules.use_plans(plans.clone());
        let customers = running.view.redis.clone();
        let customers = customers.map(|redis| -> Arc<dyn CustomerSource> { redis });
        Ok((limiter.with_plans(plans, customers), Some(running)))
    }

    fn of_files(
        files: PlanFiles,
        plans: Arc<Plans>,
        clock: SystemClock,
    ) -> Result<RunningPlans, StartError> {
        let status = Arc::new(SourceStatus::without_log(PlanSourceKind::File.name()));
        let loaded = FileSource::load(files, plans.clone(), status.clone(), clock)?;
        let (files, watcher) = (Some(loaded.0), Some(loaded.1));
        let view = PlansView { plans, status, redis: None };
        Ok(RunningPlans { view, files, _watcher: watcher, _source: None })
    }

    /// Starts Redis or HTTP. `limiter` has the connections to Redis.
    fn of_source(
        settings: &PlansSettings,
        plans: Arc<Plans>,
        limiter: &Limiter,
        clock: SystemClock,
    ) -> Result<RunningPlans, StartError> {
        // The settings require Redis for counters if it has the plans.
        let store = limiter.backend().modes().map(|modes| modes.store_arc());
        let (source, redis) = match store.filter(|_| settings.source == PlanSourceKind::Redis) {
            Some(store) => {
                let started = plan_sources::start_redis(settings, plans.clone(), store, clock)?;
                (started.0, Some(started.1))
            }
            None => (plan_sources::start_http(settings, plans.clone(), clock)?, None),
        };
        let view = PlansView { plans, status: source.status().clone(), redis };
        Ok(RunningPlans { view, files: None, _watcher: None, _source: Some(source) })
    }

    /// What pages and metrics show.
    pub(super) fn view(&self) -> PlansView {
        self.view.clone()
    }

    /// The files, which are read again on SIGHUP.
    pub(super) fn files(&self) -> Option<Arc<FileSource>> {
        self.files.clone()
    }
}

fn config(settings: &PlansSettings) -> PlansConfig {
    let asks_per_customer = settings.source == PlanSourceKind::Redis;
    PlansConfig { max_customers: settings.max_customers, asks_per_customer }
}

/// Reads the files of plans, and those for `plans.url`, as a start does. Returns the problems, one text
/// each.
pub(super) fn check(settings: &PlansSettings) -> Vec<String> {
    if settings.source == PlanSourceKind::Http {
        let checked = plan_sources::check_files(settings);
        return checked.err().map(|error| error.to_string()).into_iter().collect();
    }
    let plans = Plans::new(PlansConfig { max_customers: 0, asks_per_customer: false });
    let read = PlanFiles::of(settings).map(|files| files.read(&plans));
    read.and_then(Result::err).unwrap_or_default()
}

/// The warnings about plans of files: numbers that do not fit `rules`, and names that are not defined.
/// Empty with another source, and if the files cannot be read.
pub fn plan_warnings(settings: &Settings, rules: &RuleSet) -> Vec<String> {
    let Some(files) = PlanFiles::of(&settings.plans) else { return Vec::new() };
    let plans = Plans::new(config(&settings.plans));
    let Ok((book, customers)) = files.read(&plans) else { return Vec::new() };
    plans.publish(book, customers);
    plans.use_rules(rules);
    plans.status().warnings
}

/// The plans of the files that `settings` name, for `sets` of rules, which decide by them without a service.
/// The files are not watched. `None` with another source.
///
/// # Errors
///
/// All problems of the files, one text each.
pub fn plans_of_files(
    settings: &PlansSettings,
    sets: &[&RuleSet],
) -> Result<Option<Arc<Plans>>, Vec<String>> {
    let Some(files) = PlanFiles::of(settings) else { return Ok(None) };
    let plans = Plans::new(config(settings));
    let (book, customers) = files.read(&plans)?;
    plans.publish(book, customers);
    plans.use_rule_sets(sets);
    Ok(Some(plans))
}

/// Plans of files, which replace the active ones when the files change.
pub(super) struct FileSource {
    files: PlanFiles,
    plans: Arc<Plans>,
    status: Arc<SourceStatus>,
    clock: SystemClock,
    /// Locked while the files are read, so that older files never replace newer ones.
    reading: Mutex<()>,
}

impl FileSource {
    /// Loads the files, and watches them.
    fn load(
        files: PlanFiles,
        plans: Arc<Plans>,
        status: Arc<SourceStatus>,
        clock: SystemClock,
    ) -> Result<(Arc<FileSource>, Watcher), StartError> {
        let known = files.digest();
        let (book, customers) = files.read(&plans).map_err(StartError::Config)?;
        if let Some(warning) = customers.warning() {
            tracing::warn!("{warning}");
        }
        plans.publish(book, customers);
        status.changed(clock.now());
        status.succeeded(clock.now());
        let source =
            Arc::new(FileSource { files, plans, status, clock, reading: Mutex::default() });
        let (looking, changing) = (source.clone(), source.clone());
        let mut known_digest = known;
        let digest = move || {
            // This thread has the time to free a table of millions.
            looking.plans.free_retired();
            let digest = looking.files.digest();
            if digest == known_digest && looking.status.error().is_none() {
                looking.status.succeeded(looking.clock.now());
            }
            known_digest = digest;
            digest
        };
        let changed = move || changing.reload(Trigger::FileChange);
        let paths = source.files.paths();
        let watcher =
            Watcher::start("weir-plans", paths, Timing::default(), known, digest, changed)?;
        Ok((source, watcher))
    }

    /// Reads the files. If they are invalid, the active plans stay. A change to a file without plans is invalid
    /// if plans are active: an editor or a full disk may have emptied it. SIGHUP accepts it.
    pub(super) fn reload(&self, trigger: Trigger) {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let active = self.plans.book().len();
        let read = self.files.read(&self.plans).and_then(|(book, customers)| {
            if trigger == Trigger::FileChange && book.is_empty() && active > 0 {
                return Err(vec![self.files.without_plans(active)]);
            }
            Ok((book, customers))
        });
        match read {
            Ok((book, customers)) => {
                if let Some(warning) = customers.warning() {
                    tracing::warn!("{warning}");
                }
                let (plans, number) = (book.len(), customers.len());
                self.plans.publish(book, customers);
                self.status.changed(self.clock.now());
                self.status.succeeded(self.clock.now());
                tracing::info!(plans, customers = number, "plans reloaded");
            }
            Err(problems) => {
                self.status.failed(self.clock.now(), &problems.join("; "));
                for problem in problems {
                    tracing::error!("{problem}");
                }
                tracing::error!("plans not reloaded: the active plans stay");
            }
        }
    }
}
