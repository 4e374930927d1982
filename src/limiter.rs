//! The limiter decides requests: it resolves descriptors, queries their counters, and folds the
//! results into a verdict.
//!
//! A decision has three parts:
//!
//! 1. [`Limiter::resolve`] finds rules and limits, and [`Limiter::prepare_all`] prepares one query per
//!    descriptor.
//! 2. The counters are queried. In memory this is a plain call, and a request with one descriptor
//!    needs no future and no allocation. In Redis the queries are sent concurrently and awaited.
//! 3. [`Limiter::finish`] interprets the results.
//!
//! `resolved.rs` lists the types of a descriptor from request to decision.
//!
//! `codes.rs` decides requests of which only the codes are needed, by the same parts.
//!
//! A check never fails. If the store returns an error, the rule's `on_error` decides.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;

use futures_util::future::{BoxFuture, join_all};
use smallvec::SmallVec;

use crate::changes::CurrentChanges;
use crate::decision::{Code, DecisionReason, Status, Verdict};
use crate::descriptor::Request;
use crate::key::KeySeed;
use crate::limit::{Mode, OnError};
use crate::modes::Modes;
use crate::rules::{DeniedRequests, RuleSet};
use crate::settings::ResponseSettings;
use crate::store::{GuardedStore, MemoryStore, RedisStore, SharedStore};
use crate::time::{Micros, SystemClock};
use crate::usage::UsageNames;

mod backend;
mod changed;
mod codes;
mod decided;
mod divided;
mod fallback;
mod fold;
mod headers;
mod inspect;
mod lease_id;
mod metadata;
mod pending;
mod planned;
mod resolve;
mod resolved;
mod rollback_guard;
mod share_query;
mod try_request;
mod usage_record;
mod what_if;

#[cfg(test)]
mod tests;

pub use backend::Backend;
pub use codes::{CodeQueue, DescriptorCode};
pub use divided::{DividedCheck, DividedResult, DividedRules};
pub use fallback::LocalCounters;
pub use inspect::{Counter, NoCounter, find_counter};
pub use try_request::{TriedDescriptor, TriedRequest};

use changed::ChangesNow;
use decided::DecidedDescriptor;
use divided::Divider;
use lease_id::LeaseIds;
use pending::PendingDescriptor;
use planned::{LimitFinder, PlannedLimits, UnknownCustomers};
use resolved::{CounterQuery, ResolvedDescriptor};

/// Decides requests against the counters of one backend.
pub struct Limiter<S = GuardedStore<RedisStore, SystemClock>> {
    /// Shared with rollback guards, which may outlive a request.
    backend: Arc<Backend<S>>,
    seed: KeySeed,
    config: ResponseSettings,
    /// The fallback of rules without `on_error`.
    on_error: OnError,
    lease_ids: LeaseIds,
    local: Option<LocalCounters>,
    /// `None` without the quota service.
    divider: Option<Divider>,
    /// `None` without a source of plans.
    planned: Option<PlannedLimits>,
    /// `None` in tests that list no counters.
    usage: Option<Arc<UsageNames>>,
    /// `None` if requests are decided by rules alone.
    changes: Option<Arc<CurrentChanges>>,
}

/// The pending descriptors of one request, and then those of their what-if limits. Most requests have
/// one.
type PendingDescriptors<'r> = SmallVec<[PendingDescriptor<'r>; 1]>;

impl<S: SharedStore> Limiter<S> {
    /// A limiter over `backend`. Counter keys are hashed with `seed`.
    pub fn new(backend: Backend<S>, seed: KeySeed, config: ResponseSettings) -> Limiter<S> {
        let backend = Arc::new(backend);
        let (on_error, lease_ids) = (OnError::default(), LeaseIds::new());
        Limiter {
            backend,
            seed,
            config,
            on_error,
            lease_ids,
            local: None,
            divider: None,
            changes: None,
            planned: None,
            usage: None,
        }
    }

    /// Sets the fallback for rules without `on_error`. The default allows.
    pub fn with_on_error(self, on_error: OnError) -> Limiter<S> {
        Limiter { on_error, ..self }
    }

    /// Adds the local counters of the fallback `on_error: local`. Without them, that fallback
    /// allows.
    pub fn with_local(self, local: LocalCounters) -> Limiter<S> {
        Limiter { local: Some(local), ..self }
    }

    /// Adds rules that the quota service divides. They are asked only while `any` is true.
    pub fn with_divided(self, any: Arc<AtomicBool>, rules: Arc<dyn DividedRules>) -> Limiter<S> {
        Limiter { divider: Some(Divider::new(any, rules)), ..self }
    }

