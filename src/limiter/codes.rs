//! Codes without responses: decides many requests by counters in memory, for replays.
//!
//! The parts are those of a check: [`resolve`] finds counters, [`algorithm::plan`] and the store decide
//! hits, and [`fold`] joins codes. What only a response needs is left out: statuses, headers, metadata and
//! what-if limits. So a request of a few descriptors needs no allocation.
//!
//! Requests are first queued, and then decided in their order. So the counters of all of them are read into
//! the caches of the processor at once. A resolved request does not depend on counters, so it may be queued
//! before earlier ones are decided.

use std::sync::Arc;

use smallvec::SmallVec;

use super::fallback::{self, FailedQuery, LocalCounters};
use super::fold;
use super::planned::{LimitFinder, UnknownCustomers};
use super::resolve;
use super::resolved::{CounterQuery, ResolvedDescriptor};
use super::{Backend, Limiter};
use crate::algorithm;
use crate::decision::{Code, DecisionReason};
use crate::descriptor::Request;
use crate::key::CounterKey;
use crate::limit::OnError;
use crate::rules::{DeniedRequests, RuleSet};
use crate::step::{Outcome, Step};
use crate::store::{MemoryStore, SharedStore, StoreError};
use crate::time::Micros;

/// Requests that are resolved and not decided. Its buffers are used again.
#[derive(Default)]
pub struct CodeQueue<'r> {
    /// The descriptors of all requests, one request after the other.
    descriptors: Vec<ResolvedDescriptor<'r>>,
    requests: Vec<QueuedRequest>,
}

/// A request of a queue.
struct QueuedRequest {
    /// The instant of the request.
    now: Micros,
    /// Its descriptors end before this place. They start where those of the request before end.
    descriptors_end: usize,
    /// Whether a denial gives the hits of its other descriptors back.
    refunds: bool,
}

/// The code of one descriptor, and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorCode {
    /// The code of this descriptor alone, after shadow mode.
    pub code: Code,
    /// The rule that matched, by its index.
    pub rule: Option<usize>,
    /// Whether a counter decided, or the fallback for it. Without a rule, it counts for a limit that the
    /// proxy sent.
    pub is_counted: bool,
    /// Whether the fallback decided.
    pub by_fallback: bool,
    /// Whether the counter allowed the hits.
    allowed: bool,
}

impl CodeQueue<'_> {
    /// The number of descriptors of all requests.
    pub fn descriptor_count(&self) -> usize {
        self.descriptors.len()
    }

    /// The counters of all descriptors.
    fn keys(&self) -> impl Iterator<Item = &CounterKey> + Clone {
        self.descriptors.iter().filter_map(|one| match one {
            ResolvedDescriptor::Counter(query) => Some(&query.key),
            ResolvedDescriptor::Uncounted { .. } | ResolvedDescriptor::Blocked { .. } => None,
        })
    }
}

/// The counters of a limiter.
enum CodeStore<'s> {
    /// No other part has a reference to the store, so it needs no locks.
    Owned(&'s mut MemoryStore),
    /// A lease of an earlier request may still be rolled back.
    Locked(&'s MemoryStore),
}

impl CodeStore<'_> {
    #[inline]
    fn apply(&mut self, key: &CounterKey, step: &Step) -> Result<Outcome, StoreError> {
        match self {
            CodeStore::Owned(store) => store.apply_owned(key, step),
            CodeStore::Locked(store) => store.apply_now(key, step),
        }
    }
}

/// What decides hits when the store has no room for their counter.
#[derive(Clone, Copy)]
struct FullStore<'l> {
    on_error: OnError,
    local: Option<&'l LocalCounters>,
}

