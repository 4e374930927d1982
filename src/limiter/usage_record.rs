//! Records the counters of rules with `usage: true` after their requests are decided.

use super::Limiter;
use super::pending::PendingDescriptor;
use super::resolved::{CounterQuery, LeaseUse, ResolvedDescriptor};
use crate::decision::{DecisionReason, Verdict};
use crate::descriptor::Request;
use crate::store::SharedStore;

impl<S: SharedStore> Limiter<S> {
    /// Records the counters that have hits of the request. It cannot change the verdict. Costs one
    /// comparison per counter of other rules.
    #[inline]
    pub(super) fn record_usage(
        &self,
        request: &Request<'_>,
        pending: &[PendingDescriptor<'_>],
        verdict: &Verdict,
    ) {
        for (index, one) in pending.iter().enumerate() {
            if let ResolvedDescriptor::Counter(query) = &one.resolved
                && query.rule.is_some_and(|rule| rule.usage)
            {
                self.record_counter(request, index, one, query, verdict);
            }
        }
    }

    fn record_counter(
        &self,
        request: &Request<'_>,
        index: usize,
        pending: &PendingDescriptor<'_>,
        query: &CounterQuery<'_>,
        verdict: &Verdict,
    ) {
        // A share decided instead of the counter, or the name was recorded when the lease was opened.
        if pending.by_share || matches!(query.lease, Some(LeaseUse::Close(_))) {
            return;
        }
        let (Some(names), Some(rule)) = (&self.usage, query.rule) else { return };
        let (Some(descriptor), Some(status)) =
            (request.descriptors.get(index), verdict.statuses.get(index))
        else {
            return;
        };
        // A peek, or a refund, is not the first use of a counter. A counter without hits has no name.
        if let DecisionReason::Counted { hits: 1.., decision, .. } = status.reason
            && decision.used > 0
        {
            let now = pending.store_now.unwrap_or(pending.local_now);
            names.record(rule, &query.limit, &query.key, descriptor.entries, now);
        }
    }
}
