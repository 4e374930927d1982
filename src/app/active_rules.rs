//! The active rules, their metrics and their reloads.
//!
//! A reload replaces all rules of files at once. Invalid files and overlays change nothing; their error
//! is shown until a reload succeeds. A missing file does not remove its rules, because an unmounted
//! volume looks the same. To remove all rules, keep a file that contains only `domain: NAME`, or send
//! SIGHUP.
//!
//! A response by xDS replaces all rules by xDS, except for its invalid parts. Files and xDS each keep
//! the rules of the other.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use super::watch::{Timing, Watcher};
use super::{StartError, texts};
use crate::escape::{excerpt, one_line};
use crate::rules::{Options, RuleProblem, RuleSet, RuleSources, XdsResource};
use crate::settings::Settings;
use crate::telemetry::{Exposition, RuleMetrics, RuleReloads, SeriesBudget};
use crate::time::{Clock, Micros, SystemClock};

#[cfg(test)]
mod tests;

/// The fix in the error about missing rule files.
const MISSING_FILES_HINT: &str = "the active rules stay; to remove all rules, keep a file that \
                                  contains only `domain: NAME`, or send SIGHUP";

/// Most bytes of the reasons against one xDS response. weir sends them in one message, and the control
/// plane logs them.
const REASONS_BYTES_MAX: usize = 4 << 10;

/// Longest reason against an xDS response, in characters: the name of a resource may be long.
const REASON_CHARS_MAX: usize = 1_000;

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
    /// The warnings about the rules, one text each.
    pub(super) warnings: Vec<String>,
    /// When the rules were read.
    pub(super) loaded_at: Micros,
}

/// The active rules. Readers take a snapshot, which a reload does not change.
pub(super) struct ActiveRules {
    paths: Vec<PathBuf>,
    overlay_paths: Vec<PathBuf>,
    options: Options,
    clock: SystemClock,
    budget: Arc<SeriesBudget>,
    snapshot: ArcSwap<RuleSnapshot>,
    /// The problems of the last load of files, one per line. `None` if it succeeded.
    last_error: ArcSwapOption<String>,
    /// The reasons against the last response by xDS, one per line. `None` if there are none.
    xds_error: ArcSwapOption<String>,
    reloads: RuleReloads,
    /// Whether the first load succeeded. False only with `rules.start_without_rules`.
    first_load_ok: bool,
    /// Locked during a load, so that an older set never replaces a newer one.
    last_attempt: Mutex<LastAttempt>,
}

