//! Targets: what each descriptor of a request leads to, before any counter is asked.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::counter_query::{CounterQuery, LeaseUse};
use super::lease::{self, LeaseIds};
use crate::decision::Cause;
use crate::descriptor::{Descriptor, Request, split_lease};
use crate::key::KeySeed;
use crate::limit::Limit;
use crate::rules::{self, Found, NameId, Policy, Rule, RuleSet};

/// What one descriptor leads to.
pub(super) enum Resolved<'r> {
    /// Nothing to count: the cause says why.
    Uncounted {
        /// The rule that was met, if any.
        rule: Option<&'r Rule>,
        /// Why nothing is counted.
        cause: Cause,
    },
    /// A counter to ask.
    Counter(CounterQuery<'r>),
}

/// The targets of a request, one per descriptor, with replaced rules already dropped.
pub(super) fn resolve<'r>(
    rules: &'r RuleSet,
    request: &Request<'_>,
    seed: &KeySeed,
    ids: &LeaseIds,
) -> Vec<Resolved<'r>> {
    let descriptors = request.descriptors.iter();
    let mut targets: Vec<_> = descriptors.map(|one| of(rules, request, one, seed)).collect();
    settle(&mut targets, ids);
    targets
}

/// What the targets of one request mean for each other.
pub(super) fn settle(targets: &mut [Resolved<'_>], ids: &LeaseIds) {
    drop_replaced(targets);
    open_leases(targets, ids);
}

/// One id for everything that the request takes under a lease: the caller hears of one only.
fn open_leases(targets: &mut [Resolved<'_>], ids: &LeaseIds) {
    let mut id = None;
    for target in targets {
        if let Resolved::Counter(CounterQuery {
            rule: Some(rule),
            hits: 1..,
            lease: lease @ None,
            ..
        }) = target
            && rule.leases()
        {
            *lease = Some(LeaseUse::Open(*id.get_or_insert_with(|| ids.next())));
        }
    }
}

/// What this descriptor of the request leads to, as long as the others are not looked at.
pub(super) fn of<'r>(
    rules: &'r RuleSet,
    request: &Request<'_>,
    descriptor: &Descriptor<'_>,
    seed: &KeySeed,
) -> Resolved<'r> {
    let hits = descriptor.hits(request.hits_addend);
    if let Some(target) = end_of_lease(rules, request, descriptor, seed) {
        return target;
    }
    let found = rules.find(request.domain, descriptor.entries);
    if matches!(found, Found::UnknownDomain) {
        return Resolved::Uncounted { rule: None, cause: Cause::UnknownDomain };
    }
    if let Some(sent) = descriptor.limit {
        let key = rules::override_key(seed, request.domain, descriptor.entries, sent.unit);
        let limit = Cow::Owned(sent.into());
        return Resolved::Counter(CounterQuery { rule: None, limit, key, hits, lease: None });
    }
    match found {
        Found::UnknownDomain | Found::Nothing => {
            Resolved::Uncounted { rule: None, cause: Cause::NoRule }
        }
        Found::Rule(rule) => match &rule.policy {
            Policy::Unlimited => {
                Resolved::Uncounted { rule: Some(rule), cause: Cause::Unlimited(rule.index) }
            }
            Policy::Limit(limit) => {
                let key = rule.key(seed, descriptor.entries);
                let limit = Cow::Borrowed(limit);
                Resolved::Counter(CounterQuery { rule: Some(rule), limit, key, hits, lease: None })
            }
        },
    }
}

/// The counter of a descriptor that names a lease, if its other entries lead to a rule that leases.
/// Elsewhere `lease` is a key like any other.
fn end_of_lease<'r>(
    rules: &'r RuleSet,
    request: &Request<'_>,
    descriptor: &Descriptor<'_>,
    seed: &KeySeed,
) -> Option<Resolved<'r>> {
    let (named, entries) = split_lease(descriptor.entries)?;
    let Found::Rule(rule) = rules.find(request.domain, &entries) else { return None };
    let Policy::Limit(limit) = &rule.policy else { return None };
    if !rule.leases() {
        return None;
    }
    let hits = descriptor.hits(request.hits_addend);
    Some(Resolved::Counter(CounterQuery {
        rule: Some(rule),
        limit: Cow::Borrowed(limit),
        key: rule.key(seed, &entries),
        // Envoy before 1.38 cannot send negative hits: the entry alone says what is meant.
        hits: if limit.counts_slots() { -hits.abs() } else { hits.abs() },
        lease: Some(LeaseUse::Close(lease::named(named))),
    }))
}

/// Drops every limited rule whose name some matched rule of the request replaces. Rules that are
/// themselves dropped still replace others, so the order of descriptors does not matter.
fn drop_replaced(targets: &mut [Resolved<'_>]) {
    let matched = || targets.iter().filter_map(Resolved::rule);
    if matched().all(|rule| rule.replaces.is_empty()) {
        return;
    }
    let replaced: SmallVec<[NameId; 4]> =
        matched().flat_map(|rule| &*rule.replaces).copied().collect();
    for target in targets {
        if let Resolved::Counter(CounterQuery { rule: Some(rule), .. }) = target
            && rule.name_id.is_some_and(|name| replaced.contains(&name))
        {
            *target = Resolved::Uncounted { rule: Some(rule), cause: Cause::Replaced(rule.index) };
        }
    }
}

impl<'r> Resolved<'r> {
    /// The rule that was met, if any.
    pub(super) fn rule(&self) -> Option<&'r Rule> {
        match self {
            Resolved::Uncounted { rule, .. } | Resolved::Counter(CounterQuery { rule, .. }) => {
                *rule
            }
        }
    }

    /// The limit that applies, where one does.
    pub(super) fn limit(&self) -> Option<&Limit> {
        match self {
            Resolved::Uncounted { .. } => None,
            Resolved::Counter(question) => Some(&question.limit),
        }
    }
}
