//! `weir check`: everything that is wrong with rule files, before they are live.

use std::io::Write;

use super::{CheckArgs, ReadingArgs, exit, say};
use crate::rules::{self, Options, RuleSet, Unknown};

/// Lists every problem; 0 when there is none that keeps the files from being loaded.
pub(super) fn run(args: &CheckArgs) -> anyhow::Result<u8> {
    let mut out = std::io::stdout().lock();
    let Some(rules) = load(&args.paths, &args.reading)? else { return Ok(exit::NO) };
    let (rules, files) = (rules.rules().len(), rules.files().len());
    writeln!(out, "ok: {} in {}", count(rules, "rule"), count(files, "file"))?;
    Ok(0)
}

/// `3 rules`, `1 rule`.
fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Reads rules and writes what is wrong with them to standard error; none if they cannot be used.
pub(super) fn load(
    paths: &[std::path::PathBuf],
    reading: &ReadingArgs,
) -> anyhow::Result<Option<RuleSet>> {
    for path in paths {
        // An absent folder is fine for a service that waits for its rules, not for a question.
        anyhow::ensure!(path.exists(), "{}: no such file or folder", path.display());
    }
    let unknown_fields = match reading.allow_unknown_fields {
        true => Unknown::Warn,
        false => Unknown::Error,
    };
    let options =
        Options { merge_domains: reading.merge_domains, unknown_fields, ..Options::default() };
    match rules::load(paths, &options) {
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
