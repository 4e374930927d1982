//! `weir check`: lists the problems of rule files and settings before they are deployed.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{CheckArgs, RuleOptionArgs, exit, say};
use crate::rules::{self, Options, RuleSet, UnknownFields};
use crate::settings::{self, Flags, Settings};

/// Lists every problem. Returns 0 if the files can be loaded, also with warnings.
pub(super) fn run(args: &CheckArgs) -> anyhow::Result<u8> {
    let mut out = std::io::stdout().lock();
    let mut paths = args.paths.clone();
    let mut options = options(&args.rule_options);
    if let Some(file) = &args.config {
        let Some(settings) = settings(file) else { return Ok(exit::NEGATIVE) };
        options = settings.rules.options();
        options.merge_domains |= args.rule_options.merge_domains;
        if args.rule_options.allow_unknown_fields {
            options.unknown_fields = UnknownFields::Warn;
        }
        if paths.is_empty() {
            paths = settings.rules.paths;
        }
    }
    let Some(rules) = read(&paths, &options)? else { return Ok(exit::NEGATIVE) };
    let (rules, files) = (rules.rules().len(), rules.files().len());
    writeln!(out, "ok: {} in {}", count(rules, "rule"), count(files, "file"))?;
    Ok(0)
}

/// The settings as `weir serve --config FILE` reads them here. `None` if they are invalid; their
/// problems are then on standard error.
fn settings(file: &Path) -> Option<Settings> {
    let flags = Flags { config: Some(file.to_owned()), ..Flags::default() };
    match settings::load(&flags, &settings::process_env()) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
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
fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Reads rules and writes their problems to standard error. `None` if they cannot be used.
pub(super) fn load(paths: &[PathBuf], args: &RuleOptionArgs) -> anyhow::Result<Option<RuleSet>> {
    read(paths, &options(args))
}

fn options(args: &RuleOptionArgs) -> Options {
    let unknown_fields = match args.allow_unknown_fields {
        true => UnknownFields::Warn,
        false => UnknownFields::Error,
    };
    Options { merge_domains: args.merge_domains, unknown_fields, ..Options::default() }
}

fn read(paths: &[PathBuf], options: &Options) -> anyhow::Result<Option<RuleSet>> {
    for path in paths {
        // `weir serve` may wait for a missing folder. For this command it is an error.
        anyhow::ensure!(path.exists(), "{}: no such file or folder", path.display());
    }
    match rules::load(paths, options) {
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
