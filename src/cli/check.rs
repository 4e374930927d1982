//! `weir check`: lists the problems of rule files and settings before they are deployed.

use std::io::Write;

use super::rule_source::{RuleSource, count};
use super::{CheckArgs, exit};

/// Lists every problem. Returns 0 if the files can be loaded, also with warnings.
pub(super) fn run(args: &CheckArgs) -> anyhow::Result<u8> {
    let source = RuleSource::new(args.config.as_deref(), &args.paths, &args.rule_options)?;
    let Some(rules) = source.and_then(|source| source.read()) else { return Ok(exit::NEGATIVE) };
    let changed = rules.rules().iter().filter(|rule| !rule.overlays.is_empty()).count();
    let (rules, files) = (rules.rules().len(), rules.files().len());
    let mut out = std::io::stdout().lock();
    write!(out, "ok: {} in {}", count(rules, "rule"), count(files, "file"))?;
    if changed > 0 {
        write!(out, ", {changed} changed by overlays")?;
    }
    writeln!(out)?;
    Ok(0)
}
