//! The reload: when rules are read again, and what becomes of the rules in force.
//!
//! Good rules come into force at once and as a whole; bad ones change nothing and are shown until
//! they are mended. Files that are simply gone are no wish: a volume may be unmounted, or a folder
//! may be about to be filled. Whoever wants no limits says so, in a file or by SIGHUP.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;

use super::decider::{Decider, InForce};
use super::watch::{Pace, Watcher};
use super::{StartError, derive, texts};
use crate::rules::{Problem, RuleSet, Sources};
use crate::settings::Settings;
use crate::telemetry::Loads;
use crate::time::{Clock, Micros};

/// What a refusal of vanished files tells the operator to do.
const IF_MEANT: &str = "the rules in force stay; if you mean it, leave a file with `domain: NAME` \
                        alone, or send SIGHUP";

/// Why rules are read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The files have changed.
    Changed,
    /// Somebody asked for it: what is there is meant.
    Asked,
}

/// What became of the readings so far.
#[derive(Debug)]
pub(super) struct Reloads {
    /// Why the last set that was read is not in force; a line per problem.
    pub(super) last_error: ArcSwapOption<String>,
    /// Sets that came into force after the first, and sets that did not.
    pub(super) loads: Loads,
    /// Held while rules are read, so that an older set never follows a newer one.
    tried: Mutex<Tried>,
}

/// The set that was read last.
#[derive(Debug)]
struct Tried {
    digest: u64,
    /// Paths that the rules in force do not come from.
    without_files: Vec<PathBuf>,
}

/// The rules to start with. Warnings are logged; problems end the start, unless the operator said
/// that it should go on without rules.
pub(super) fn first_rules(
    settings: &Settings,
    now: Micros,
) -> Result<(InForce, Reloads), StartError> {
    let sources = Sources::read(&settings.rules.paths);
    let digest = sources.digest();
    let without_files = sources.without_files().to_vec();
    let (rules, last_error) = match sources.compile(&derive::reading(settings)) {
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
    let reloads = Reloads {
        last_error: ArcSwapOption::from_pointee(last_error),
        loads: Loads::default(),
        tried: Mutex::new(Tried { digest, without_files }),
    };
    Ok((InForce::new(rules, now), reloads))
}

/// Reloads whenever the files have changed, if the operator wants that.
pub(super) fn watch(decider: &Arc<Decider>) -> io::Result<Option<Watcher>> {
    if !decider.settings.rules.watch {
        return Ok(None);
    }
    let paths = decider.settings.rules.paths.clone();
    let known = decider.reloads.tried().digest;
    let (looked_at, decider) = (paths.clone(), decider.clone());
    let look = move || Sources::read_once(&looked_at).digest();
    let changed = move || decider.reload(Why::Changed);
    Watcher::start("weir-rules", paths, Pace::default(), known, look, changed).map(Some)
}

impl Reloads {
    fn tried(&self) -> std::sync::MutexGuard<'_, Tried> {
        // A panic while rules were read leaves the record of the reading before.
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Decider {
    /// Reads the rules again. Counters of rules that stay are kept, as their keys are.
    pub(super) fn reload(&self, why: Why) {
        let mut tried = self.reloads.tried();
        let sources = Sources::read(&self.settings.rules.paths);
        let digest = sources.digest();
        if why == Why::Changed && digest == tried.digest {
            return;
        }
        tried.digest = digest;
        let without_files = sources.without_files().to_vec();
        let gone = without_files.iter().find(|path| !tried.without_files.contains(path));
        if let (Why::Changed, Some(path)) = (why, gone) {
            let error = format!("{}: its rule files are gone; {IF_MEANT}", path.display());
            tracing::error!("{error}");
            return self.refuse(error);
        }
        match sources.compile(&derive::reading(&self.settings)) {
            Ok((rules, warnings)) => {
                warn(&warnings);
                tried.without_files = without_files;
                let count = rules.rules().len();
                let now = self.limiter.clock().now();
                self.put_in_force(rules, now);
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

fn warn(warnings: &[Problem]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

fn complain(problems: &[Problem]) {
    for problem in problems {
        tracing::error!("{problem}");
    }
}
