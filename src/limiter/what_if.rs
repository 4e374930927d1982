//! What-if limits: count the hits of a request on the field `shadow` of its rules, beside their limits.
//!
//! A what-if limit has its own query, which is sent with those of the request, and its own counter. No
//! status, header, code or rollback depends on its result. An error of the store leaves the result out.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::PendingDescriptors;
use super::pending::PendingDescriptor;
use super::resolved::{CounterQuery, ResolvedDescriptor};
use crate::decision::WhatIf;
use crate::key::what_if_key;

/// Appends a query per what-if limit. Rules are replaced before it, and leases opened.
pub(super) fn append(pending: &mut PendingDescriptors<'_>) {
    for index in 0..pending.len() {
        let real = &pending[index];
        if let Some(query) = query(&real.resolved) {
            let resolved = ResolvedDescriptor::Counter(query);
            let mut what_if = PendingDescriptor::new(resolved, real.local_now);
            what_if.what_if_of = Some(index);
            pending.push(what_if);
        }
    }
}

/// The query of the what-if limit beside a query; `None` without one.
#[inline]
fn query<'r>(real: &ResolvedDescriptor<'r>) -> Option<CounterQuery<'r>> {
    let ResolvedDescriptor::Counter(CounterQuery { rule, key, hits, lease: None, .. }) = real
    else {
        return None;
    };
    let rule = (*rule)?;
    let what_if = rule.what_if.as_deref()?;
    Some(CounterQuery {
        rule: Some(rule),
        limit: Cow::Borrowed(&what_if.limit),
        is_changed: false,
        key: what_if_key(key, what_if.id),
        hits: *hits,
        lease: None,
    })
}

/// The results of the queries that [`append`] has added.
pub(super) fn results(pending: &[PendingDescriptor<'_>]) -> SmallVec<[WhatIf; 1]> {
    pending.iter().filter_map(result).collect()
}

fn result(pending: &PendingDescriptor<'_>) -> Option<WhatIf> {
    let ResolvedDescriptor::Counter(query) = &pending.resolved else { return None };
    let Some(Ok(decision)) = &pending.result else { return None };
    Some(WhatIf {
        descriptor: pending.what_if_of?,
        rule: query.rule?.index,
        hits: query.hits,
        denied: !decision.allowed,
    })
}
