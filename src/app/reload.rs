//! The reload: when rules are read again, and what becomes of the rules in force.
//!
//! Good rules come into force at once and as a whole; bad ones change nothing and are shown until
//! they are mended. Files that are simply gone are no wish: a volume may be unmounted, or a folder
//! may be about to be filled. Whoever wants no limits says so, in a file or by SIGHUP.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;

use super::service::{ActiveRules, Service};
use super::watch::{Timing, Watcher};
use super::{StartError, texts};
use crate::rules::{RuleProblem, RuleSet, Sources};
use crate::settings::Settings;
use crate::telemetry::RuleReloads;
use crate::time::{Clock, Micros};

/// What a refusal of vanished files tells the operator to do.
const IF_MEANT: &str = "the rules in force stay; if you mean it, leave a file with `domain: NAME` \
                        alone, or send SIGHUP";

/// Why rules are read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The files have changed.
    Changed,
    /// Somebody asked for it: what is there is meant.
    Asked,
}

/// What became of the readings so far.
#[derive(Debug)]
pub(super) struct ReloadState {
    /// Why the last set that was read is not in force; a line per problem.
    pub(super) last_error: ArcSwapOption<String>,
    /// Sets that came into force after the first, and sets that did not.
    pub(super) loads: RuleReloads,
    /// Held while rules are read, so that an older set never follows a newer one.
    last_attempt: Mutex<LastAttempt>,
}

/// The set that was read last.
#[derive(Debug)]
struct LastAttempt {
    digest: u64,
    /// Paths that the rules in force do not come from.
    without_files: Vec<PathBuf>,
}

/// The rules to start with. Warnings are logged; problems end the start, unless the operator said
/// that it should go on without rules.
pub(super) fn first_rules(
    settings: &Settings,
    now: Micros,
) -> Result<(ActiveRules, ReloadState), StartError> {
    let sources = Sources::read(&settings.rules.paths);
    let digest = sources.digest();
    let without_files = sources.without_files().to_vec();
    let (rules, last_error) = match sources.compile(&settings.rules.options()) {
        Ok((rules, warnings)) => {
            warn(&warnings);
            (rules, None)
        }
        Err(problems) if settings.rules.start_without => {
            complain(&problems);
            tracing::error!("starting without rules: every request passes until they are mended");
            (RuleSet::default(), Some(texts(&problems).join("\n")))
        }
        Err(problems) => return Err(StartError::Config(texts(&problems))),
    };
    // No rules in force come from anywhere.
    let without_files = match last_error {
        Some(_) => settings.rules.paths.clone(),
        None => without_files,
    };
    let reloads = ReloadState {
        last_error: ArcSwapOption::from_pointee(last_error),
        loads: RuleReloads::default(),
        last_attempt: Mutex::new(LastAttempt { digest, without_files }),
    };
    Ok((ActiveRules::new(rules, now), reloads))
}

/// Reloads whenever the files have changed, if the operator wants that.
pub(super) fn watch(service: &Arc<Service>) -> io::Result<Option<Watcher>> {
    if !service.settings.rules.watch {
        return Ok(None);
    }
    let paths = service.settings.rules.paths.clone();
    let known = service.reloads.last_attempt().digest;
    let (looked_at, service) = (paths.clone(), service.clone());
    let look = move || Sources::read_once(&looked_at).digest();
    let changed = move || service.reload(Trigger::Changed);
    Watcher::start("weir-rules", paths, Timing::default(), known, look, changed).map(Some)
}

impl ReloadState {
    fn last_attempt(&self) -> std::sync::MutexGuard<'_, LastAttempt> {
        // A panic while rules were read leaves the record of the reading before.
        self.last_attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// Reads the rules again. Counters of rules that stay are kept, as their keys are.
    pub(super) fn reload(&self, trigger: Trigger) {
        let mut last_attempt = self.reloads.last_attempt();
        let sources = Sources::read(&self.settings.rules.paths);
        let digest = sources.digest();
        if trigger == Trigger::Changed && digest == last_attempt.digest {
            return;
        }
        last_attempt.digest = digest;
        let without_files = sources.without_files().to_vec();
        let gone = without_files.iter().find(|path| !last_attempt.without_files.contains(path));
        if let (Trigger::Changed, Some(path)) = (trigger, gone) {
            let error = format!("{}: its rule files are gone; {IF_MEANT}", path.display());
            tracing::error!("{error}");
            return self.refuse(error);
        }
        match sources.compile(&self.settings.rules.options()) {
            Ok((rules, warnings)) => {
                warn(&warnings);
                last_attempt.without_files = without_files;
                let count = rules.rules().len();
                let now = self.clock.now();
                self.activate(rules, now);
                self.reloads.last_error.store(None);
                self.reloads.loads.ok();
                tracing::info!(rules = count, "rules reloaded");
            }
            Err(problems) => {
                complain(&problems);
                self.refuse(texts(&problems).join("\n"));
            }
        }
    }

    fn refuse(&self, error: String) {
        self.reloads.last_error.store(Some(Arc::new(error)));
        self.reloads.loads.failed();
        tracing::error!("rules not reloaded: those in force stay");
    }
}

fn warn(warnings: &[RuleProblem]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

fn complain(problems: &[RuleProblem]) {
    for problem in problems {
        tracing::error!("{problem}");
    }
}
