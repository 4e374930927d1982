//! The limiter: the one function that knows the order in which a request is decided.
//!
//! It reads the clock once, looks every descriptor up in one snapshot of the rules, asks the store
//! about all counters at the same time, and folds the answers into a verdict. It cannot fail: where
//! a store does not answer, the fallback does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use smallvec::SmallVec;

use crate::algorithm;
use crate::decision::{Cause, Code, Verdict};
use crate::descriptor::Request;
use crate::key::{Key, KeySeed};
use crate::layers::{Ask, Layer, Layers};
use crate::limit::{Algorithm, Limit, Mode};
use crate::rules::{DeniedRequests, Rule, RuleSet};
use crate::step::Lease;
use crate::store::Store;
use crate::time::{Clock, Micros};

mod answer;
mod fallback;
mod fold;
mod headers;
mod ietf;
mod inspect;
mod lease;
mod metadata;
mod target;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Headers};
pub use fallback::Local;
use fallback::Unanswered;
pub use inspect::{Counter, NoCounter};
use lease::{LeaseIds, Place, Taken};
use target::{LeaseUse, Target};

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

/// One per descriptor, in their order. Several come as a list from [`join_all`] and are kept as they
/// come; more room inside would be moved about for nothing.
type DecidedList<'r, S> = SmallVec<[Decided<'r, S>; 1]>;

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

    /// Decides a valid request. Never fails, and waits for nothing but the store.
    pub async fn check(&self, rules: &RuleSet, request: &Request<'_>) -> Verdict {
        let now = self.clock.now();
        let patience = request.patience;
        let decided: DecidedList<'_, S> = if let [one] = request.descriptors {
            // The common case needs no list, neither of targets nor of futures.
            let target = target::resolve_one(rules, request, one, &self.seed, &self.ids);
            SmallVec::from_buf([self.decide(target, now, patience).await])
        } else {
            let targets = target::resolve(rules, request, &self.seed, &self.ids);
            let all = targets.into_iter().map(|target| self.decide(target, now, patience));
            SmallVec::from_vec(join_all(all).await)
        };
        let mut verdict = fold::verdict(&self.answer, request, &decided);
        if verdict.code == Code::OverLimit {
            let free = rules.denied_requests(request.domain) == DeniedRequests::Free;
            self.give_back(free, decided, &verdict, now);
        } else {
            fold::grant(&mut verdict, decided);
        }
        verdict
    }

    async fn decide<'r>(
        &self,
        target: Target<'r>,
        local: Micros,
        patience: Option<Duration>,
    ) -> Decided<'r, S> {
        let (rule, limit, key, hits, lease) = match target {
            Target::Free { rule, cause } => {
                return Decided { rule, limit: None, key: None, cause, taken: None };
            }
            Target::Counter { rule, limit, key, hits, lease } => (rule, limit, key, hits, lease),
        };
        let asked = self.store().now(&key, local);
        let now = asked.unwrap_or(local);
        let under = lease.map(|lease| match lease {
            LeaseUse::Open(id) => {
                let hold = rule.and_then(|rule| rule.reserve).unwrap_or_default();
                Lease::Open { id, until: now.saturating_add(hold) }
            }
            LeaseUse::Close(id) => Lease::Close(id),
        });
        let opens = match under {
            Some(Lease::Open { id, .. }) => Some(id),
            _ => None,
        };
        // Armed before the store is asked: whoever drops this call gives back what it may take.
        let mut taken = opens
            .map(|id| Taken::new(Place::Store(self.layers.clone()), id, &key, &limit, hits, now));
        let index = rule.map(|rule| rule.index);
        let shadow = rule.is_some_and(|rule| rule.shadow_mode);
        let ask = Ask {
            key: &key,
            limit: &limit,
            hits,
            lease: under,
            mode: rule.map_or(Mode::Exact, |rule| rule.mode),
            over_limit_cache: rule.is_none_or(|rule| rule.over_limit_cache),
            local,
            now: asked,
            patience,
        };
        if let (Some(own), Some(Lease::Close(id))) = (&self.local, under) {
            // Apart, as all that is rare: decisions shall not carry the room for it along.
            Box::pin(own.end(&key, &limit, hits, id, local)).await;
        }
        let cause = match self.layers.ask(&ask).await {
            Ok(decision) => {
                if let Some(nothing) = taken.take_if(|_| !decision.allowed) {
                    nothing.keep();
                }
                // A settlement's hits were asked for when they were reserved.
                let settles = matches!(lease, Some(LeaseUse::Close(_)));
                let hits = if settles { hits.min(0) } else { hits };
                Cause::Counted { rule: index, hits, decision, shadow }
            }
            Err(error) => {
                // It may have been taken all the same.
                taken = None;
                let policy = rule.and_then(|rule| rule.on_error).unwrap_or(self.answer.on_error);
                let word = policy.word();
                tracing::debug!(rule = rule.map(|rule| &*rule.label), word, %error, "fallback");
                let from =
                    Unanswered { rule: index, limit: &limit, key: &key, hits, lease: under, error };
                let decide = fallback::decide(policy, self.local.as_ref(), from, local);
                let cause = Box::pin(decide).await;
                if let (Some(own), Cause::Fallback { decision: Some(one), .. }) =
                    (&self.local, &cause)
                    && one.allowed
                {
                    taken = opens.map(|id| {
                        Taken::new(Place::Local(own.store().clone()), id, &key, &limit, hits, local)
                    });
                }
                cause
            }
        };
        Decided { rule, limit: Some(limit), key: Some(key), cause, taken }
    }

    /// Gives back what a denied request took: slots always, because nothing will run in them; hits
    /// and reservations where the domain says that denied requests are free.
    fn give_back(&self, free: bool, decided: DecidedList<'_, S>, verdict: &Verdict, now: Micros) {
        for (one, status) in decided.into_iter().zip(&verdict.statuses) {
            let Some((limit, key)) = one.limit.as_deref().zip(one.key) else { continue };
            if let Some(taken) = one.taken {
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
