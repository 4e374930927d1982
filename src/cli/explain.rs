//! `weir explain`: which rule a descriptor meets, and why; the service's own lookup, with a notebook.

use std::io::Write;

use super::{ExplainArgs, check, exit};

/// Prints an explanation per descriptor; 0 also when no rule is met, because that is an answer.
pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let Some(rules) = check::load(&args.rules, &args.reading)? else { return Ok(exit::BAD_CONFIG) };
    let mut out = std::io::stdout().lock();
    for descriptor in &args.descriptors {
        writeln!(out, "{}", rules.explain(&args.domain, &descriptor.entries()))?;
    }
    Ok(0)
}
