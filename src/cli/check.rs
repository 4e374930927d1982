//! `weir check`: lists the problems of rule files, settings and the files that settings name, before
//! they are deployed.

use std::io::Write;

use super::rule_source::{RuleSource, count};
use super::{CheckArgs, exit, say};
use crate::app;

/// Lists every problem. Returns 0 if the files can be loaded, also with warnings.
pub(super) fn run(args: &CheckArgs) -> anyhow::Result<u8> {
    let source = RuleSource::new(args.config.as_deref(), &args.paths, &args.rule_options)?;
    let Some(source) = source else { return Ok(exit::NEGATIVE) };
    let problems = source.settings.as_ref().map(app::check_files).unwrap_or_default();
    for problem in &problems {
        say(format_args!("{problem}"));
    }
    let Some(rules) = source.read()?.filter(|_| problems.is_empty()) else {
        return Ok(exit::NEGATIVE);
    };
    let plan_warnings = source.settings.as_ref().map(|one| app::plan_warnings(one, &rules));
    for warning in plan_warnings.unwrap_or_default() {
        say(format_args!("warning: {warning}"));
    }
    let changed = rules.rules().iter().filter(|rule| !rule.overlays().is_empty()).count();
    let (rules, files) = (rules.rules().len(), rules.files().len());
    let mut out = std::io::stdout().lock();
    write!(out, "ok: {} in {}", count(rules, "rule"), count(files, "file"))?;
    if changed > 0 {
        write!(out, ", {changed} changed by overlays")?;
    }
    writeln!(out)?;
    Ok(0)
}
