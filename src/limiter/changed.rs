//! Temporary changes of the descriptors of a request: a block or a bypass in place of the counter, or
//! other numbers of its limit.

use std::borrow::Cow;

use super::resolved::ResolvedDescriptor;
use crate::changes::{ActiveChanges, AppliedChange};
use crate::decision::DecisionReason;
use crate::descriptor::Entry;
use crate::limit::{Limit, TierNumbers};
use crate::rules::Rule;
use crate::time::Micros;

/// The changes at the instant of a request.
#[derive(Clone, Copy)]
pub(super) struct ChangesNow<'c> {
    /// All changes.
    pub(super) active: &'c ActiveChanges,
    /// The instant by the clock by which changes end.
    pub(super) now: Micros,
}

impl<'c> ChangesNow<'c> {
    /// The change that applies to a descriptor with these entries, which matches `rule`.
    pub(super) fn of(
        self,
        rule: Option<&Rule>,
        domain: &str,
        entries: &[Entry<'_>],
    ) -> Option<AppliedChange<'c>> {
        self.active.of(rule, domain, entries, self.now)
    }

    /// The changed limit of a descriptor with these entries, which closes a lease of `rule`.
    pub(super) fn limit_of(
        self,
        rule: &Rule,
        domain: &str,
        entries: &[Entry<'_>],
    ) -> Option<AppliedChange<'c>> {
        self.active.limit_of(rule, domain, entries, self.now)
    }

    /// The uncounted descriptor with these entries, which settles a reservation of `rule`, if a bypass
    /// applies to it.
    pub(super) fn bypassed<'r>(
        self,
        rule: &'r Rule,
        domain: &str,
        entries: &[Entry<'_>],
    ) -> Option<ResolvedDescriptor<'r>> {
        let change = self.of(Some(rule), domain, entries)?;
        matches!(change, AppliedChange::Bypass).then(|| passed(Some(rule)))
    }

    /// The descriptor without its counter, if a block or a bypass decides its `hits`. Hits that are given
    /// back during a block or a bypass were taken before it, so they go back to the counter.
    pub(super) fn without_counter<'r>(
        self,
        change: AppliedChange<'_>,
        rule: Option<&'r Rule>,
        hits: i64,
    ) -> Option<ResolvedDescriptor<'r>> {
        match change {
            AppliedChange::Block { until } if hits >= 0 => {
                let reset_after = until.saturating_sub(self.now);
                Some(ResolvedDescriptor::Blocked { rule, hits, reset_after })
            }
            AppliedChange::Bypass if hits >= 0 => Some(passed(rule)),
            AppliedChange::Block { .. } | AppliedChange::Bypass | AppliedChange::Limit(_) => None,
        }
    }
}

/// A descriptor with a bypass.
fn passed(rule: Option<&Rule>) -> ResolvedDescriptor<'_> {
    let reason = DecisionReason::Bypassed { rule: rule.map(|rule| rule.index) };
    ResolvedDescriptor::Uncounted { rule, reason }
}

/// `limit` with the numbers of `change`. `None` if it does not change them, or if its numbers do not fit,
/// as after a reload of the rule.
pub(super) fn changed_limit<'r>(
    change: Option<AppliedChange<'_>>,
    limit: &Limit,
) -> Option<Cow<'r, Limit>> {
    let Some(AppliedChange::Limit(numbers)) = change else { return None };
    with_numbers(limit, numbers)
}

// Cold, because the usual request has no change.
#[cold]
fn with_numbers<'r>(limit: &Limit, numbers: &[TierNumbers]) -> Option<Cow<'r, Limit>> {
    limit.with_numbers(numbers).ok().map(Cow::Owned)
}
