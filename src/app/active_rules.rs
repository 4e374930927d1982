//! The active rules, their metrics and their reloads.
//!
//! A reload replaces all rules at once. Invalid rules change nothing; their error is shown until a
//! reload succeeds. A missing file does not remove its rules, because an unmounted volume looks the
//! same. To remove all rules, keep a file with `domain: NAME` alone, or send SIGHUP.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use super::watch::{Timing, Watcher};
use super::{StartError, texts};
use crate::escape::one_line;
use crate::rules::{Options, RuleFiles, RuleProblem, RuleSet, XdsResource};
use crate::settings::Settings;
use crate::telemetry::{Exposition, RuleMetrics, RuleReloads, SeriesBudget};
use crate::time::{Clock, Micros, SystemClock};

/// The fix in the error about missing rule files.
const MISSING_FILES_HINT: &str = "the active rules stay; to remove them, leave a file with \
                                  `domain: NAME` alone, or send SIGHUP";

/// Why rules are reloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The files changed. A missing file is an error.
    FileChange,
    /// SIGHUP. A missing file removes its rules.
    Signal,
}

/// One set of rules, and the metrics of each rule.
pub(super) struct RuleSnapshot {
    pub(super) rules: RuleSet,
    pub(super) metrics: RuleMetrics,
    /// When the rules were read.
    pub(super) loaded_at: Micros,
}

/// The active rules. Readers take a snapshot, which a reload does not change.
pub(super) struct ActiveRules {
    paths: Vec<PathBuf>,
    options: Options,
    clock: SystemClock,
    budget: Arc<SeriesBudget>,
    snapshot: ArcSwap<RuleSnapshot>,
    /// The problems of the last load, one per line. `None` if it succeeded.
    last_error: ArcSwapOption<String>,
    reloads: RuleReloads,
    /// Whether the first load succeeded. False only with `rules.start_without_rules`.
    first_load_ok: bool,
    /// Locked during a load, so that an older set never replaces a newer one.
    last_attempt: Mutex<LastAttempt>,
}

/// The files that the last load read.
#[derive(Debug)]
struct LastAttempt {
    digest: u64,
    /// The paths from which no active rule was loaded.
    without_files: Vec<PathBuf>,
}

impl ActiveRules {
    /// Loads the first rules. Statistics by value take their series from `budget`.
    ///
    /// # Errors
    /// The problems of the rule files, unless `rules.start_without_rules` is set.
    pub(super) fn load(
        settings: &Settings,
        budget: Arc<SeriesBudget>,
        clock: SystemClock,
    ) -> Result<ActiveRules, StartError> {
        let (paths, options) = (settings.rules.paths.clone(), settings.rules.options());
        let sources = RuleFiles::read(&paths);
        let digest = sources.digest();
        let mut without_files = sources.without_files().to_vec();
        let (rules, error) = match sources.compile(&options) {
            Ok((rules, warnings)) => {
                log_warnings(&warnings);
                (rules, None)
            }
            Err(problems) if settings.rules.start_without_rules => {
                log_problems(&problems);
                tracing::error!("started without rules: every request passes until a reload");
                without_files.clone_from(&paths);
                (RuleSet::default(), Some(texts(&problems).join("\n")))
            }
            Err(problems) => return Err(StartError::Config(texts(&problems))),
        };
        let metrics = RuleMetrics::new(&rules, &RuleMetrics::default(), &budget);
        let first = RuleSnapshot { rules, metrics, loaded_at: clock.now() };
        Ok(ActiveRules {
            paths,
            options,
            clock,
            budget,
            snapshot: ArcSwap::from_pointee(first),
            first_load_ok: error.is_none(),
            last_error: ArcSwapOption::from_pointee(error),
            reloads: RuleReloads::default(),
            last_attempt: Mutex::new(LastAttempt { digest, without_files }),
        })
    }

