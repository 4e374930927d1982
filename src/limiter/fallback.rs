//! The fallback: what decides about hits that no counter could be asked about.

use std::sync::Arc;

use crate::algorithm;
use crate::decision::{Cause, Decision};
use crate::key::Key;
use crate::limit::{Limit, OnError, Tier};
use crate::step::{Lease, LeaseId};
use crate::store::{MemoryStore, StoreError};
use crate::time::Micros;

/// Counters of this instance, for the time in which the shared ones cannot be asked.
pub struct LocalCounters {
    store: Arc<MemoryStore>,
    instances: u64,
}

/// Hits that the store gave no answer about.
pub(super) struct Unanswered<'a> {
    pub(super) rule: Option<usize>,
    pub(super) limit: &'a Limit,
    pub(super) key: &'a Key,
    pub(super) hits: i64,
    /// The lease that the hits were to be taken under, or that they end.
    pub(super) lease: Option<Lease>,
    pub(super) error: StoreError,
}

impl LocalCounters {
    /// Counters in `store`, each with the share of one of `instances` instances.
    pub fn new(store: MemoryStore, instances: u64) -> LocalCounters {
        LocalCounters { store: Arc::new(store), instances: instances.max(1) }
    }

    /// The counters, for what looks at them from outside (sweeps, metrics).
    pub fn store(&self) -> &Arc<MemoryStore> {
        &self.store
    }

    /// Ends a lease that the fallback may have granted; one that it has not is unknown here.
    pub(super) fn end(&self, key: &Key, limit: &Limit, hits: i64, id: LeaseId, now: Micros) {
        let limit = share(limit, self.instances);
        let step = algorithm::plan(&limit, hits, now).with_lease(Lease::Close(id));
        // A lease that is not ended here ends with its hold.
        let _ = self.store.apply_now(key, &step);
    }

    fn decide(&self, from: &Unanswered<'_>, now: Micros) -> Option<Decision> {
        let limit = share(from.limit, self.instances);
        let mut step = algorithm::plan(&limit, from.hits, now);
        step.lease = from.lease;
        let outcome = self.store.apply_now(from.key, &step).ok()?;
        Some(algorithm::report(&limit, &step, &outcome))
    }
}

/// One instance's part of `limit`, rounded up: several instances together may let a little more
/// through than the limit, and none of them lets nothing through.
fn share(limit: &Limit, instances: u64) -> Limit {
    let tier = |tier: &Tier| Tier {
        requests: tier.requests.div_ceil(instances),
        burst: tier.burst.div_ceil(instances),
        ..*tier
    };
    Limit { tiers: limit.tiers.iter().map(tier).collect(), ..limit.clone() }
}

/// Decides as `policy` says. Peeks and refunds always pass.
pub(super) fn decide(
    policy: OnError,
    local: Option<&LocalCounters>,
    from: Unanswered<'_>,
    now: Micros,
) -> Cause {
    let decision = match (policy, local) {
        (OnError::Local, Some(local)) => local.decide(&from, now),
        _ => None,
    };
    let allowed = match (policy, decision) {
        _ if from.hits <= 0 => true,
        (OnError::Allow, _) => true,
        (OnError::Deny, _) => false,
        (OnError::Local, Some(decision)) => decision.allowed,
        // No counters of its own, or no room in them: rather too much than nothing.
        (OnError::Local, None) => true,
    };
    let Unanswered { rule, hits, error, .. } = from;
    Cause::Fallback { rule, hits, allowed, by: policy, decision, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Algorithm;

    fn passed(policy: OnError, limit: &Limit, calls: usize, hits: i64) -> usize {
        let local = LocalCounters::new(MemoryStore::new(100), 4);
        let now = Micros::from_secs(1_000);
        let mut passed = 0;
        for _ in 0..calls {
            let error = StoreError::Timeout;
            let key = &Key([1, 1]);
            let from = Unanswered { rule: None, limit, key, hits, lease: None, error };
            let cause = decide(policy, Some(&local), from, now);
            let Cause::Fallback { allowed, .. } = cause else { panic!("{cause:?}") };
            passed += usize::from(allowed);
        }
        passed
    }

    #[test]
    fn local_lets_one_instances_share_through_rounded_up() {
        let minute = Micros::from_secs(60);
        for (requests, share) in [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (10, 3)] {
            let limit = Limit::fixed_window(requests, minute);
            assert_eq!(passed(OnError::Local, &limit, 20, 1), share, "{requests}");
            assert_eq!(passed(OnError::Allow, &limit, 20, 1), 20);
            assert_eq!(passed(OnError::Deny, &limit, 20, 1), 0);
            assert_eq!(passed(OnError::Deny, &limit, 20, 0), 20, "a peek passes");
            assert_eq!(passed(OnError::Deny, &limit, 20, -1), 20, "so does a refund");
        }
        let tier = Tier { requests: 100, window: minute, burst: 10 };
        let bucket = Limit {
            algorithm: Algorithm::TokenBucket,
            tiers: Box::new([tier]),
            count_denied: false,
        };
        assert_eq!(passed(OnError::Local, &bucket, 20, 1), 3, "a bucket is shared as well");
    }
}
