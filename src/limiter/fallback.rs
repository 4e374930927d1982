//! The fallback: decides hits whose counter could not be queried.

use std::sync::Arc;

use crate::algorithm;
use crate::decision::{Decision, DecisionReason};
use crate::key::CounterKey;
use crate::limit::{Limit, OnError, Tier};
use crate::step::{Lease, LeaseId};
use crate::store::{MemoryStore, StoreError};
use crate::time::Micros;

/// Counters of this instance, for rules with `on_error: local` while Redis is unavailable.
pub struct LocalCounters {
    store: Arc<MemoryStore>,
    instances: u64,
}

/// A query for which the store returned an error.
pub(super) struct FailedQuery<'a> {
    pub(super) rule: Option<usize>,
    pub(super) limit: &'a Limit,
    pub(super) key: &'a CounterKey,
    pub(super) hits: i64,
    /// The lease that the hits open or close.
    pub(super) lease: Option<Lease>,
    pub(super) error: StoreError,
}

impl LocalCounters {
    /// Local counters in `store`. Each has the limit divided by `instances`, rounded up.
    pub fn new(store: MemoryStore, instances: u64) -> LocalCounters {
        LocalCounters { store: Arc::new(store), instances: instances.max(1) }
    }

    /// The counters, for sweeps and metrics.
    pub fn store(&self) -> &Arc<MemoryStore> {
        &self.store
    }

    /// Closes a lease that the fallback may have granted. An unknown lease changes nothing.
    pub(super) fn close_lease(
        &self,
        key: &CounterKey,
        limit: &Limit,
        hits: i64,
        id: LeaseId,
        now: Micros,
    ) {
        let limit = share(limit, self.instances);
        let step = algorithm::plan_with_lease(&limit, hits, Some(Lease::Close(id)), now);
        // An error leaves the lease open until its hold expires.
        let _ = self.store.apply_now(key, &step);
    }

    fn decide(&self, failed: &FailedQuery<'_>, now: Micros) -> Option<Decision> {
        let limit = share(failed.limit, self.instances);
        let step = algorithm::plan_with_lease(&limit, failed.hits, failed.lease, now);
        let outcome = self.store.apply_now(failed.key, &step).ok()?;
        Some(algorithm::report(&limit, &step, &outcome))
    }

    fn preview(&self, failed: &FailedQuery<'_>, now: Micros) -> Decision {
        let limit = share(failed.limit, self.instances);
        let step = algorithm::plan_with_lease(&limit, failed.hits, failed.lease, now);
        let outcome = step.apply(&mut self.store.get(failed.key));
        algorithm::report(&limit, &step, &outcome)
    }
}

/// One instance's share of `limit`, rounded up so that it is not 0. All instances together may
/// allow up to one hit per instance over the limit.
fn share(limit: &Limit, instances: u64) -> Limit {
    let tier = |tier: &Tier| Tier {
        requests: tier.requests.div_ceil(instances),
        burst: tier.burst.div_ceil(instances),
        ..*tier
    };
    Limit { tiers: limit.tiers.iter().map(tier).collect(), ..limit.clone() }
}

/// Decides by `on_error`. Peeks and refunds always pass.
pub(super) fn decide(
    on_error: OnError,
    local: Option<&LocalCounters>,
    failed: FailedQuery<'_>,
    now: Micros,
) -> DecisionReason {
    let decision = match (on_error, local) {
        (OnError::Local, Some(local)) => local.decide(&failed, now),
        _ => None,
    };
    concluded(on_error, decision, failed)
}

/// What [`decide`] would return. Takes nothing from the local counters.
pub(super) fn preview(
    on_error: OnError,
    local: Option<&LocalCounters>,
    failed: FailedQuery<'_>,
    now: Micros,
) -> DecisionReason {
    let decision = match (on_error, local) {
        (OnError::Local, Some(local)) => Some(local.preview(&failed, now)),
        _ => None,
    };
    concluded(on_error, decision, failed)
}

/// The reason with the `decision` of the local counter, if it made one.
fn concluded(
    on_error: OnError,
    decision: Option<Decision>,
    failed: FailedQuery<'_>,
) -> DecisionReason {
    let allowed = match (on_error, decision) {
        _ if failed.hits <= 0 => true,
        (OnError::Allow, _) => true,
        (OnError::Deny, _) => false,
        (OnError::Local, Some(decision)) => decision.allowed,
        // No local counters are configured, or they are full: allow.
        (OnError::Local, None) => true,
    };
    let FailedQuery { rule, hits, error, .. } = failed;
    DecisionReason::Fallback { rule, hits, allowed, on_error, decision, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Algorithm;

    fn passed(on_error: OnError, limit: &Limit, calls: usize, hits: i64) -> usize {
        let local = LocalCounters::new(MemoryStore::new(100), 4);
        let now = Micros::from_secs(1_000);
        let mut passed = 0;
        for _ in 0..calls {
            let error = StoreError::Timeout;
            let key = &CounterKey([1, 1]);
            let failed = FailedQuery { rule: None, limit, key, hits, lease: None, error };
            let reason = decide(on_error, Some(&local), failed, now);
            let DecisionReason::Fallback { allowed, .. } = reason else { panic!("{reason:?}") };
            passed += usize::from(allowed);
        }
        passed
    }

    #[test]
    fn local_allows_one_share_rounded_up() {
        let minute = Micros::from_secs(60);
        for (requests, share) in [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (10, 3)] {
            let limit = Limit::fixed_window(requests, minute);
            assert_eq!(passed(OnError::Local, &limit, 20, 1), share, "{requests}");
            assert_eq!(passed(OnError::Allow, &limit, 20, 1), 20);
            assert_eq!(passed(OnError::Deny, &limit, 20, 1), 0);
            assert_eq!(passed(OnError::Deny, &limit, 20, 0), 20, "a peek passes");
            assert_eq!(passed(OnError::Deny, &limit, 20, -1), 20, "so does a refund");
        }
        let tier = Tier { requests: 100, window: minute, burst: 10, calendar: None };
        let bucket = Limit {
            algorithm: Algorithm::TokenBucket,
            tiers: Box::new([tier]),
            count_denied: false,
        };
        assert_eq!(passed(OnError::Local, &bucket, 20, 1), 3, "a bucket is shared as well");
    }
}