    /// Adds the names of the counters of rules with `usage: true`.
    pub fn with_usage(self, names: Arc<UsageNames>) -> Limiter<S> {
        Limiter { usage: Some(names), ..self }
    }

    /// The names of the counters of rules with `usage: true`.
    pub fn usage(&self) -> Option<&Arc<UsageNames>> {
        self.usage.as_ref()
    }

    /// Adds temporary changes of rules and descriptors.
    pub fn with_changes(self, changes: Arc<CurrentChanges>) -> Limiter<S> {
        Limiter { changes: Some(changes), ..self }
    }

    /// The temporary changes; `None` if requests are decided by rules alone.
    pub fn changes(&self) -> Option<&Arc<CurrentChanges>> {
        self.changes.as_ref()
    }

    /// The divided rules; `None` while no rule is divided.
    #[inline]
    fn divided(&self) -> Option<&dyn DividedRules> {
        self.divider.as_ref()?.active()
    }

    /// The local counters of `on_error: local`.
    pub fn local(&self) -> Option<&LocalCounters> {
        self.local.as_ref()
    }

    /// The seed of counter keys.
    pub fn seed(&self) -> KeySeed {
        self.seed
    }

    /// The backend that has the counters, for metrics and background jobs.
    pub fn backend(&self) -> &Backend<S> {
        &self.backend
    }

    /// The counters in the memory of this process: all counters with the memory store, or those of
    /// `on_error: local` with Redis.
    pub fn memory(&self) -> Option<&MemoryStore> {
        let local = || self.local().map(|local| &**local.store());
        self.backend.memory().or_else(local)
    }

    /// Decides a valid request that arrived at `now` by the local clock. Never fails, and awaits
    /// only Redis.
    pub async fn check(&self, rules: &RuleSet, request: &Request<'_>, now: Micros) -> Verdict {
        match &*self.backend {
            Backend::Memory(store) => self.check_memory(store, rules, request, now),
            Backend::Redis(modes) => {
                // Boxed, so that the future of a memory check does not reserve space for a Redis
                // check. Type-erased, so that the compiler does not analyse it for every caller.
                let check: BoxFuture<'_, Verdict> =
                    Box::pin(self.check_redis(modes, rules, request, now));
                check.await
            }
        }
    }

    /// Decides by counters in memory, without waiting.
    fn check_memory(
        &self,
        store: &MemoryStore,
        rules: &RuleSet,
        request: &Request<'_>,
        now: Micros,
    ) -> Verdict {
        let mut pending = PendingDescriptors::new();
        self.resolve(&mut pending, rules, request, now);
        self.prepare_all(&mut pending);
        let divided = self.divided();
        for descriptor in &mut pending {
            match divided {
                None => descriptor.query_memory(store),
                Some(rules) => descriptor.query_divided(store, rules),
            }
        }
        self.finish(rules, request, &mut pending, now)
    }

    /// Decides by counters in Redis, and awaits their replies. The fallback decides for those that are
    /// missing when the request must be decided.
    async fn check_redis(
        &self,
        modes: &Modes<S>,
        rules: &RuleSet,
        request: &Request<'_>,
        now: Micros,
    ) -> Verdict {
        let mut pending = PendingDescriptors::new();
        let unknown = self.resolve(&mut pending, rules, request, now);
        let mut timeout = request.timeout;
        if !unknown.is_empty() && self.ask(&unknown, request, &mut timeout).await {
            pending.clear();
            self.resolve(&mut pending, rules, request, now);
        }
        self.prepare_all(&mut pending);
        let divided = self.divided();
        if let [descriptor] = &mut *pending {
            // One descriptor needs no list of futures.
            until_due(request, pin!(descriptor.query_redis(modes, divided, timeout))).await;
        } else {
            let all = pending.iter_mut().map(|one| one.query_redis(modes, divided, timeout));
            until_due(request, pin!(join_all(all))).await;
        }
        self.finish(rules, request, &mut pending, now)
    }

