//! The rules that a command reads: those at the paths of its arguments, or those of the settings.

use std::fs;
use std::path::{Path, PathBuf};

use super::{RuleOptionArgs, say};
use crate::rules::{Options, RuleSet, RuleSources, UnknownFields, XdsRules};
use crate::settings::{self, Flags, Settings};

/// The first words of a cache of rules by xDS. Its first line is not part of the response.
const CACHE_START: &[u8] = b"weir-xds-cache ";

/// Paths of rule files and overlays, and how they are read.
pub(super) struct RuleSource {
    paths: Vec<PathBuf>,
    overlay_paths: Vec<PathBuf>,
    /// A cache of rules by xDS.
    xds: Option<PathBuf>,
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
            xds: flags.xds.clone(),
            options: Options::default(),
            settings: None,
        };
        if config.is_some() || paths.is_empty() {
            let Some(settings) = settings(config) else { return Ok(None) };
            let xds_limits_max = settings.xds.max_limits;
            source.options = Options { xds_limits_max, ..settings.rules.options() };
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
        all_exist(paths.iter().chain(&flags.overlays))?;
        Ok(Some(source))
    }

    /// The rules at other paths, with the same settings, options and cache of rules by xDS. Without
    /// `overlays`, those of the settings apply.
    ///
    /// # Errors
    ///
    /// A path that does not exist.
    pub(super) fn at(&self, paths: &[PathBuf], overlays: &[PathBuf]) -> anyhow::Result<RuleSource> {
        all_exist(paths.iter().chain(overlays))?;
        let of_settings = || self.settings.as_ref().map(|all| all.rules.overlay_paths.clone());
        let overlay_paths = match overlays {
            [] => of_settings().unwrap_or_default(),
            _ => overlays.to_vec(),
        };
        let (xds, options) = (self.xds.clone(), self.options);
        Ok(RuleSource { paths: paths.to_vec(), overlay_paths, xds, options, settings: None })
    }

    /// Reads the rules, and writes their problems to standard error. `None` if they cannot be used.
    ///
    /// # Errors
    ///
    /// A file of `--xds` that is not a cache of rules.
    pub(super) fn read(&self) -> anyhow::Result<Option<RuleSet>> {
        let mut sources = RuleSources::read(&self.paths, &self.overlay_paths);
        let mut compiled = sources.compile(&self.options);
        if let (Some(path), Ok((files, _))) = (&self.xds, &compiled) {
            sources.xds = self.cached(path, files)?;
            compiled = sources.compile(&self.options);
        }
        match compiled {
            Ok((rules, warnings)) => {
                for warning in warnings {
                    say(format_args!("warning: {warning}"));
                }
                Ok(Some(rules))
            }
            Err(problems) => {
                for problem in &problems {
                    say(format_args!("{problem}"));
                }
                say(format_args!("{}; nothing was loaded", count(problems.len(), "problem")));
                Ok(None)
            }
        }
    }

    /// The rules of a cache beside those of `files`. Their errors are warnings, because `weir serve`
    /// uses the valid parts.
    fn cached(&self, path: &Path, files: &RuleSet) -> anyhow::Result<XdsRules> {
        let name = path.display();
        let bytes = fs::read(path).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        let line_end = bytes.iter().position(|byte| *byte == b'\n');
        let line_end = line_end.filter(|_| bytes.starts_with(CACHE_START));
        let Some(line_end) = line_end else { anyhow::bail!("{name}: it is not a cache of weir") };
        let update = XdsRules::of_response(&bytes[line_end + 1..], files, &self.options);
        let update = update.map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        for problem in &update.problems {
            say(format_args!("warning: {problem}"));
        }
        Ok(update.rules)
    }
}

fn all_exist<'p>(mut paths: impl Iterator<Item = &'p PathBuf>) -> anyhow::Result<()> {
    paths.try_for_each(|path| {
        anyhow::ensure!(path.exists(), "{}: no such file or folder", path.display());
        Ok(())
    })
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
