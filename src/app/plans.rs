//! The plans of rules with `limit_from`: starts the source that the settings name.

use std::sync::{Arc, Mutex, PoisonError};

use super::StartError;
use super::active_rules::ActiveRules;
use super::watch::{Timing, Watcher};
use crate::limiter::Limiter;
use crate::plans::{Plans, PlansConfig};
use crate::rules::RuleSet;
use crate::settings::{PlanSourceKind, PlansSettings, Settings};

mod files;

use files::PlanFiles;

/// A running source of plans. It stops when this value is dropped.
pub(super) struct RunningPlans {
    /// `None` with another source.
    files: Option<Arc<FileSource>>,
    _watcher: Option<Watcher>,
}

impl RunningPlans {
    /// Starts the source of the settings. Returns it with the limiter that uses its plans. `None` with
    /// `plans.source: none`.
    ///
    /// # Errors
    ///
    /// The problems of the files with `plans.source: file`, or a thread that cannot start.
    pub(super) fn start(
        settings: &Settings,
        limiter: Limiter,
        rules: &Arc<ActiveRules>,
    ) -> Result<(Limiter, Option<RunningPlans>), StartError> {
        let settings = &settings.plans;
        if settings.source == PlanSourceKind::None {
            return Ok((limiter, None));
        }
        let plans = Plans::new(config(settings));
        let files = PlanFiles::of(settings).map(|files| FileSource::load(files, plans.clone()));
        let (files, watcher) = files.transpose()?.unzip();
        rules.use_plans(plans.clone());
        let running = RunningPlans { files, _watcher: watcher };
        Ok((limiter.with_plans(plans, None), Some(running)))
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

/// Reads the files of plans, as a start does. Returns the problems, one text each.
pub(super) fn check(settings: &PlansSettings) -> Vec<String> {
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

/// Plans of files, which replace the active ones when the files change.
pub(super) struct FileSource {
    files: PlanFiles,
    plans: Arc<Plans>,
    /// Locked while the files are read, so that older files never replace newer ones.
    reading: Mutex<()>,
}

impl FileSource {
    /// Loads the files, and watches them.
    fn load(files: PlanFiles, plans: Arc<Plans>) -> Result<(Arc<FileSource>, Watcher), StartError> {
        let known = files.digest();
        let (book, customers) = files.read(&plans).map_err(StartError::Config)?;
        if let Some(warning) = customers.warning() {
            tracing::warn!("{warning}");
        }
        plans.publish(book, customers);
        let source = Arc::new(FileSource { files, plans, reading: Mutex::default() });
        let (looking, changing) = (source.clone(), source.clone());
        let digest = move || {
            // This thread has the time to free a table of millions.
            looking.plans.free_retired();
            looking.files.digest()
        };
        let changed = move || changing.reload();
        let paths = source.files.paths();
        let watcher =
            Watcher::start("weir-plans", paths, Timing::default(), known, digest, changed)?;
        Ok((source, watcher))
    }

    /// Reads the files. If they are invalid, the active plans stay.
    pub(super) fn reload(&self) {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        match self.files.read(&self.plans) {
            Ok((book, customers)) => {
                if let Some(warning) = customers.warning() {
                    tracing::warn!("{warning}");
                }
                let (plans, number) = (book.len(), customers.len());
                self.plans.publish(book, customers);
                tracing::info!(plans, customers = number, "plans reloaded");
            }
            Err(problems) => {
                for problem in problems {
                    tracing::error!("{problem}");
                }
                tracing::error!("plans not reloaded: the active plans stay");
            }
        }
    }
}