    /// The first part before the store: resolves every descriptor. Takes nothing, so it may run again
    /// for the same request. `pending` is filled in place, because its items are large to move. Returns
    /// the customers whose plan is not known.
    #[inline]
    fn resolve<'r, 'd>(
        &self,
        pending: &mut PendingDescriptors<'r>,
        rules: &'r RuleSet,
        request: &Request<'d>,
        now: Micros,
    ) -> UnknownCustomers<'d> {
        let changes = self.changes.as_ref().and_then(|all| Some((all.get()?, all.now(now))));
        let changes = changes.as_ref().map(|(active, now)| ChangesNow { active, now: *now });
        let planned = self.planned.as_ref();
        let mut limits = LimitFinder { planned, unknown: UnknownCustomers::new() };
        for descriptor in request.descriptors {
            let resolved =
                resolve::descriptor(rules, request, descriptor, &self.seed, changes, &mut limits);
            pending.push(PendingDescriptor::new(resolved, now));
        }
        limits.unknown
    }

    /// The second part before the store: prepares the query of every descriptor.
    #[inline]
    fn prepare_all(&self, pending: &mut PendingDescriptors<'_>) {
        resolve::drop_replaced(pending);
        resolve::open_leases(pending, &self.lease_ids);
        what_if::append(pending);
        for descriptor in pending {
            self.prepare(descriptor);
        }
    }

    /// The part after the store: concludes every query and folds the results.
    #[inline]
    fn finish(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
        pending: &mut [PendingDescriptor<'_>],
        now: Micros,
    ) -> Verdict {
        let (pending, what_if) = pending.split_at_mut(request.descriptors.len());
        // One descriptor needs no list.
        let mut verdict = if let [one] = pending {
            self.verdict(rules, request, &mut [self.conclude(one)], now)
        } else {
            let mut decided: Vec<_> = pending.iter_mut().map(|one| self.conclude(one)).collect();
            self.verdict(rules, request, &mut decided, now)
        };
        if !what_if.is_empty() {
            verdict.what_if = what_if::results(what_if);
        }
        self.record_usage(request, pending, &verdict);
        verdict
    }

    /// Folds the decided descriptors into the verdict.
    fn verdict(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
        decided: &mut [DecidedDescriptor<'_>],
        now: Micros,
    ) -> Verdict {
        let config = &self.config;
        let statuses: Vec<Status> = decided.iter().map(DecidedDescriptor::status).collect();
        let codes = decided.iter().zip(&statuses).map(|(one, status)| (one.resolved, status.code));
        let (code, shadowed) = fold::response_code(config, codes);
        let headers = headers::all(config, code, decided, &statuses);
        let mut metadata = metadata::of(config.dynamic_metadata, request, decided, &statuses);
        metadata::add_fallbacks(decided, &mut metadata);
        let mut rollback = None;
        if code == Code::OverLimit {
            let free = rules.denied_requests(request.domain) == DeniedRequests::Free;
            self.roll_back(free, decided, &statuses, now);
        } else {
            rollback = fold::take_rollback(decided, &mut metadata);
        }
        let what_if = SmallVec::new();
        Verdict { code, statuses, headers, metadata, shadowed, rollback, what_if }
    }

    /// Rolls a denied request back. Its slots are always given back, because a denied request does
    /// not run. Hits and reservations are given back if the domain has
    /// `denied_requests: free`.
    fn roll_back(
        &self,
        free: bool,
        decided: &mut [DecidedDescriptor<'_>],
        statuses: &[Status],
        now: Micros,
    ) {
        for (one, status) in decided.iter_mut().zip(statuses) {
            let ResolvedDescriptor::Counter(query) = one.resolved else { continue };
            let CounterQuery { rule, limit, key, .. } = query;
            if let Some(guard) = one.rollback.take() {
                if !free && !limit.counts_slots() {
                    guard.disarm();
                }
                continue;
            }
            let DecisionReason::Counted { hits: hits @ 1.., decision, .. } = status.reason else {
                continue;
            };
            if one.by_share {
                let taken = free && decision.allowed && status.code == Code::Ok;
                if taken && let Some(rules) = self.divided() {
                    query.refund_share(rules, now);
                }
                continue;
            }
            if !free || status.code != Code::Ok {
                continue;
            }
            if one.owes_share
                && let Some(rules) = self.divided()
            {
                query.refund_charge(rules, now);
            }
            let Ok(now) = self.backend.now(key, now) else { continue };
            if let Some(step) = fold::refund(limit, hits, decision.allowed, now) {
                let mode = rule.map_or(Mode::Exact, |rule| rule.mode);
                self.backend.apply_detached(key, mode, step);
            }
        }
    }
}

/// Awaits `queries`, as long as `request` may wait.
async fn until_due<T>(request: &Request<'_>, mut queries: Pin<&mut impl Future<Output = T>>) {
    poll_fn(|context| match queries.as_mut().poll(context) {
        Poll::Pending if !request.must_decide() => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
}
