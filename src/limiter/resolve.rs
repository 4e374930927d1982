//! Resolves the descriptors of a request: finds their rules and counters.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::changed::{ChangesNow, changed_limit};
use super::lease_id::{self, LeaseIds};
use super::pending::PendingDescriptor;
use super::planned::LimitFinder;
use super::resolved::{CounterQuery, LeaseUse, ResolvedDescriptor};
use crate::decision::DecisionReason;
use crate::descriptor::{Descriptor, Entry, Request, split_lease};
use crate::key::KeySeed;
use crate::rules::{self, Found, NameId, Rule, RuleLimit, RuleSet};

/// Assigns one lease id to all leases that the request opens, because the response carries only
/// one.
pub(super) fn open_leases(pending: &mut [PendingDescriptor<'_>], ids: &LeaseIds) {
    let mut id = None;
    for one in pending {
        if let ResolvedDescriptor::Counter(CounterQuery {
            rule: Some(rule),
            hits: 1..,
            lease: lease @ None,
            ..
        }) = &mut one.resolved
            && rule.leases()
        {
            *lease = Some(LeaseUse::Open(*id.get_or_insert_with(|| ids.next())));
        }
    }
}

/// Resolves one descriptor, regardless of the others of its request. `changes` is `None` while there are
/// no temporary changes.
#[inline]
pub(super) fn descriptor<'r, 'd>(
    rules: &'r RuleSet,
    request: &Request<'_>,
    descriptor: &Descriptor<'d>,
    seed: &KeySeed,
    changes: Option<ChangesNow<'_>>,
    limits: &mut LimitFinder<'_, 'd>,
) -> ResolvedDescriptor<'r> {
    let hits = descriptor.hits(request.hits_addend);
    if let Some(resolved) = closing_lease(rules, request, descriptor, seed, changes, limits) {
        return resolved;
    }
    let found = rules.find(request.domain, descriptor.entries);
    let mut change = None;
    if let Some(changes) = changes {
        let rule = match found {
            Found::Rule(rule) => Some(rule),
            Found::UnknownDomain | Found::NoRule => None,
        };
        change = changes.of(rule, request.domain, descriptor.entries);
        let without_counter = change.and_then(|change| changes.without_counter(change, rule, hits));
        if let Some(resolved) = without_counter {
            return resolved;
        }
    }
    if matches!(found, Found::UnknownDomain) {
        return ResolvedDescriptor::Uncounted { rule: None, reason: DecisionReason::UnknownDomain };
    }
    if let Some(sent) = descriptor.limit {
        let key = rules::override_key(seed, request.domain, descriptor.entries, sent.unit);
        let (limit, is_changed) = (Cow::Owned(sent.into()), false);
        let query = CounterQuery { rule: None, limit, is_changed, key, hits, lease: None };
        return ResolvedDescriptor::Counter(query);
    }
    match found {
        Found::UnknownDomain | Found::NoRule => {
            ResolvedDescriptor::Uncounted { rule: None, reason: DecisionReason::NoRule }
        }
        Found::Rule(rule) => match &rule.limit {
            RuleLimit::Unlimited => {
                let reason = DecisionReason::Unlimited(rule.index);
                ResolvedDescriptor::Uncounted { rule: Some(rule), reason }
            }
            RuleLimit::Limit(limit) => {
                let changed = changed_limit(change, limit);
                let is_changed = changed.is_some();
                let found = changed.or_else(|| limits.limit(rule, limit, descriptor.entries));
                let Some(limit) = found else {
                    let reason = DecisionReason::Unlimited(rule.index);
                    return ResolvedDescriptor::Uncounted { rule: Some(rule), reason };
                };
                let hits = rule.weigh(hits, descriptor.entries);
                let key = rule.key(seed, descriptor.entries);
                let rule = Some(rule);
                let query = CounterQuery { rule, limit, is_changed, key, hits, lease: None };
                ResolvedDescriptor::Counter(query)
            }
        },
    }
}

/// The rule of a descriptor that closes a lease, the id of the lease, and the other entries. Such a
/// descriptor has a `lease` entry, and its other entries match a rule with leases. Under other rules
/// `lease` is a key like any other.
pub(super) fn rule_with_leases<'r, 'e>(
    rules: &'r RuleSet,
    domain: &str,
    entries: &[Entry<'e>],
) -> Option<(&'r Rule, &'e str, SmallVec<[Entry<'e>; 8]>)> {
    let (id, others) = split_lease(entries)?;
    let Found::Rule(rule) = rules.find(domain, &others) else { return None };
    rule.leases().then_some((rule, id, others))
}

/// Resolves a descriptor that closes a lease. A block does not apply, because the lease was opened
/// without it. A lease that was opened with changed numbers is closed with them.
///
/// The descriptors of a request share one lease id, and each settlement takes one reservation of this
/// id. So a descriptor that has reserved nothing must not settle: one whose factor is 0 peeks, and one
/// with a bypass passes. Slots are always released.
fn closing_lease<'r, 'd>(
    rules: &'r RuleSet,
    request: &Request<'_>,
    descriptor: &Descriptor<'d>,
    seed: &KeySeed,
    changes: Option<ChangesNow<'_>>,
    limits: &mut LimitFinder<'_, 'd>,
) -> Option<ResolvedDescriptor<'r>> {
    let (rule, id, entries) = rule_with_leases(rules, request.domain, descriptor.entries)?;
    let RuleLimit::Limit(limit) = &rule.limit else { return None };
    if !limit.counts_slots()
        && let Some(changes) = changes
        && let Some(passed) = changes.bypassed(rule, request.domain, &entries)
    {
        return Some(passed);
    }
    // Envoy before 1.38 cannot send negative hits, so the sign is ignored here.
    let hits = rule.weigh(descriptor.hits(request.hits_addend).abs(), &entries);
    // One hit is rounded up, so its weight is 0 only if the factor is 0.
    let has_lease = rule.weigh(1, &entries) != 0;
    let change = changes.and_then(|changes| changes.limit_of(rule, request.domain, &entries));
    let changed = changed_limit(change, limit);
    Some(ResolvedDescriptor::Counter(CounterQuery {
        rule: Some(rule),
        is_changed: changed.is_some(),
        limit: changed.unwrap_or_else(|| limits.limit_of_lease(rule, limit, &entries)),
        key: rule.key(seed, &entries),
        hits: if limit.counts_slots() { -hits } else { hits },
        lease: has_lease.then(|| LeaseUse::Close(lease_id::parse(id))),
    }))
}

/// Drops every counted rule that is replaced by a matched rule of the request. A dropped rule
/// still replaces others, so the order of descriptors does not matter. A rule with a bypass replaces
/// none: otherwise nothing would limit the request.
pub(super) fn drop_replaced(pending: &mut [PendingDescriptor<'_>]) {
    let matched = || {
        let limiting = pending.iter().filter(|one| !one.resolved.is_bypassed());
        limiting.filter_map(|one| one.resolved.rule())
    };
    if matched().all(|rule| rule.replaces().is_empty()) {
        return;
    }
    let replaced: SmallVec<[NameId; 4]> =
        matched().flat_map(|rule| rule.replaces()).copied().collect();
    for one in pending {
        if let ResolvedDescriptor::Counter(CounterQuery { rule: Some(rule), .. }) = &one.resolved
            && rule.name_id.is_some_and(|name| replaced.contains(&name))
        {
            let (rule, reason) = (Some(*rule), DecisionReason::Replaced(rule.index));
            one.resolved = ResolvedDescriptor::Uncounted { rule, reason };
        }
    }
}
