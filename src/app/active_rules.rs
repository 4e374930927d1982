//! The active rules, their metrics and their reloads.
//!
//! A reload replaces all rules of files at once. Invalid files and overlays change nothing; their error
//! is shown until a reload succeeds. A missing file does not remove its rules, because an unmounted
//! volume looks the same. To remove all rules, keep a file that contains only `domain: NAME`, or send
//! SIGHUP.
//!
//! A response by xDS replaces all rules by xDS, except for its invalid parts. Files and xDS each keep
//! the rules of the other. A domain of both is that of the source that had it first: files that add a
//! domain of xDS are refused like invalid ones, and a response with a domain of a file is rejected. The
//! response in which xDS gives up the domain also activates the refused files, so that the domain is
//! never without rules.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use super::watch::{Timing, Watcher};
use super::{StartError, texts};
use crate::escape::one_line;
use crate::rules::{
    Options, RuleProblem, RuleSet, RuleSources, XdsOutcome, XdsResource, XdsRules, XdsUpdate,
    domains_by_xds,
};
use crate::settings::Settings;
use crate::telemetry::{Exposition, RuleMetrics, RuleReloads, SeriesBudget};
use crate::time::{Clock, Micros, SystemClock};

mod logged_texts;
mod reasons;
mod rule_users;
#[cfg(test)]
mod tests;
mod trigger;

pub(super) use trigger::Trigger;

use logged_texts::{LoggedTexts, log_new_warnings, log_problems};
use reasons::bounded;
use rule_users::RuleUsers;

/// The fix in the error about missing rule files.
const MISSING_FILES_HINT: &str = "the active rules stay; to remove all rules, keep a file that \
                                  contains only `domain: NAME`, or send SIGHUP";

/// One set of rules, and the metrics of each rule.
pub(super) struct RuleSnapshot {
    /// The number of rule sets that were active before.
    pub(super) version: u64,
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
    users: RuleUsers,
    /// Earlier snapshots, until no request uses them: freeing many rules takes longer than a request.
    retired: Mutex<Vec<Arc<RuleSnapshot>>>,
    /// Whether the first load succeeded. False only with `rules.start_without_rules`.
    first_load_ok: bool,
    /// Whether a server sends rules.
    has_xds: bool,
    /// Locked while the files are read and loaded, so that older files never replace newer ones. Taken
    /// before `load_state`.
    reading: Mutex<()>,
    /// Locked during a load, but not while files are read: a hanging volume does not delay rules by
    /// xDS.
    load_state: Mutex<LoadState>,
}

/// Compiled rules, and the warnings about them.
type CompiledRules = (RuleSet, Vec<RuleProblem>);

/// What the last loads read.
#[derive(Debug)]
struct LoadState {
    /// The hash of the files and overlays, also of invalid ones.
    digest: u64,
    /// The paths from which no active rule was loaded.
    without_files: Vec<PathBuf>,
    /// The last files and overlays, if they are valid but define a domain of xDS. Without rules by xDS.
    refused: Option<RuleSources>,
    /// The sources of the active rules; empty if no server sends rules, with which they would be compiled
    /// again.
    active: RuleSources,
    logged: LoggedTexts,
}

