//! The limiter: the one function that knows the order in which a request is decided.
//!
//! It reads the clock once, looks every descriptor up in one snapshot of the rules, asks the store
//! about all counters at the same time, and folds the answers into a verdict. It cannot fail: where
//! a store does not answer, the fallback does.

use futures_util::future::join_all;
use smallvec::SmallVec;

use crate::algorithm;
use crate::decision::{Cause, Verdict};
use crate::descriptor::Request;
use crate::key::KeySeed;
use crate::limit::Limit;
use crate::rules::{Rule, RuleSet};
use crate::store::Store;
use crate::time::{Clock, Micros};

mod answer;
mod fold;
mod headers;
mod ietf;
mod metadata;
mod target;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Headers, OnError};
use target::Target;

/// Decides requests against one store.
pub struct Limiter<S, C> {
    store: S,
    clock: C,
    seed: KeySeed,
    answer: Answer,
}

/// What is known about one descriptor once its counter has answered.
struct Decided<'r> {
    /// The rule, or none where nothing matched or the proxy sent the limit.
    rule: Option<&'r Rule>,
    /// The limit that was applied; none where nothing limits.
    limit: Option<std::borrow::Cow<'r, Limit>>,
    /// How it went.
    cause: Cause,
}

impl<S: Store, C: Clock> Limiter<S, C> {
    /// A limiter whose counters live in `store`, under keys hashed with `seed`.
    pub fn new(store: S, clock: C, seed: KeySeed, answer: Answer) -> Limiter<S, C> {
        Limiter { store, clock, seed, answer }
    }

    /// The store, for what looks at it from outside (sweeps, metrics).
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The clock, for what must agree with decisions about the time.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Decides a valid request. Never fails, and waits for nothing but the store.
    pub async fn check(&self, rules: &RuleSet, request: &Request<'_>) -> Verdict {
        let now = self.clock.now();
        let targets = target::resolve(rules, request, &self.seed);
        let decided: SmallVec<[Decided<'_>; 4]> = match targets.len() {
            // One descriptor is the common case and needs no list of futures.
            1 => {
                let mut one = SmallVec::new();
                for target in targets {
                    one.push(self.decide(target, now).await);
                }
                one
            }
            _ => {
                let all = targets.into_iter().map(|target| self.decide(target, now));
                SmallVec::from_vec(join_all(all).await)
            }
        };
        fold::verdict(&self.answer, request, &decided)
    }

    async fn decide<'r>(&self, target: Target<'r>, now: Micros) -> Decided<'r> {
        let (rule, limit, key, hits) = match target {
            Target::Free { rule, cause } => return Decided { rule, limit: None, cause },
            Target::Counter { rule, limit, key, hits } => (rule, limit, key, hits),
        };
        let step = algorithm::plan(&limit, hits, now);
        let index = rule.map(|rule| rule.index);
        let shadow = rule.is_some_and(|rule| rule.shadow_mode);
        let cause = match self.store.apply(&key, &step).await {
            Ok(outcome) => {
                let decision = algorithm::report(&limit, &step, &outcome);
                Cause::Counted { rule: index, hits, decision, shadow }
            }
            Err(error) => {
                let allowed = self.answer.on_error == OnError::Allow || hits <= 0;
                Cause::Fallback { rule: index, hits, allowed, error }
            }
        };
        Decided { rule, limit: Some(limit), cause }
    }
}
