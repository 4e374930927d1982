//! Pending descriptors: prepares the query of a resolved descriptor, and interprets its result.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use super::Limiter;
use super::decided::DecidedDescriptor;
use super::divided::DividedRules;
use super::fallback::{self, FailedQuery};
use super::resolved::{CounterQuery, LeaseUse, ResolvedDescriptor};
use super::rollback_guard::RollbackGuard;
use crate::algorithm;
use crate::decision::{Decision, DecisionReason};
use crate::limit::Mode;
use crate::modes::{CounterCheck, Modes};
use crate::rules::ShownRule;
use crate::step::Lease;
use crate::store::{MemoryStore, SharedStore, StoreError, call_trace};
use crate::time::Micros;

/// One descriptor between its resolution and its decision.
pub(super) struct PendingDescriptor<'r> {
    pub(super) resolved: ResolvedDescriptor<'r>,
    /// The instant of the request, by the local clock.
    pub(super) local_now: Micros,
    /// The instant of the request, by the store's clock.
    pub(super) store_now: Result<Micros, StoreError>,
    lease: Option<Lease>,
    /// A guard that is armed before the store is queried, so that a dropped call gives back what it
    /// may have taken.
    rollback: Option<RollbackGuard>,
    /// The counter's decision. `None` until it is queried, and if the request had to be decided
    /// before the store returned it.
    pub(super) result: Option<Result<Decision, StoreError>>,
    /// Whether the shared store returned an outcome to the query.
    pub(super) by_shared_store: bool,
    /// Whether the rule is divided, so that the share of this instance decided.
    pub(super) by_share: bool,
    /// Whether what the counter allows is charged to the share of this instance, which it does not have yet.
    pub(super) owes_share: bool,
    /// The index of the descriptor whose what-if limit this is; `None` for a descriptor of the request.
    pub(super) what_if_of: Option<usize>,
}

impl<'r> PendingDescriptor<'r> {
    /// A descriptor of a request that arrived at `local_now` by the local clock.
    #[inline]
    pub(super) fn new(
        resolved: ResolvedDescriptor<'r>,
        local_now: Micros,
    ) -> PendingDescriptor<'r> {
        let (store_now, result) = (Ok(local_now), None);
        let (lease, rollback, by_shared_store) = (None, None, false);
        let (by_share, owes_share) = (false, false);
        PendingDescriptor {
            resolved,
            local_now,
            store_now,
            lease,
            rollback,
            result,
            by_shared_store,
            by_share,
            owes_share,
            what_if_of: None,
        }
    }

    /// Queries the counter in memory.
    #[inline]
    pub(super) fn query_memory(&mut self, store: &MemoryStore) {
        if let Some(check) = self.check(None) {
            self.result = Some(check.in_memory(store));
        }
    }

    /// Queries the share of this instance if the rule is divided, or else the counter in memory.
    pub(super) fn query_divided(&mut self, store: &MemoryStore, rules: &dyn DividedRules) {
        if !self.query_share(rules) {
            self.query_memory(store);
            self.charge_share(rules);
        }
    }

    /// Queries the share of this instance if the rule is `divided`, or else the counter in the rule's
    /// mode. Waits at most `timeout`.
    pub(super) async fn query_redis<S: SharedStore>(
        &mut self,
        modes: &Modes<S>,
        divided: Option<&dyn DividedRules>,
        timeout: Option<Duration>,
    ) {
        if divided.is_some_and(|rules| self.query_share(rules)) {
            return;
        }
        if let Some(check) = self.check(timeout) {
            let (result, by_shared_store) = {
                let mut call = pin!(modes.check(&check));
                let mut by_shared_store = false;
                let observed = poll_fn(|context| {
                    let (polled, answered) = call_trace::observe(|| call.as_mut().poll(context));
                    by_shared_store |= answered;
                    polled
                });
                let result = observed.await;
                (result, by_shared_store)
            };
            (self.result, self.by_shared_store) = (Some(result), by_shared_store);
        }
        if let Some(rules) = divided {
            self.charge_share(rules);
        }
    }

    #[inline]
    fn check(&self, timeout: Option<Duration>) -> Option<CounterCheck<'_>> {
        let ResolvedDescriptor::Counter(query) = &self.resolved else { return None };
        let (mode, over_limit_cache) = match query.rule {
            None => (Mode::Exact, true),
            // A denial from the cache would not be counted.
            Some(_) if self.what_if_of.is_some() => (Mode::Exact, false),
            Some(rule) => (rule.mode, rule.over_limit_cache),
        };
        Some(CounterCheck {
            key: &query.key,
            limit: &query.limit,
            hits: query.hits,
            lease: self.lease,
            mode,
            over_limit_cache,
            local_now: self.local_now,
            store_now: self.store_now,
            timeout,
        })
    }
}

