//! `weir explain`: shows which rule a descriptor matches, and every step of the lookup.

use std::io::Write;

use super::rule_source::RuleSource;
use super::{ExplainArgs, exit};

/// Prints an explanation per descriptor. Returns 0 also if no rule matches, because the
/// explanation then gives the reason.
pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let source = RuleSource::new(args.config.as_deref(), &args.rules, &args.rule_options)?;
    let Some(rules) = source.and_then(|source| source.read()) else { return Ok(exit::BAD_CONFIG) };
    let mut out = std::io::stdout().lock();
    for descriptor in &args.descriptors {
        writeln!(out, "{}", rules.explain(&args.domain, &descriptor.entries()))?;
    }
    Ok(0)
}
