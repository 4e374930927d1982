//! The limiter: the one function that knows the order in which a request is decided.
//!
//! It looks every descriptor up in one snapshot of the rules, asks the store about all counters at
//! the same time, and folds the answers into a verdict. It cannot fail: where a store does not
//! answer, the fallback does.

use std::sync::Arc;
use std::time::Duration;

use crate::algorithm;
use crate::decision::{Cause, Code, Status, Verdict};
use crate::descriptor::Request;
use crate::key::KeySeed;
use crate::limit::{Algorithm, Mode};
use crate::modes::{Backend, ModePath};
use crate::rules::{DeniedRequests, RuleSet};
use crate::store::{MemoryStore, Store};
use crate::time::{Clock, Micros};
use futures_util::future::{BoxFuture, join_all};

mod counter_query;
mod fallback;
mod fold;
mod headers;
mod ietf;
mod inspect;
mod lease;
mod metadata;
mod resolve;
mod response_config;

#[cfg(test)]
mod tests;

use counter_query::CounterQuery;
pub use fallback::LocalCounters;
pub use inspect::{Counter, NoCounter};
use lease::{LeaseIds, UndoGuard};
use resolve::Resolved;
pub use response_config::{Headers, ResponseConfig};

/// Decides requests against one store.
pub struct Limiter<S, C> {
    /// Shared with what was taken under leases, which finds its way back when it is dropped.
    layers: Arc<Backend<S>>,
    clock: C,
    seed: KeySeed,
    answer: ResponseConfig,
    ids: LeaseIds,
    local: Option<LocalCounters>,
}

/// What is known about one descriptor once its counter has answered.
struct Decided<'t, S: Store> {
    /// What the descriptor led to.
    target: &'t Resolved<'t>,
    /// How it went.
    cause: Cause,
    /// What the request took under a lease.
    taken: Option<UndoGuard<S>>,
}

impl<S: Store, C: Clock> Limiter<S, C> {
    /// A limiter whose counters live in a store of its own, under keys hashed with `seed`.
    pub fn new(store: S, clock: C, seed: KeySeed, answer: ResponseConfig) -> Limiter<S, C> {
        Limiter::over(Backend::own(store), clock, seed, answer)
    }

    /// A limiter that decides by `layers`, with keys hashed with `seed`.
    pub fn over(
        layers: Backend<S>,
        clock: C,
        seed: KeySeed,
        answer: ResponseConfig,
    ) -> Limiter<S, C> {
        let (layers, ids) = (Arc::new(layers), LeaseIds::new());
        Limiter { layers, clock, seed, answer, ids, local: None }
    }

    /// The same limiter with counters of its own, for rules with `on_error: local`. Without them
    /// such rules allow.
    pub fn with_local(self, local: LocalCounters) -> Limiter<S, C> {
        Limiter { local: Some(local), ..self }
    }

    /// The counters of its own.
    pub fn local(&self) -> Option<&LocalCounters> {
        self.local.as_ref()
    }

    /// The store, for what looks at it from outside (sweeps, metrics).
    pub fn store(&self) -> &S {
        self.layers.store()
    }

    /// The layers around the store, for what they must do beside deciding.
    pub fn layers(&self) -> &Arc<Backend<S>> {
        &self.layers
    }

    /// The clock, for what must agree with decisions about the time.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Decides a valid request that came at `now` by our own clock. Never fails, and waits for
    /// nothing but the store.
    pub async fn check(&self, rules: &RuleSet, request: &Request<'_>, now: Micros) -> Verdict {
        if let Some(store) = self.layers.in_memory() {
            return self.check_at_once(store, rules, request, now);
        }
        // Apart, so that decisions from memory do not carry the room for it along; and nameless,
        // because the compiler would look through it for every caller.
        let waiting: BoxFuture<'_, Verdict> = Box::pin(self.check_waiting(rules, request, now));
        waiting.await
    }

    /// The same from a store that answers at once, without anything to wait for.
    fn check_at_once(
        &self,
        store: &MemoryStore,
        rules: &RuleSet,
        request: &Request<'_>,
        now: Micros,
    ) -> Verdict {
        if let [one] = request.descriptors {
            // The common case needs no list.
            let mut target = resolve::of(rules, request, one, &self.seed);
            resolve::settle(std::slice::from_mut(&mut target), &self.ids);
            return self.verdict(rules, request, &mut [self.at_once(store, &target, now)], now);
        }
        let targets = resolve::resolve(rules, request, &self.seed, &self.ids);
        let decide = |target| self.at_once(store, target, now);
        let mut decided: Vec<Decided<'_, S>> = targets.iter().map(decide).collect();
        self.verdict(rules, request, &mut decided, now)
    }

