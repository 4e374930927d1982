//! The rules that a command reads: those at the paths of its arguments, or those of the settings.

use std::path::{Path, PathBuf};

use super::{RuleOptionArgs, say};
use crate::rules::{Options, RuleSet, RuleSources, UnknownFields};
use crate::settings::{self, Flags, Settings};

/// Paths of rule files and overlays, and how they are read.
pub(super) struct RuleSource {
    paths: Vec<PathBuf>,
    overlay_paths: Vec<PathBuf>,
    options: Options,
    /// The settings, if they were read.
    pub(super) settings: Option<Settings>,
}

impl RuleSource {
    /// The rules at `paths`, or those of the settings if there are none. The settings are read if
    /// they have the paths, or if `config` names their file. `None` if they are invalid; their
    /// problems are then on standard error.
    ///
    /// # Errors
    ///
    /// A path of `paths` or of the flags that does not exist. `weir serve` may wait for a missing folder, and a
    /// missing folder of the settings is a warning here too.
    pub(super) fn new(
        config: Option<&Path>,
        paths: &[PathBuf],
        flags: &RuleOptionArgs,
    ) -> anyhow::Result<Option<RuleSource>> {
        let mut source = RuleSource {
            paths: paths.to_vec(),
            overlay_paths: flags.overlays.clone(),
            options: Options::default(),
            settings: None,
        };
        if config.is_some() || paths.is_empty() {
            let Some(settings) = settings(config) else { return Ok(None) };
            source.options = settings.rules.options();
            if paths.is_empty() {
                source.paths.clone_from(&settings.rules.paths);
            }
            if flags.overlays.is_empty() {
                source.overlay_paths.clone_from(&settings.rules.overlay_paths);
            }
            source.settings = Some(settings);
        }
        source.options.merge_domains |= flags.merge_domains;
        if flags.allow_unknown_fields {
            source.options.unknown_fields = UnknownFields::Warn;
        }
        for path in paths.iter().chain(&flags.overlays) {
            anyhow::ensure!(path.exists(), "{}: no such file or folder", path.display());
        }
        Ok(Some(source))
    }

    /// Reads the rules, and writes their problems to standard error. `None` if they cannot be used.
    pub(super) fn read(&self) -> Option<RuleSet> {
        match RuleSources::read(&self.paths, &self.overlay_paths).compile(&self.options) {
            Ok((rules, warnings)) => {
                for warning in warnings {
                    say(format_args!("warning: {warning}"));
                }
                Some(rules)
            }
            Err(problems) => {
                for problem in &problems {
                    say(format_args!("{problem}"));
                }
                say(format_args!("{}; nothing was loaded", count(problems.len(), "problem")));
                None
            }
        }
    }
}

/// The settings as `weir serve` reads them here. `None` if they are invalid.
fn settings(config: Option<&Path>) -> Option<Settings> {
    let flags = Flags { config: config.map(Path::to_owned), ..Flags::default() };
    let (env, warning) = settings::without_host(settings::process_env());
    match settings::load(&flags, &env) {
        Ok(loaded) => {
            for warning in loaded.warnings.iter().chain(&warning) {
                say(format_args!("warning: {warning}"));
            }
            Some(loaded.settings)
        }
        Err(problems) => {
            say(format_args!("{problems}"));
            None
        }
    }
}

/// A number with its noun: `3 rules`, `1 rule`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
