//! A question to one counter: what goes before the store is asked, and what its answer means.

use std::borrow::Cow;
use std::time::Duration;

use super::fallback::{self, Unanswered};
use super::lease::{Origin, UndoGuard};
use super::resolve::Resolved;
use super::{Decided, Limiter};
use crate::decision::{Cause, Decision};
use crate::key::Key;
use crate::limit::{Limit, Mode};
use crate::modes::CounterCheck;
use crate::rules::Rule;
use crate::step::{Lease, LeaseId};
use crate::store::{Store, StoreError};
use crate::time::{Clock, Micros};

/// What one descriptor asks of a counter.
pub(super) struct CounterQuery<'r> {
    /// The rule that was met; none for a limit that the proxy sent.
    pub(super) rule: Option<&'r Rule>,
    /// What to hold the counter against.
    pub(super) limit: Cow<'r, Limit>,
    /// Which counter.
    pub(super) key: Key,
    /// What to ask of it.
    pub(super) hits: i64,
    /// The lease that the hits are taken under, or that they end.
    pub(super) lease: Option<LeaseUse>,
}

/// What a descriptor does with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseUse {
    /// Takes something under this id, if it is allowed.
    Open(LeaseId),
    /// Gives back or settles what was taken under this id.
    Close(LeaseId),
}

/// A question that is being asked.
pub(super) struct PendingQuery<S: Store> {
    /// The instant of the request, by our own clock.
    local: Micros,
    /// The same by the store's.
    now: Result<Micros, StoreError>,
    lease: Option<Lease>,
    /// Armed before the store is asked: whoever drops the call gives back what it may take.
    taken: Option<UndoGuard<S>>,
}

impl<S: Store> PendingQuery<S> {
    /// What to ask, for somebody who waits no longer than `timeout`.
    pub(super) fn check<'a>(
        &self,
        question: &'a CounterQuery<'_>,
        timeout: Option<Duration>,
    ) -> CounterCheck<'a> {
        let rule = question.rule;
        CounterCheck {
            key: &question.key,
            limit: &question.limit,
            hits: question.hits,
            lease: self.lease,
            mode: rule.map_or(Mode::Exact, |rule| rule.mode),
            over_limit_cache: rule.is_none_or(|rule| rule.over_limit_cache),
            local: self.local,
            now: self.now,
            timeout,
        }
    }
}

impl<S: Store, C: Clock> Limiter<S, C> {
    /// Gets ready to ask, at `local` by our own clock.
    pub(super) fn begin(&self, question: &CounterQuery<'_>, local: Micros) -> PendingQuery<S> {
        let now = self.store().now(&question.key, local);
        let mut begun = PendingQuery { local, now, lease: None, taken: None };
        if let Some(lease) = question.lease {
            self.begin_lease(question, lease, &mut begun);
        }
        begun
    }

    #[cold]
    fn begin_lease(
        &self,
        question: &CounterQuery<'_>,
        lease: LeaseUse,
        begun: &mut PendingQuery<S>,
    ) {
        let CounterQuery { rule, limit, key, hits, .. } = question;
        let now = begun.now.unwrap_or(begun.local);
        match lease {
            LeaseUse::Open(id) => {
                let hold = rule.and_then(|rule| rule.reserve).unwrap_or_default();
                begun.lease = Some(Lease::Open { id, until: now.saturating_add(hold) });
                let place = Origin::Store(self.layers.clone());
                begun.taken = Some(UndoGuard::new(place, id, key, limit, *hits, now));
            }
            LeaseUse::Close(id) => {
                begun.lease = Some(Lease::Close(id));
                if let Some(own) = &self.local {
                    own.end(key, limit, *hits, id, begun.local);
                }
            }
        }
    }

    /// What the answer to `question`, which is `target`'s, means.
    #[inline]
    pub(super) fn conclude<'t>(
        &self,
        target: &'t Resolved<'t>,
        question: &CounterQuery<'_>,
        mut begun: PendingQuery<S>,
        answer: Result<Decision, StoreError>,
    ) -> Decided<'t, S> {
        let cause = match answer {
            Ok(decision) => {
                if let Some(nothing) = begun.taken.take_if(|_| !decision.allowed) {
                    nothing.disarm();
                }
                // A settlement's hits were asked for when they were reserved.
                let settles = matches!(question.lease, Some(LeaseUse::Close(_)));
                let hits = if settles { question.hits.min(0) } else { question.hits };
                let rule = question.rule.map(|rule| rule.index);
                let shadow = question.rule.is_some_and(|rule| rule.shadow_mode);
                Cause::Counted { rule, hits, decision, shadow }
            }
            Err(error) => self.fall_back(question, &mut begun, error),
        };
        Decided { target, cause, taken: begun.taken }
    }

    #[cold]
    fn fall_back(
        &self,
        question: &CounterQuery<'_>,
        begun: &mut PendingQuery<S>,
        error: StoreError,
    ) -> Cause {
        let CounterQuery { rule, limit, key, hits, .. } = question;
        // It may have been taken all the same.
        begun.taken = None;
        let policy = rule.and_then(|rule| rule.on_error).unwrap_or(self.answer.on_error);
        let word = policy.word();
        tracing::debug!(rule = rule.map(|rule| &*rule.label), word, %error, "fallback");
        let index = rule.map(|rule| rule.index);
        let from = Unanswered { rule: index, limit, key, hits: *hits, lease: begun.lease, error };
        let cause = fallback::decide(policy, self.local.as_ref(), from, begun.local);
        if let (
            Some(own),
            Some(Lease::Open { id, .. }),
            Cause::Fallback { decision: Some(one), .. },
        ) = (&self.local, begun.lease, &cause)
            && one.allowed
        {
            let place = Origin::Local(own.store().clone());
            begun.taken = Some(UndoGuard::new(place, id, key, limit, *hits, begun.local));
        }
        cause
    }
}