impl<S: SharedStore> Limiter<S> {
    /// Resolves a valid request that arrived at `now`, and adds it to `queue`. Returns `false`, and adds
    /// nothing, if only [`check`](Limiter::check) decides it: a request that matches a rule with leases, or a
    /// rule that replaces others. Also with counters in Redis, and with temporary changes, divided rules or
    /// names of counters.
    pub fn queue_code<'r>(
        &self,
        queue: &mut CodeQueue<'r>,
        rules: &'r RuleSet,
        request: &Request<'_>,
        now: Micros,
    ) -> bool {
        let is_plain = self.backend.memory().is_some()
            && self.changes.is_none()
            && self.divider.is_none()
            && self.usage.is_none();
        if !is_plain {
            return false;
        }
        let first = queue.descriptors.len();
        let planned = self.planned.as_ref();
        let mut limits = LimitFinder { planned, unknown: UnknownCustomers::new() };
        for descriptor in request.descriptors {
            let resolved =
                resolve::descriptor(rules, request, descriptor, &self.seed, None, &mut limits);
            if resolved.rule().is_some_and(|rule| rule.leases() || !rule.replaces().is_empty()) {
                queue.descriptors.truncate(first);
                return false;
            }
            queue.descriptors.push(resolved);
        }
        // A single descriptor that is denied has taken nothing that could go back.
        let refunds = request.descriptors.len() > 1
            && rules.denied_requests(request.domain) == DeniedRequests::Free;
        let descriptors_end = queue.descriptors.len();
        queue.requests.push(QueuedRequest { now, descriptors_end, refunds });
        true
    }

    /// Decides the requests of `queue` in their order, and removes them. Calls `each` with the code of every
    /// request, and with those of its descriptors. Never fails and never waits.
    pub fn decide_codes(
        &mut self,
        queue: &mut CodeQueue<'_>,
        mut each: impl FnMut(Code, &[DescriptorCode]),
    ) {
        let Limiter { backend, config, on_error, local, .. } = self;
        let full = FullStore { on_error: *on_error, local: local.as_ref() };
        let mut store = match Arc::get_mut(backend) {
            Some(Backend::Memory(store)) => CodeStore::Owned(store),
            None => match &**backend {
                Backend::Memory(store) => CodeStore::Locked(store),
                Backend::Redis(_) => return,
            },
            // Such a limiter has queued nothing.
            Some(Backend::Redis(_)) => return,
        };
        if let CodeStore::Owned(store) = &mut store {
            store.prefetch(queue.keys());
        }
        let mut codes: SmallVec<[DescriptorCode; 4]> = SmallVec::new();
        let mut first = 0;
        for request in &queue.requests {
            let descriptors = &queue.descriptors[first..request.descriptors_end];
            first = request.descriptors_end;
            codes.clear();
            for resolved in descriptors {
                codes.push(full.decide(resolved, request.now, &mut store));
            }
            let pairs = descriptors.iter().zip(&codes).map(|(resolved, one)| (resolved, one.code));
            let (code, _) = fold::response_code(config, pairs);
            if code == Code::OverLimit && request.refunds {
                give_back(descriptors, &codes, request.now, &mut store);
            }
            each(code, &codes);
        }
        queue.requests.clear();
        queue.descriptors.clear();
    }
}

impl FullStore<'_> {
    /// Decides one descriptor by its counter.
    #[inline]
    fn decide(
        &self,
        resolved: &ResolvedDescriptor<'_>,
        now: Micros,
        store: &mut CodeStore<'_>,
    ) -> DescriptorCode {
        let rule = resolved.rule();
        let index = rule.map(|rule| rule.index);
        let ResolvedDescriptor::Counter(query) = resolved else {
            let allowed = !matches!(resolved, ResolvedDescriptor::Blocked { .. });
            let code = fold::descriptor_code(allowed, false);
            let (is_counted, by_fallback) = (false, false);
            return DescriptorCode { code, rule: index, is_counted, by_fallback, allowed };
        };
        let step = algorithm::plan(&query.limit, query.hits, now);
        let (allowed, by_fallback) = match &store.apply(&query.key, &step) {
            Ok(outcome) => (outcome.allowed, false),
            Err(error) => (self.allows(query, *error, now), true),
        };
        let code = fold::descriptor_code(allowed, rule.is_some_and(|rule| rule.shadow_mode));
        DescriptorCode { code, rule: index, is_counted: true, by_fallback, allowed }
    }

    /// Whether the fallback allows the hits of a query that failed.
    #[cold]
    fn allows(&self, query: &CounterQuery<'_>, error: StoreError, now: Micros) -> bool {
        let CounterQuery { rule, limit, key, hits, .. } = query;
        let on_error = rule.and_then(|rule| rule.on_error).unwrap_or(self.on_error);
        let index = rule.map(|rule| rule.index);
        let failed = FailedQuery { rule: index, limit, key, hits: *hits, lease: None, error };
        match fallback::decide(on_error, self.local, failed, now) {
            DecisionReason::Fallback { allowed, .. } => allowed,
            _ => true,
        }
    }
}

/// Gives the hits back that the descriptors of a denied request have taken.
#[cold]
fn give_back(
    descriptors: &[ResolvedDescriptor<'_>],
    codes: &[DescriptorCode],
    now: Micros,
    store: &mut CodeStore<'_>,
) {
    for (resolved, one) in descriptors.iter().zip(codes) {
        let ResolvedDescriptor::Counter(query) = resolved else { continue };
        if query.hits <= 0 || one.code != Code::Ok || one.by_fallback {
            continue;
        }
        if let Some(step) = fold::refund(&query.limit, query.hits, one.allowed, now) {
            // A step that gives back needs no room, so it cannot fail.
            drop(store.apply(&query.key, &step));
        }
    }
}
