//! `weir explain`: which rule a descriptor meets, and why; the service's own lookup, with a notebook.

use std::io::Write;

use smallvec::SmallVec;

use super::{ExplainArgs, check, exit};
use crate::descriptor::{Entry, split_lease};
use crate::rules::{Found, RuleSet};

/// Prints an explanation per descriptor; 0 also when no rule is met, because that is an answer.
pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let Some(rules) = check::load(&args.rules, &args.reading)? else { return Ok(exit::BAD_CONFIG) };
    let mut out = std::io::stdout().lock();
    for descriptor in &args.descriptors {
        let entries = descriptor.entries();
        match ended_lease(&rules, &args.domain, &entries) {
            Some((lease, others)) => {
                writeln!(out, "{}", rules.explain(&args.domain, &others))?;
                writeln!(out, "lease   ends `{lease}`; the entry is not part of the counter\n")?;
            }
            None => writeln!(out, "{}", rules.explain(&args.domain, &entries))?,
        }
    }
    Ok(0)
}

/// The lease that `entries` end, with the entries that lead to its rule.
fn ended_lease<'a>(
    rules: &RuleSet,
    domain: &str,
    entries: &[Entry<'a>],
) -> Option<(&'a str, SmallVec<[Entry<'a>; 8]>)> {
    let (lease, others) = split_lease(entries)?;
    match rules.find(domain, &others) {
        Found::Rule(rule) if rule.leases() => Some((lease, others)),
        _ => None,
    }
}
