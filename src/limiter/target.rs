//! Targets: what each descriptor of a request leads to, before any counter is asked.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::decision::Cause;
use crate::descriptor::{Descriptor, Request};
use crate::key::{Key, KeySeed};
use crate::limit::Limit;
use crate::rules::{self, Found, NameId, Policy, Rule, RuleSet};

/// What one descriptor leads to.
pub(super) enum Target<'r> {
    /// Nothing to count: the cause says why.
    Free {
        /// The rule that was met, if any.
        rule: Option<&'r Rule>,
        /// Why nothing is counted.
        cause: Cause,
    },
    /// A counter to ask.
    Counter {
        /// The rule that was met; none for a limit that the proxy sent.
        rule: Option<&'r Rule>,
        /// What to hold the counter against.
        limit: Cow<'r, Limit>,
        /// Which counter.
        key: Key,
        /// What to ask of it.
        hits: i64,
    },
}

/// The targets of a request, one per descriptor, with replaced rules already dropped.
pub(super) fn resolve<'r>(
    rules: &'r RuleSet,
    request: &Request<'_>,
    seed: &KeySeed,
) -> SmallVec<[Target<'r>; 4]> {
    let mut targets: SmallVec<[Target<'r>; 4]> =
        request.descriptors.iter().map(|one| target(rules, request, one, seed)).collect();
    drop_replaced(&mut targets);
    targets
}

fn target<'r>(
    rules: &'r RuleSet,
    request: &Request<'_>,
    descriptor: &Descriptor<'_>,
    seed: &KeySeed,
) -> Target<'r> {
    let hits = descriptor.hits(request.hits_addend);
    let found = rules.find(request.domain, descriptor.entries);
    if matches!(found, Found::UnknownDomain) {
        return Target::Free { rule: None, cause: Cause::UnknownDomain };
    }
    if let Some(sent) = descriptor.limit {
        let key = rules::override_key(seed, request.domain, descriptor.entries, sent.unit);
        return Target::Counter { rule: None, limit: Cow::Owned(sent.into()), key, hits };
    }
    match found {
        Found::UnknownDomain | Found::Nothing => Target::Free { rule: None, cause: Cause::NoRule },
        Found::Rule(rule) => match &rule.policy {
            Policy::Unlimited => {
                Target::Free { rule: Some(rule), cause: Cause::Unlimited(rule.index) }
            }
            Policy::Limit(limit) => {
                let key = rule.key(seed, descriptor.entries);
                Target::Counter { rule: Some(rule), limit: Cow::Borrowed(limit), key, hits }
            }
        },
    }
}

/// Drops every limited rule whose name some matched rule of the request replaces. Rules that are
/// themselves dropped still replace others, so the order of descriptors does not matter.
fn drop_replaced(targets: &mut [Target<'_>]) {
    let replaced: SmallVec<[NameId; 4]> =
        targets.iter().filter_map(Target::rule).flat_map(|rule| &*rule.replaces).copied().collect();
    if replaced.is_empty() {
        return;
    }
    for target in targets {
        if let Target::Counter { rule: Some(rule), .. } = target
            && rule.name_id.is_some_and(|name| replaced.contains(&name))
        {
            *target = Target::Free { rule: Some(rule), cause: Cause::Replaced(rule.index) };
        }
    }
}

impl<'r> Target<'r> {
    fn rule(&self) -> Option<&'r Rule> {
        match self {
            Target::Free { rule, .. } | Target::Counter { rule, .. } => *rule,
        }
    }
}
