//! Divided rules: the quota service (RLQS) divides their limits among Envoys and instances of weir.
//!
//! This instance has one share of such a limit, for the callers of `ShouldRateLimit`. The share decides
//! their hits from memory, in place of the counter and of the rule's mode. Rules with leases are not
//! divided: a share has no slots, and a reservation is settled on the counter that granted it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::pending::PendingDescriptor;
use super::resolved::{CounterQuery, ResolvedDescriptor};
use crate::decision::Decision;
use crate::key::CounterKey;
use crate::limit::Limit;
use crate::rules::Rule;
use crate::store::{StoreError, with_timeout};
use crate::time::Micros;

/// Decides by the shares of this instance.
pub trait DividedRules: Send + Sync + 'static {
    /// Decides hits by the share of their counter, if their rule is divided. Never waits.
    fn check(&self, check: &DividedCheck<'_>) -> DividedResult;

    /// Waits until `check` no longer returns [`DividedResult::Joining`] for this counter. The caller
    /// bounds the wait.
    ///
    /// # Errors
    ///
    /// The error of the store from which the first share should have come.
    fn joined<'a>(&'a self, key: &'a CounterKey) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Hits of one descriptor on a counter whose rule may be divided.
#[derive(Clone, Copy, Debug)]
pub struct DividedCheck<'a> {
    /// The rule that matched. It has no leases.
    pub rule: &'a Rule,
    /// The limit of the rule.
    pub limit: &'a Limit,
    /// The counter.
    pub key: &'a CounterKey,
    /// Hits to take (positive), to give back (negative), or 0 to peek.
    pub hits: i64,
    /// The instant of the request, by the local clock.
    pub now: Micros,
}

/// The result of [`DividedRules::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DividedResult {
    /// The rule is not divided: its counter decides.
    NotDivided,
    /// The share decided.
    Decided(Decision),
    /// This instance has asked the store for its first share.
    Joining,
    /// This instance has no share, because the store failed. The fallback decides.
    Failed(StoreError),
}

/// The divided rules of a limiter.
pub(super) struct Divider {
    /// True while any rule is divided.
    any: Arc<AtomicBool>,
    rules: Arc<dyn DividedRules>,
}

impl Divider {
    pub(super) fn new(any: Arc<AtomicBool>, rules: Arc<dyn DividedRules>) -> Divider {
        Divider { any, rules }
    }

    /// The divided rules; `None` while no rule is divided.
    #[inline]
    pub(super) fn active(&self) -> Option<&dyn DividedRules> {
        self.any.load(Ordering::Relaxed).then_some(&*self.rules)
    }
}

impl CounterQuery<'_> {
    /// The check of this query; `None` if its limit cannot be divided.
    fn divided_check(&self, now: Micros) -> Option<DividedCheck<'_>> {
        let CounterQuery { rule, limit, key, hits, .. } = self;
        let rule = rule.filter(|rule| !rule.leases())?;
        Some(DividedCheck { rule, limit, key, hits: *hits, now })
    }

    /// Gives the hits of this query back to the share that allowed them.
    pub(super) fn refund_share(&self, rules: &dyn DividedRules, now: Micros) {
        if let Some(check) = self.divided_check(now) {
            // A rule that is no longer divided has no share to which hits could go back.
            rules.check(&DividedCheck { hits: -check.hits, ..check });
        }
    }
}

impl PendingDescriptor<'_> {
    /// Decides by the share of this instance without waiting. Returns whether the counter is not
    /// needed.
    pub(super) fn query_share(&mut self, rules: &dyn DividedRules) -> bool {
        let result = self.share_result(rules);
        self.conclude_share(result)
    }

    /// Decides by the share of this instance, and waits for its first share: at most `timeouts`.
    /// Returns whether the counter is not needed.
    pub(super) async fn query_share_joined(
        &mut self,
        rules: &dyn DividedRules,
        timeouts: [Option<Duration>; 2],
    ) -> bool {
        let mut result = self.share_result(rules);
        if let (DividedResult::Joining, ResolvedDescriptor::Counter(query)) =
            (result, &self.resolved)
        {
            let joined = rules.joined(&query.key);
            let joined = match timeouts.into_iter().flatten().min() {
                Some(timeout) => with_timeout(timeout, joined).await,
                None => joined.await,
            };
            result = match joined {
                Ok(()) => self.share_result(rules),
                Err(error) => DividedResult::Failed(error),
            };
        }
        self.conclude_share(result)
    }

    fn share_result(&self, rules: &dyn DividedRules) -> DividedResult {
        let ResolvedDescriptor::Counter(query) = &self.resolved else {
            return DividedResult::NotDivided;
        };
        let check = query.divided_check(self.local_now);
        check.map_or(DividedResult::NotDivided, |check| rules.check(&check))
    }

    fn conclude_share(&mut self, result: DividedResult) -> bool {
        let result = match result {
            DividedResult::NotDivided => return false,
            DividedResult::Decided(decision) => Ok(decision),
            // Left again while this request waited, or asked where nothing waits.
            DividedResult::Joining => Err(StoreError::Timeout),
            DividedResult::Failed(error) => Err(error),
        };
        self.by_share = true;
        // The share comes from the store.
        self.by_shared_store = result.is_ok();
        self.result = Some(result);
        true
    }
}