    /// Decides about one descriptor of a request that came at `now`.
    fn at_once<'t>(
        &self,
        store: &MemoryStore,
        target: &'t Resolved<'t>,
        now: Micros,
    ) -> Decided<'t, S> {
        match target {
            Resolved::Uncounted { cause, .. } => Decided { target, cause: *cause, taken: None },
            Resolved::Counter(question) => {
                let begun = self.begin(question, now);
                let answer = begun.check(question, None).of_memory(store);
                self.conclude(target, question, begun, answer)
            }
        }
    }

    async fn check_waiting(&self, rules: &RuleSet, request: &Request<'_>, now: Micros) -> Verdict {
        if let [one] = request.descriptors {
            // The common case needs no list, neither of targets nor of futures.
            let mut target = resolve::of(rules, request, one, &self.seed);
            resolve::settle(std::slice::from_mut(&mut target), &self.ids);
            let decided = self.wait(&target, now, request.timeout).await;
            return self.verdict(rules, request, &mut [decided], now);
        }
        let targets = resolve::resolve(rules, request, &self.seed, &self.ids);
        let waits = targets.iter().map(|target| self.wait(target, now, request.timeout));
        let mut decided = join_all(waits).await;
        self.verdict(rules, request, &mut decided, now)
    }

    /// The same from a store that is waited for.
    async fn wait<'t>(
        &self,
        target: &'t Resolved<'t>,
        now: Micros,
        timeout: Option<Duration>,
    ) -> Decided<'t, S> {
        match target {
            Resolved::Uncounted { cause, .. } => Decided { target, cause: *cause, taken: None },
            Resolved::Counter(question) => {
                let begun = self.begin(question, now);
                let answer = self.layers.check(&begun.check(question, timeout)).await;
                self.conclude(target, question, begun, answer)
            }
        }
    }

    /// Folds what was decided, and gives back what a denied request took.
    fn verdict(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
        decided: &mut [Decided<'_, S>],
        now: Micros,
    ) -> Verdict {
        let answer = &self.answer;
        let statuses: Vec<Status> = decided.iter().map(Decided::status).collect();
        let folded = fold::overall(answer.quota_mode, decided, &statuses);
        let shadowed = answer.shadow_mode && folded == Code::OverLimit;
        let code = if shadowed { Code::Ok } else { folded };
        let headers = headers::all(answer, code, decided, &statuses);
        let mut metadata = metadata::of(answer.dynamic_metadata, request, decided, &statuses);
        let mut grant = None;
        if code == Code::OverLimit {
            let free = rules.denied_requests(request.domain) == DeniedRequests::Free;
            self.give_back(free, decided, &statuses, now);
        } else {
            grant = fold::grant(decided, &mut metadata);
        }
        Verdict { code, statuses, headers, metadata, shadowed, grant }
    }

    /// Gives back what a denied request took: slots always, because nothing will run in them; hits
    /// and reservations where the domain says that denied requests are free.
    fn give_back(
        &self,
        free: bool,
        decided: &mut [Decided<'_, S>],
        statuses: &[Status],
        now: Micros,
    ) {
        for (one, status) in decided.iter_mut().zip(statuses) {
            let Resolved::Counter(CounterQuery { rule, limit, key, .. }) = one.target else {
                continue;
            };
            if let Some(taken) = one.taken.take() {
                if !free && !limit.counts_slots() {
                    taken.disarm();
                }
                continue;
            }
            let Cause::Counted { hits: hits @ 1.., decision, .. } = status.cause else {
                continue;
            };
            // A shadow rule passes hits that it denied. Windows count all of those; a log and a
            // bucket only so many that a refund of all could free what others took.
            let windows = [Algorithm::FixedWindow, Algorithm::SlidingWindow];
            let denied = limit.count_denied && windows.contains(&limit.algorithm);
            let counted = decision.allowed || denied;
            let Ok(now) = self.store().now(key, now) else { continue };
            if free && counted && status.code == Code::Ok {
                let mode = rule.map_or(Mode::Exact, |rule| rule.mode);
                self.layers.apply_detached(key, mode, algorithm::plan(limit, -hits, now));
            }
        }
    }
}