impl ActiveRules {
    /// Loads the first rules. Statistics by value take their series from `budget`.
    ///
    /// # Errors
    /// The problems of the rule files and overlays, unless `rules.start_without_rules` is set and no
    /// server sends rules by xDS: these must not become active without their overlays.
    pub(super) fn load(
        settings: &Settings,
        budget: Arc<SeriesBudget>,
        clock: SystemClock,
    ) -> Result<ActiveRules, StartError> {
        let paths = settings.rules.paths.clone();
        let xds_limits_max = settings.xds.max_limits;
        let options = Options { xds_limits_max, ..settings.rules.options() };
        let has_xds = settings.xds.server.is_some();
        let forgives = settings.rules.start_without_rules && !has_xds;
        let overlay_paths = settings.rules.overlay_paths.clone();
        let mut sources = RuleSources::read(&paths, &overlay_paths);
        let digest = sources.digest();
        let mut without_files = sources.without_files();
        // Only rules by xDS are compiled again with the texts of the files.
        let compiled =
            if has_xds { sources.compile(&options) } else { sources.compile_once(&options, None) };
        let (rules, warnings, error) = match compiled {
            Ok((rules, warnings)) => (rules, texts(&warnings), None),
            Err(problems) if forgives => {
                log_problems(&problems);
                tracing::error!("started without rules: every request passes until a reload");
                without_files = [&paths[..], &overlay_paths[..]].concat();
                sources = RuleSources::default();
                (RuleSet::default(), Vec::new(), Some(texts(&problems).join("\n")))
            }
            Err(problems) => return Err(StartError::Config(texts(&problems))),
        };
        let metrics = RuleMetrics::new(&rules, &RuleMetrics::default(), &budget);
        let mut logged = LoggedTexts::default();
        log_new_warnings(&warnings, &[], &mut logged, clock.now());
        let first = RuleSnapshot { version: 0, rules, metrics, warnings, loaded_at: clock.now() };
        Ok(ActiveRules {
            paths,
            overlay_paths,
            options,
            clock,
            budget,
            snapshot: ArcSwap::from_pointee(first),
            first_load_ok: error.is_none(),
            has_xds,
            last_error: ArcSwapOption::from_pointee(error),
            xds_error: ArcSwapOption::empty(),
            reloads: RuleReloads::default(),
            users: RuleUsers::default(),
            retired: Mutex::default(),
            reading: Mutex::default(),
            load_state: Mutex::new(LoadState {
                digest,
                without_files,
                refused: None,
                active: if has_xds { sources } else { RuleSources::default() },
                logged,
            }),
        })
    }

    /// Reloads the rules whenever the content of their files or overlays changes.
    pub(super) fn watch(self: &Arc<ActiveRules>) -> io::Result<Watcher> {
        let known = self.load_state().digest;
        let (paths, overlay_paths) = (self.paths.clone(), self.overlay_paths.clone());
        let watched = [&paths[..], &overlay_paths[..]].concat();
        let (rules, freed_from) = (Arc::clone(self), Arc::clone(self));
        let digest = move || {
            // This thread has the time to free rules.
            freed_from.free_retired();
            RuleSources::digest_of(&paths, &overlay_paths)
        };
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
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sources = RuleSources::read(&self.paths, &self.overlay_paths);
        let digest = sources.digest();
        let mut load_state = self.load_state();
        if trigger == Trigger::FileChange && digest == load_state.digest {
            return;
        }
        load_state.digest = digest;
        load_state.refused = None;
        let without_files = sources.without_files();
        let missing = without_files.iter().find(|path| !load_state.without_files.contains(path));
        if let (Trigger::FileChange, Some(path)) = (trigger, missing) {
            let path = path.display().to_string();
            let path = one_line(&path);
            let error = format!("{path}: its rule files are gone; {MISSING_FILES_HINT}");
            tracing::error!("{error}");
            return self.reject(error);
        }
        let now = self.snapshot_owned();
        let earlier = Some(&now.rules);
        let compiled = match self.has_xds {
            true => sources.compile_with(&load_state.active.xds, &self.options, earlier),
            false => sources.compile_once(&self.options, earlier),
        };
        match compiled {
            Ok(compiled) => {
                let clashes = domains_by_xds(&now.rules, &compiled.0);
                if clashes.is_empty() {
                    let xds = load_state.active.xds.clone();
                    let sources = RuleSources { xds, ..sources };
                    return self.activate_files(sources, compiled, &mut load_state);
                }
                load_state.refused = Some(sources);
                log_problems(&clashes);
                self.reject(texts(&clashes).join("\n"));
            }
            Err(problems) => {
                log_problems(&problems);
                self.reject(texts(&problems).join("\n"));
            }
        }
    }

    /// Activates the rules that new files and the rules by xDS in `sources` were compiled to.
    fn activate_files(
        &self,
        sources: RuleSources,
        (rules, warnings): CompiledRules,
        load_state: &mut LoadState,
    ) {
        let count = rules.rules().len();
        self.activate(rules, &warnings, &mut load_state.logged);
        // Not before: after a panic, the same files or the same response must not look active.
        load_state.without_files = sources.without_files();
        load_state.active = if self.has_xds { sources } else { RuleSources::default() };
        load_state.refused = None;
        self.last_error.store(None);
        self.reloads.succeeded();
        tracing::info!(rules = count, "rules reloaded");
    }