/// What the last loads read.
#[derive(Debug)]
struct LastAttempt {
    /// The hash of the files and overlays, also of invalid ones.
    digest: u64,
    /// The paths from which no active rule was loaded.
    without_files: Vec<PathBuf>,
    /// The sources of the active rules.
    active: RuleSources,
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
        let overlay_paths = settings.rules.overlay_paths.clone();
        let mut sources = RuleSources::read(&paths, &overlay_paths);
        let digest = sources.digest();
        let mut without_files = sources.without_files();
        let (rules, warnings, error) = match sources.compile(&options) {
            Ok((rules, warnings)) => (rules, texts(&warnings), None),
            Err(problems) if settings.rules.start_without_rules => {
                log_problems(&problems);
                tracing::error!("started without rules: every request passes until a reload");
                without_files = [&paths[..], &overlay_paths[..]].concat();
                sources = RuleSources::default();
                (RuleSet::default(), Vec::new(), Some(texts(&problems).join("\n")))
            }
            Err(problems) => return Err(StartError::Config(texts(&problems))),
        };
        let metrics = RuleMetrics::new(&rules, &RuleMetrics::default(), &budget);
        log_new_warnings(&warnings, &[]);
        let first = RuleSnapshot { rules, metrics, warnings, loaded_at: clock.now() };
        Ok(ActiveRules {
            paths,
            overlay_paths,
            options,
            clock,
            budget,
            snapshot: ArcSwap::from_pointee(first),
            first_load_ok: error.is_none(),
            last_error: ArcSwapOption::from_pointee(error),
            xds_error: ArcSwapOption::empty(),
            reloads: RuleReloads::default(),
            last_attempt: Mutex::new(LastAttempt { digest, without_files, active: sources }),
        })
    }

    /// Reloads the rules whenever the content of their files or overlays changes.
    pub(super) fn watch(self: &Arc<ActiveRules>) -> io::Result<Watcher> {
        let known = self.last_attempt().digest;
        let (paths, overlay_paths) = (self.paths.clone(), self.overlay_paths.clone());
        let watched = [&paths[..], &overlay_paths[..]].concat();
        let rules = Arc::clone(self);
        let digest = move || RuleSources::digest_of(&paths, &overlay_paths);
        let changed = move || rules.reload(Trigger::FileChange);
        Watcher::start("weir-rules", watched, Timing::default(), known, digest, changed)
    }

    /// The active rules, for use within a few microseconds: by a request or a page.
    pub(super) fn snapshot(&self) -> Guard<Arc<RuleSnapshot>> {
        self.snapshot.load()
    }

    /// The active rules, for work that takes longer than a few microseconds.
    pub(super) fn snapshot_owned(&self) -> Arc<RuleSnapshot> {
        self.snapshot.load_full()
    }

    /// The problems of the last load of files, one per line. `None` if it succeeded.
    pub(super) fn last_error(&self) -> Option<Arc<String>> {
        self.last_error.load_full()
    }

    /// The reasons against the last response by xDS, one per line. `None` if there are none.
    pub(super) fn xds_error(&self) -> Option<Arc<String>> {
        self.xds_error.load_full()
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
        let mut sources = RuleSources::read(&self.paths, &self.overlay_paths);
        sources.xds.clone_from(&last_attempt.active.xds);
        let digest = sources.digest();
        if trigger == Trigger::FileChange && digest == last_attempt.digest {
            return;
        }
        last_attempt.digest = digest;
        let without_files = sources.without_files();
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
                last_attempt.without_files = without_files;
                last_attempt.active = sources;
                let count = rules.rules().len();
                self.activate(rules, &warnings);
                self.last_error.store(None);
                self.reloads.succeeded();
                tracing::info!(rules = count, "rules reloaded");
            }
            Err(problems) => {
                log_problems(&problems);
                self.reject(texts(&problems).join("\n"));
            }
        }
    }

    /// Compiles a whole response together with the rules of files, and activates what is valid.
    /// Returns every reason against it (NACK), one line each, of about 4 KiB in all; empty means ACK.
    /// This takes about as long as a reload of files, so it needs a thread that may block.
    pub(super) fn apply_xds(&self, version: &str, resources: &[XdsResource<'_>]) -> Vec<String> {
        let mut last_attempt = self.last_attempt();
        let active = &mut last_attempt.active;
        let now = self.snapshot_owned();
        let (xds, mut problems) = active.xds.update(version, resources, &now.rules, &self.options);
        // A control plane may repeat a response that was rejected.
        if xds != active.xds {
            let before = std::mem::replace(&mut active.xds, xds);
            match active.compile(&self.options) {
                Ok((rules, warnings)) => self.activate(rules, &warnings),
                Err(more) => {
                    active.xds = before;
                    problems.extend(more);
                }
            }
        }
        self.record_xds(&problems);
        bounded(&texts(&problems))
    }

    /// Records the reasons against a response by xDS. Repeated reasons are logged once.
    fn record_xds(&self, problems: &[RuleProblem]) {
        if problems.is_empty() {
            self.xds_error.store(None);
            return self.reloads.succeeded();
        }
        let error = texts(problems).join("\n");
        if self.xds_error().is_none_or(|before| *before != error) {
            log_problems(problems);
        }
        self.xds_error.store(Some(Arc::new(error)));
        self.reloads.failed();
    }

    /// Replaces the active rules. Unchanged rules keep their metrics. Logs the warnings that the rules
    /// before did not have.
    fn activate(&self, rules: RuleSet, warnings: &[RuleProblem]) {
        let before = self.snapshot_owned();
        let warnings = texts(warnings);
        log_new_warnings(&warnings, &before.warnings);
        let metrics = RuleMetrics::new(&rules, &before.metrics, &self.budget);
        let loaded_at = self.clock.now();
        self.snapshot.store(Arc::new(RuleSnapshot { rules, metrics, warnings, loaded_at }));
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

/// The first of `lines`, up to [`REASONS_BYTES_MAX`] in all, and the number of the others.
fn bounded(lines: &[String]) -> Vec<String> {
    let short = |line: &String| excerpt(line, REASON_CHARS_MAX);
    let mut lines: Vec<String> = lines.iter().map(short).collect();
    let mut bytes = 0;
    let fits = lines.iter().take_while(|line| {
        bytes += line.len() + 1;
        bytes <= REASONS_BYTES_MAX
    });
    let listed = fits.count();
    let others = lines.len() - listed;
    if others > 0 {
        lines.truncate(listed);
        lines.push(format!("and {others} more"));
    }
    lines
}

/// Logs the warnings that are not in `before`.
fn log_new_warnings(warnings: &[String], before: &[String]) {
    let before: HashSet<&String> = before.iter().collect();
    for warning in warnings.iter().filter(|warning| !before.contains(warning)) {
        tracing::warn!("{warning}");
    }
}

fn log_problems(problems: &[RuleProblem]) {
    for problem in problems {
        tracing::error!("{problem}");
    }
}