impl<S: SharedStore> Limiter<S> {
    /// Sets the instant and the lease of a query.
    #[inline]
    pub(super) fn prepare(&self, pending: &mut PendingDescriptor<'_>) {
        if let ResolvedDescriptor::Counter(query) = &pending.resolved {
            pending.store_now = self.backend.now(&query.key, pending.local_now);
            if let Some(lease) = query.lease {
                self.prepare_lease(lease, pending);
            }
        }
    }

    #[cold]
    fn prepare_lease(&self, lease: LeaseUse, pending: &mut PendingDescriptor<'_>) {
        let ResolvedDescriptor::Counter(query) = &pending.resolved else { return };
        let CounterQuery { rule, limit, key, hits, .. } = query;
        let now = pending.store_now.unwrap_or(pending.local_now);
        match lease {
            LeaseUse::Open(id) => {
                let hold = rule.and_then(|rule| rule.reserve).unwrap_or_default();
                pending.lease = Some(Lease::Open { id, until: now.saturating_add(hold) });
                let store = self.backend.clone();
                pending.rollback = Some(RollbackGuard::new(store, id, key, limit, *hits, now));
            }
            LeaseUse::Close(id) => {
                pending.lease = Some(Lease::Close(id));
                if let Some(local) = &self.local {
                    local.close_lease(key, limit, *hits, id, pending.local_now);
                }
            }
        }
    }

    /// Interprets the result of a query.
    #[inline]
    pub(super) fn conclude<'q>(
        &self,
        pending: &'q mut PendingDescriptor<'_>,
    ) -> DecidedDescriptor<'q> {
        let reason = match (&pending.resolved, &pending.result) {
            (ResolvedDescriptor::Uncounted { reason, .. }, _) => *reason,
            (ResolvedDescriptor::Blocked { rule, hits, .. }, _) => {
                DecisionReason::Blocked { rule: rule.map(|rule| rule.index), hits: *hits }
            }
            (ResolvedDescriptor::Counter(query), Some(Ok(decision))) => {
                if let Some(guard) = pending.rollback.take_if(|_| !decision.allowed) {
                    guard.disarm();
                }
                // The hits of a settlement were counted when they were reserved.
                let settles = matches!(query.lease, Some(LeaseUse::Close(_)));
                let hits = if settles { query.hits.min(0) } else { query.hits };
                let rule = query.rule.map(|rule| rule.index);
                let shadow = query.rule.is_some_and(|rule| rule.shadow_mode);
                let by_shared_store = pending.by_shared_store;
                DecisionReason::Counted { rule, hits, decision: *decision, shadow, by_shared_store }
            }
            (ResolvedDescriptor::Counter(_), Some(Err(error))) => self.fall_back(*error, pending),
            // The request had to be decided, because the memory of clients is full.
            (ResolvedDescriptor::Counter(_), None) => {
                self.fall_back(StoreError::ClientMemoryFull, pending)
            }
        };
        let rollback = pending.rollback.take();
        let (by_share, owes_share) = (pending.by_share, pending.owes_share);
        DecidedDescriptor { resolved: &pending.resolved, reason, by_share, owes_share, rollback }
    }

    #[cold]
    fn fall_back(&self, error: StoreError, pending: &mut PendingDescriptor<'_>) -> DecisionReason {
        match pending.rollback.take() {
            // The step was not applied, so there is nothing to give back.
            Some(guard) if !error.may_have_run() => guard.disarm(),
            // Dropping the guard gives back what the step possibly took.
            guard => drop(guard),
        }
        let ResolvedDescriptor::Counter(query) = &pending.resolved else {
            return DecisionReason::NoRule;
        };
        let CounterQuery { rule, limit, key, hits, .. } = query;
        if let Some(close @ Lease::Close(_)) = pending.lease
            && limit.counts_slots()
        {
            // Sent again until it arrives. Otherwise the slots would stay taken until `hold`.
            let now = pending.store_now.unwrap_or(pending.local_now);
            let step = algorithm::plan_with_lease(limit, *hits, Some(close), now);
            self.backend.apply_detached(key, Mode::Exact, step);
        }
        let on_error = rule.and_then(|rule| rule.on_error).unwrap_or(self.on_error);
        tracing::debug!(
            rule = rule.map(|rule| ShownRule::of(rule).name),
            selector = rule.and_then(|rule| ShownRule::of(rule).selector),
            on_error = on_error.name(),
            %error,
            "fallback decided"
        );
        let index = rule.map(|rule| rule.index);
        let failed =
            FailedQuery { rule: index, limit, key, hits: *hits, lease: pending.lease, error };
        let reason = fallback::decide(on_error, self.local.as_ref(), failed, pending.local_now);
        if let (
            Some(local),
            Some(Lease::Open { id, .. }),
            DecisionReason::Fallback { decision: Some(decision), .. },
        ) = (&self.local, pending.lease, &reason)
            && decision.allowed
        {
            let store = local.store().clone();
            pending.rollback =
                Some(RollbackGuard::new(store, id, key, limit, *hits, pending.local_now));
        }
        reason
    }
}