    /// Reloads the rules whenever the content of their files changes.
    pub(super) fn watch(self: &Arc<ActiveRules>) -> io::Result<Watcher> {
        let known = self.last_attempt().digest;
        let (paths, rules) = (self.paths.clone(), Arc::clone(self));
        let digest = move || RuleFiles::read_once(&paths).digest();
        let changed = move || rules.reload(Trigger::FileChange);
        Watcher::start("weir-rules", self.paths.clone(), Timing::default(), known, digest, changed)
    }

    /// The active rules, for use within a few microseconds: by a request or a page.
    pub(super) fn snapshot(&self) -> Guard<Arc<RuleSnapshot>> {
        self.snapshot.load()
    }

    /// The active rules, for work that takes longer than a few microseconds.
    pub(super) fn snapshot_owned(&self) -> Arc<RuleSnapshot> {
        self.snapshot.load_full()
    }

    /// The problems of the last load, one per line. `None` if it succeeded.
    pub(super) fn last_error(&self) -> Option<Arc<String>> {
        self.last_error.load_full()
    }

    /// Successful and failed loads, the first one included.
    pub(super) fn load_counts(&self) -> (u64, u64) {
        let (ok, failed) = self.reloads.counts();
        let first = u64::from(self.first_load_ok);
        (ok + first, failed + 1 - first)
    }

    /// Writes the metrics of reloads onto the page.
    pub(super) fn expose(&self, page: &mut Exposition) {
        let now = self.snapshot();
        let is_ok = self.last_error.load().is_none();
        self.reloads.expose(now.rules.rules().len(), now.loaded_at, is_ok, page);
    }

    /// Reads the files and activates their rules. Counters of unchanged rules continue, because
    /// their keys stay the same.
    pub(super) fn reload(&self, trigger: Trigger) {
        let mut last_attempt = self.last_attempt();
        let sources = RuleFiles::read(&self.paths);
        let digest = sources.digest();
        if trigger == Trigger::FileChange && digest == last_attempt.digest {
            return;
        }
        last_attempt.digest = digest;
        let without_files = sources.without_files().to_vec();
        let missing = without_files.iter().find(|path| !last_attempt.without_files.contains(path));
        if let (Trigger::FileChange, Some(path)) = (trigger, missing) {
            let path = path.display().to_string();
            let path = one_line(&path);
            let error = format!("{path}: its rule files are gone; {MISSING_FILES_HINT}");
            tracing::error!("{error}");
            return self.reject(error);
        }
        match sources.compile(&self.options) {
            Ok((rules, warnings)) => {
                log_warnings(&warnings);
                last_attempt.without_files = without_files;
                let count = rules.rules().len();
                self.activate(rules);
                tracing::info!(rules = count, "rules reloaded");
            }
            Err(problems) => {
                log_problems(&problems);
                self.reject(texts(&problems).join("\n"));
            }
        }
    }

    /// Compiles a whole response together with the rules of files, and activates what is valid.
    /// Returns every reason against it (NACK), one line each; empty means ACK.
    pub(super) fn apply_xds(&self, _version: &str, _resources: &[XdsResource<'_>]) -> Vec<String> {
        Vec::new()
    }

    /// Replaces the active rules. Unchanged rules keep their metrics.
    fn activate(&self, rules: RuleSet) {
        let metrics = RuleMetrics::new(&rules, &self.snapshot().metrics, &self.budget);
        self.snapshot.store(Arc::new(RuleSnapshot { rules, metrics, loaded_at: self.clock.now() }));
        self.last_error.store(None);
        self.reloads.succeeded();
    }

    fn reject(&self, error: String) {
        self.last_error.store(Some(Arc::new(error)));
        self.reloads.failed();
        tracing::error!("rules not reloaded: the active rules stay");
    }

    fn last_attempt(&self) -> MutexGuard<'_, LastAttempt> {
        // A panic during a load leaves the record of the load before it, which is valid.
        self.last_attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log_warnings(warnings: &[RuleProblem]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

fn log_problems(problems: &[RuleProblem]) {
    for problem in problems {
        tracing::error!("{problem}");
    }
}
