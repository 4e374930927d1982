//! Over-limit cache: a counter that is full is denied from memory for as long as it is full.
//!
//! Around a store, with the same trait. A denial leaves the counter as it was and tells its state,
//! so the same state machine can deny here what the store would deny, with the same numbers: the
//! hits of others can only make a counter fuller, until its own time empties it. What gives hits
//! back through this instance makes it forget at once; what another instance gives back is not seen
//! before the counter would have had room anyway. `docs/modes.md` has the proof.

use std::sync::Arc;
use std::time::Duration;

use crate::key::Key;
use crate::step::{Lease, Outcome, Step};
use crate::store::{Store, StoreError};
use crate::time::{Deadline, Micros};

mod cache;
mod denied_state;

#[cfg(test)]
mod tests;

pub(super) use cache::OverLimitCache;

use cache::{Lookup, Set};

/// Denies again what `store` denied, as long as nothing can have changed.
pub struct OverLimitStore<S> {
    store: Arc<S>,
    full: Arc<OverLimitCache>,
    /// For how long a denial is remembered, if not for as long as it holds.
    at_most: Option<Micros>,
}

impl<S> OverLimitStore<S> {
    /// Around `store`; what is remembered is kept in `full`.
    pub(super) fn new(store: Arc<S>, full: Arc<OverLimitCache>) -> OverLimitStore<S> {
        OverLimitStore { store, full, at_most: None }
    }

    /// The same, but a denial is remembered for `length` at most.
    pub(super) fn for_at_most(self, length: Micros) -> OverLimitStore<S> {
        OverLimitStore { at_most: Some(length), ..self }
    }
}

impl<S: Store> OverLimitStore<S> {
    /// Takes or looks.
    async fn take(
        &self,
        set: &Set,
        key: &Key,
        step: &Step,
        mut timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        let before = set.mark();
        if before.holds_anything() {
            match set.answer(key, step, self.at_most) {
                Lookup::Denied(outcome) => {
                    self.full.count_denied();
                    return Ok(outcome);
                }
                Lookup::Unreported(owed) => {
                    // The store counts denied hits, and this step could tell that it did not hear
                    // of some.
                    timeout = self.settle(set, key, &owed, timeout).await?;
                    // What was denied meanwhile goes ahead of it.
                    if step.hits > 0
                        && let Some(owed) = set.drop_known(key, step.now)
                    {
                        self.store.apply_detached(key, owed);
                    }
                }
                Lookup::Miss => {}
            }
        }
        let outcome = self.store.apply_within(key, step, timeout).await?;
        if !outcome.allowed
            && step.hits > 0
            && let Some(owed) = set.learn(before, key, step, &outcome)
        {
            self.store.apply_detached(&owed.0, owed.1);
        }
        Ok(outcome)
    }

    /// Gives back or settles. Nothing that was denied meanwhile may be remembered.
    async fn give_back(
        &self,
        set: &Set,
        key: &Key,
        step: &Step,
        mut timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        if let Some(owed) = set.settle(key, step.now) {
            timeout = self.settle(set, key, &owed, timeout).await?;
        }
        if let Some(owed) = set.forget(key, step.now) {
            self.store.apply_detached(key, owed);
        }
        // Dropped on the way, or without an answer, it may reach the counter any time.
        let mut late = Late { store: &*self.store, set, key, now: step.now, armed: true };
        let result = self.store.apply_within(key, step, timeout).await;
        late.armed = matches!(result, Err(error) if error.may_have_run());
        if !late.armed
            && let Some(owed) = set.forget(key, step.now)
        {
            self.store.apply_detached(key, owed);
        }
        result
    }

    /// Brings `owed` to the counter. Both visits share one deadline: what is left is for the other.
    async fn settle(
        &self,
        set: &Set,
        key: &Key,
        owed: &Step,
        timeout: Option<Duration>,
    ) -> Result<Option<Duration>, StoreError> {
        let deadline = Deadline::after(timeout.into_iter().chain(self.store.timeout()).min());
        if let Err(error) = self.store.apply_within(key, owed, timeout).await {
            if !error.may_have_run() && !set.owe(key, owed) {
                self.store.apply_detached(key, owed.clone());
            }
            return Err(error);
        }
        match deadline.left() {
            Some(Duration::ZERO) => Err(StoreError::Timeout),
            left => Ok(left),
        }
    }
}

/// Something that gives hits back and may not have reached the counter yet, when it is dropped.
struct Late<'a, S: Store> {
    store: &'a S,
    set: &'a Set,
    key: &'a Key,
    now: Micros,
    armed: bool,
}

impl<S: Store> Drop for Late<'_, S> {
    fn drop(&mut self) {
        if self.armed
            && let Some(owed) = self.set.be_quiet(self.key, self.now)
        {
            self.store.apply_detached(&owed.0, owed.1);
        }
    }
}

/// Whether the step gives something back: then a counter that was full may have room.
fn gives_back(step: &Step) -> bool {
    step.hits < 0 || matches!(step.lease, Some(Lease::Close(_)))
}

impl<S: Store> Store for OverLimitStore<S> {
    fn now(&self, key: &Key, local: Micros) -> Result<Micros, StoreError> {
        self.store.now(key, local)
    }

    fn timeout(&self) -> Option<Duration> {
        self.store.timeout()
    }

    async fn apply_within(
        &self,
        key: &Key,
        step: &Step,
        timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        let set = self.full.set(key);
        if gives_back(step) {
            self.give_back(set, key, step, timeout).await
        } else {
            self.take(set, key, step, timeout).await
        }
    }

    fn apply_detached(&self, key: &Key, step: Step) {
        if gives_back(&step) {
            let set = self.full.set(key);
            if let Some(owed) = set.forget(key, step.now) {
                self.store.apply_detached(key, owed);
            }
            if let Some(owed) = set.be_quiet(key, step.now) {
                self.store.apply_detached(&owed.0, owed.1);
            }
        }
        self.store.apply_detached(key, step);
    }

    async fn forget(&self, key: &Key) -> Result<bool, StoreError> {
        let set = self.full.set(key);
        // What a denial owes is of no use to a counter that is emptied.
        let _ = set.forget(key, Micros::ZERO);
        let forgotten = self.store.forget(key).await;
        // A denial that was on its way meanwhile is of the counter as it was.
        let _ = set.forget(key, Micros::ZERO);
        forgotten
    }
}