    /// Compiles a whole response together with the rules of files, and activates what is valid. The
    /// outcome has every reason against it. This takes about as long as a reload of files, so it needs
    /// a thread that may block.
    pub(super) fn apply_xds(&self, version: &str, resources: &[XdsResource<'_>]) -> XdsOutcome {
        let mut load_state = self.load_state();
        let sources = &load_state.active;
        let now = self.snapshot_owned();
        let XdsUpdate { rules: xds, mut problems, kept, dropped } =
            sources.xds.update(version, resources, &now.rules, &self.options);
        // A control plane may repeat a response, also under a new version.
        if xds != sources.xds {
            match sources.compile_with(&xds, &self.options, Some(&now.rules)) {
                Ok(compiled) => self.activate_xds(xds, compiled, &mut load_state),
                Err(more) => problems.extend(more),
            }
        }
        let reasons = bounded(&texts(&problems));
        self.record_xds(&reasons, &mut load_state.logged);
        XdsOutcome { reasons, kept, dropped }
    }

    /// Activates new rules by xDS, which were compiled with the active files, or with the refused ones if
    /// these define no domain of xDS any more.
    fn activate_xds(
        &self,
        xds: XdsRules,
        (rules, warnings): CompiledRules,
        load_state: &mut LoadState,
    ) {
        if let Some(files) = &load_state.refused
            && let Some(compiled) = self.compile_refused(files, &xds, &rules)
        {
            let sources = RuleSources { xds, ..files.clone() };
            return self.activate_files(sources, compiled, load_state);
        }
        self.activate(rules, &warnings, &mut load_state.logged);
        // Not before: after a panic, the same response must not look active.
        load_state.active.xds = xds;
    }

    /// The refused files, compiled with new rules by xDS. `None` while they define a domain that is by xDS
    /// in `rules`; the error then shows these domains.
    fn compile_refused(
        &self,
        files: &RuleSources,
        xds: &XdsRules,
        rules: &RuleSet,
    ) -> Option<CompiledRules> {
        let compiled = files.compile_with(xds, &self.options, Some(rules)).ok()?;
        let clashes = domains_by_xds(rules, &compiled.0);
        if clashes.is_empty() {
            return Some(compiled);
        }
        self.last_error.store(Some(Arc::new(texts(&clashes).join("\n"))));
        None
    }

    /// The active rules by xDS as encoded resources. A response with them gives the same rules.
    pub(super) fn xds_resources(&self) -> Vec<Vec<u8>> {
        // The domains share their memory, so that the lock is short.
        let xds: XdsRules = self.load_state().active.xds.clone();
        xds.resources()
    }

    /// Frees the earlier snapshots that no request uses.
    fn free_retired(&self) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|snapshot| Arc::strong_count(snapshot) > 1);
    }

    /// Records the reasons against a response by xDS. Repeated reasons are logged once.
    fn record_xds(&self, reasons: &[String], logged: &mut LoggedTexts) {
        if reasons.is_empty() {
            self.xds_error.store(None);
            return self.reloads.succeeded();
        }
        let now = self.clock.now();
        for reason in reasons.iter().filter(|reason| logged.is_new(reason, now)) {
            tracing::error!("{reason}");
        }
        self.xds_error.store(Some(Arc::new(reasons.join("\n"))));
        self.reloads.failed();
    }

    /// Replaces the active rules. Unchanged rules keep their metrics. Logs the warnings that the rules
    /// before did not have.
    fn activate(&self, rules: RuleSet, warnings: &[RuleProblem], logged: &mut LoggedTexts) {
        let before = self.snapshot_owned();
        let warnings = texts(warnings);
        let now = self.clock.now();
        log_new_warnings(&warnings, &before.warnings, logged, now);
        let metrics = RuleMetrics::new(&rules, &before.metrics, &self.budget);
        let prepared = self.users.prepare(&rules);
        let version = before.version + 1;
        let next = RuleSnapshot { version, rules, metrics, warnings, loaded_at: now };
        self.snapshot.store(Arc::new(next));
        drop(prepared);
        self.free_retired();
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).push(before);
    }

    fn reject(&self, error: String) {
        self.last_error.store(Some(Arc::new(error)));
        self.reloads.failed();
        tracing::error!("rules not reloaded: the active rules stay");
    }

    fn load_state(&self) -> MutexGuard<'_, LoadState> {
        // A panic during a load leaves the record of the load before it, which is valid.
        self.load_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
