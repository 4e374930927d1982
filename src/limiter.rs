//! The limiter: the one function that knows the order in which a request is decided.
//!
//! It looks every descriptor up in one snapshot of the rules, asks the store about all counters at
//! the same time, and folds the answers into a verdict. It cannot fail: where a store does not
//! answer, the fallback does.

use std::sync::Arc;

use crate::algorithm;
use crate::decision::{Cause, Code, Verdict};
use crate::descriptor::Request;
use crate::key::{Key, KeySeed};
use crate::layers::{Layer, Layers};
use crate::limit::{Algorithm, Limit, Mode};
use crate::rules::{DeniedRequests, Rule, RuleSet};
use crate::store::{MemoryStore, Store};
use crate::time::{Clock, Micros};
use futures_util::future::{BoxFuture, join_all};

mod answer;
mod fallback;
mod fold;
mod headers;
mod ietf;
mod inspect;
mod lease;
mod metadata;
mod question;
mod target;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Headers};
pub use fallback::Local;
pub use inspect::{Counter, NoCounter};
use lease::{LeaseIds, Taken};
use target::Target;

/// Decides requests against one store.
pub struct Limiter<S, C> {
    /// Shared with what was taken under leases, which finds its way back when it is dropped.
    layers: Arc<Layers<S>>,
    clock: C,
    seed: KeySeed,
    answer: Answer,
    ids: LeaseIds,
    local: Option<Local>,
}

/// What is known about one descriptor once its counter has answered.
struct Decided<'r, S: Store> {
    /// The rule, or none where nothing matched or the proxy sent the limit.
    rule: Option<&'r Rule>,
    /// The limit that was applied; none where nothing limits.
    limit: Option<std::borrow::Cow<'r, Limit>>,
    /// Which counter was asked; none where nothing limits.
    key: Option<Key>,
    /// How it went.
    cause: Cause,
    /// What the request took under a lease.
    taken: Option<Taken<S>>,
}

impl<'r, S: Store> Decided<'r, S> {
    /// Of a descriptor that nothing was asked about.
    fn free(rule: Option<&'r Rule>, cause: Cause) -> Decided<'r, S> {
        Decided { rule, limit: None, key: None, cause, taken: None }
    }
}

impl<S: Store, C: Clock> Limiter<S, C> {
    /// A limiter whose counters live in a store of its own, under keys hashed with `seed`.
    pub fn new(store: S, clock: C, seed: KeySeed, answer: Answer) -> Limiter<S, C> {
        Limiter::over(Layers::own(store), clock, seed, answer)
    }

    /// A limiter that decides by `layers`, with keys hashed with `seed`.
    pub fn over(layers: Layers<S>, clock: C, seed: KeySeed, answer: Answer) -> Limiter<S, C> {
        let (layers, ids) = (Arc::new(layers), LeaseIds::new());
        Limiter { layers, clock, seed, answer, ids, local: None }
    }

    /// The same limiter with counters of its own, for rules with `on_error: local`. Without them
    /// such rules allow.
    pub fn with_local(self, local: Local) -> Limiter<S, C> {
        Limiter { local: Some(local), ..self }
    }

    /// The counters of its own.
    pub fn local(&self) -> Option<&Local> {
        self.local.as_ref()
    }

    /// The store, for what looks at it from outside (sweeps, metrics).
    pub fn store(&self) -> &S {
        self.layers.store()
    }

    /// The layers around the store, for what they must do beside deciding.
    pub fn layers(&self) -> &Arc<Layers<S>> {
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
        let decide = |target| {
            let question = match target {
                Target::Free { rule, cause } => return Decided::free(rule, cause),
                Target::Counter(question) => question,
            };
            let begun = self.begin(&question, now);
            let answer = begun.ask(&question, request.patience).of_memory(store);
            self.conclude(question, begun, answer)
        };
        if let [one] = request.descriptors {
            // The common case needs no list.
            let target = target::resolve_one(rules, request, one, &self.seed, &self.ids);
            return self.verdict(rules, request, &mut [decide(target)], now);
        }
        let targets = target::resolve(rules, request, &self.seed, &self.ids);
        let mut decided: Vec<Decided<'_, S>> = targets.into_iter().map(decide).collect();
        self.verdict(rules, request, &mut decided, now)
    }

    async fn check_waiting(&self, rules: &RuleSet, request: &Request<'_>, now: Micros) -> Verdict {
        let decide = async |target| {
            let question = match target {
                Target::Free { rule, cause } => return Decided::free(rule, cause),
                Target::Counter(question) => question,
            };
            let begun = self.begin(&question, now);
            let answer = self.layers.ask(&begun.ask(&question, request.patience)).await;
            self.conclude(question, begun, answer)
        };
        if let [one] = request.descriptors {
            // The common case needs no list, neither of targets nor of futures.
            let target = target::resolve_one(rules, request, one, &self.seed, &self.ids);
            return self.verdict(rules, request, &mut [decide(target).await], now);
        }
        let targets = target::resolve(rules, request, &self.seed, &self.ids);
        let mut decided = join_all(targets.into_iter().map(decide)).await;
        self.verdict(rules, request, &mut decided, now)
    }

    /// Folds what was decided, and gives back what a denied request took.
    fn verdict(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
        decided: &mut [Decided<'_, S>],
        now: Micros,
    ) -> Verdict {
        let mut verdict = fold::verdict(&self.answer, request, decided);
        if verdict.code == Code::OverLimit {
            let free = rules.denied_requests(request.domain) == DeniedRequests::Free;
            self.give_back(free, decided, &verdict, now);
        } else {
            fold::grant(&mut verdict, decided);
        }
        verdict
    }

    /// Gives back what a denied request took: slots always, because nothing will run in them; hits
    /// and reservations where the domain says that denied requests are free.
    fn give_back(
        &self,
        free: bool,
        decided: &mut [Decided<'_, S>],
        verdict: &Verdict,
        now: Micros,
    ) {
        for (one, status) in decided.iter_mut().zip(&verdict.statuses) {
            let Some((limit, key)) = one.limit.as_deref().zip(one.key) else { continue };
            if let Some(taken) = one.taken.take() {
                if !free && !limit.counts_slots() {
                    taken.keep();
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
            let Ok(now) = self.store().now(&key, now) else { continue };
            if free && counted && status.code == Code::Ok {
                let mode = one.rule.map_or(Mode::Exact, |rule| rule.mode);
                self.layers.tell(&key, mode, algorithm::plan(limit, -hits, now));
            }
        }
    }
}
