//! The over-limit cache: denies requests to a full counter from memory, as long as it is full.
//!
//! It wraps a store and implements the same trait. The outcome of a denial has the counter's state.
//! Without `count_denied`, a denial does not change this state. So the same state machine, applied
//! here, denies the same requests as the store, with the same numbers.
//!
//! Hits of other instances only make the counter fuller. Hits that are given back through this
//! instance invalidate the entry at once. Any other instance may give hits back as well: it settles
//! a reservation, rolls back a denied request, or returns credits. So a denial is cached for at
//! most one second. `docs/design/modes.md` has the proof.
//!
//! A fixed window of one tier may count denied hits. Hits that are denied here are unreported at
//! first. They are reported to the store before any step whose outcome depends on them.

use std::sync::Arc;
use std::time::Duration;

use crate::key::CounterKey;
use crate::step::{Outcome, Step};
use crate::store::{SharedStore, StoreError};
use crate::time::{Deadline, Micros};

mod cache;
mod denied_state;

#[cfg(test)]
mod tests;

pub(crate) use cache::DENIALS_MAX;
pub(super) use cache::OverLimitCache;

use cache::{CacheSet, Lookup};

/// The longest time that a denial is cached. It bounds how long a request is denied although
/// another instance has given hits back.
pub(super) const DENIAL_TTL: Micros = Micros::SECOND;

/// A store behind an over-limit cache.
pub struct OverLimitStore<S> {
    store: Arc<S>,
    cache: Arc<OverLimitCache>,
    /// The longest time that a denial is used.
    max_age: Micros,
}

impl<S> OverLimitStore<S> {
    /// `store` behind `cache`, whose denials are used for at most `max_age`.
    pub(super) fn new(
        store: Arc<S>,
        cache: Arc<OverLimitCache>,
        max_age: Micros,
    ) -> OverLimitStore<S> {
        OverLimitStore { store, cache, max_age }
    }
}

impl<S: SharedStore> OverLimitStore<S> {
    /// Applies a step that takes hits or peeks.
    async fn take(
        &self,
        set: &CacheSet,
        key: &CounterKey,
        step: &Step,
        mut timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        let before = set.stamp();
        if !before.is_empty() {
            match set.lookup(key, step, self.max_age) {
                Lookup::Denied(outcome) => {
                    self.cache.count_denied();
                    return Ok(outcome);
                }
                Lookup::Unreported(denied) => {
                    // Reported first, because the outcome of this step depends on the denied hits.
                    timeout = self.report(set, key, &denied, timeout).await?;
                    if timeout == Some(Duration::ZERO) {
                        return Err(StoreError::Timeout);
                    }
                    // Hits that were denied during the report also precede this step.
                    if step.hits > 0
                        && let Some(denied) = set.remove(key, step.now)
                    {
                        self.store.apply_detached(key, denied);
                    }
                }
                Lookup::Miss => {}
            }
        }
        let outcome = self.store.apply_within(key, step, timeout).await?;
        if !outcome.allowed
            && step.hits > 0
            && let Some((evicted, denied)) = set.insert(before, key, step, &outcome)
        {
            self.store.apply_detached(&evicted, denied);
        }
        Ok(outcome)
    }

    /// Applies a step that gives hits back or settles a reservation. No denial from before or
    /// during the step may stay in the cache.
    async fn give_back(
        &self,
        set: &CacheSet,
        key: &CounterKey,
        step: &Step,
        mut timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        if let Some(denied) = set.take_unreported(key, step.now) {
            timeout = self.report(set, key, &denied, timeout).await?;
            if timeout == Some(Duration::ZERO) {
                // No caller waits any longer. The hits would stay charged if they were not sent.
                self.apply_detached(key, step.clone());
                return Err(StoreError::Timeout);
            }
        }
        if let Some(denied) = set.invalidate(key, step.now) {
            self.store.apply_detached(key, denied);
        }
        // A call that is dropped, or that has no outcome, may reach the counter at any time.
        let mut guard =
            SuppressOnDrop { store: &*self.store, set, key, now: step.now, armed: true };
        let result = self.store.apply_within(key, step, timeout).await;
        guard.armed = matches!(result, Err(error) if error.may_have_run());
        if !guard.armed
            && let Some(denied) = set.invalidate(key, step.now)
        {
            self.store.apply_detached(key, denied);
        }
        result
    }

    /// Reports unreported denied hits to the counter. Returns the rest of `timeout`, which this
    /// call and the following step share. The rest may be zero.
    async fn report(
        &self,
        set: &CacheSet,
        key: &CounterKey,
        denied: &Step,
        timeout: Option<Duration>,
    ) -> Result<Option<Duration>, StoreError> {
        let deadline = Deadline::after(timeout.into_iter().chain(self.store.timeout()).min());
        if let Err(error) = self.store.apply_within(key, denied, timeout).await {
            if !error.may_have_run() && !set.restore_unreported(key, denied) {
                self.store.apply_detached(key, denied.clone());
            }
            return Err(error);
        }
        Ok(deadline.left())
    }
}

/// A guard of a step that gives hits back, while its outcome is unknown. Dropping it armed
/// suppresses cached denials of the counter, because the step may still arrive.
struct SuppressOnDrop<'a, S: SharedStore> {
    store: &'a S,
    set: &'a CacheSet,
    key: &'a CounterKey,
    now: Micros,
    armed: bool,
}

impl<S: SharedStore> Drop for SuppressOnDrop<'_, S> {
    fn drop(&mut self) {
        if self.armed
            && let Some((evicted, denied)) = self.set.suppress(self.key, self.now)
        {
            self.store.apply_detached(&evicted, denied);
        }
    }
}

impl<S: SharedStore> SharedStore for OverLimitStore<S> {
    fn now(&self, key: &CounterKey, local: Micros) -> Result<Micros, StoreError> {
        self.store.now(key, local)
    }

    fn timeout(&self) -> Option<Duration> {
        self.store.timeout()
    }

    async fn apply_within(
        &self,
        key: &CounterKey,
        step: &Step,
        timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        let set = self.cache.set(key);
        if step.gives_back() {
            self.give_back(set, key, step, timeout).await
        } else {
            self.take(set, key, step, timeout).await
        }
    }

    fn apply_detached(&self, key: &CounterKey, step: Step) {
        if step.gives_back() {
            let set = self.cache.set(key);
            if let Some(denied) = set.invalidate(key, step.now) {
                self.store.apply_detached(key, denied);
            }
            if let Some((evicted, denied)) = set.suppress(key, step.now) {
                self.store.apply_detached(&evicted, denied);
            }
        }
        self.store.apply_detached(key, step);
    }

    async fn delete(&self, key: &CounterKey) -> Result<bool, StoreError> {
        let set = self.cache.set(key);
        // A deleted counter needs no report of denied hits.
        let _ = set.invalidate(key, Micros::ZERO);
        let deleted = self.store.delete(key).await;
        // Again, because a denial that arrived meanwhile is from before the deletion.
        let _ = set.invalidate(key, Micros::ZERO);
        deleted
    }
}
