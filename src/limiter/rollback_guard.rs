//! Rollback guards, which give back what a request took under a lease, unless they are disarmed.
//!
//! A lease is rolled back by closing it. Closing an unknown or closed lease changes nothing, so the
//! caller and a cancelled call may both give the same lease back.

use std::sync::Arc;

use super::Backend;
use crate::algorithm;
use crate::key::CounterKey;
use crate::lease_rollback::RollbackAction;
use crate::limit::{Limit, Mode};
use crate::step::{Lease, LeaseId, Step};
use crate::store::{MemoryStore, SharedStore};
use crate::time::Micros;

/// The store that has the counter of a lease: the backend, or the local counters of the fallback.
pub(super) trait LeaseStore: Send + Sync + 'static {
    /// Applies the step that closes the lease, without waiting for it.
    fn roll_back(&self, key: &CounterKey, step: Step);
}

impl<S: SharedStore> LeaseStore for Backend<S> {
    fn roll_back(&self, key: &CounterKey, step: Step) {
        self.apply_detached(key, Mode::Exact, step);
    }
}

/// The local counters of the fallback.
impl LeaseStore for MemoryStore {
    fn roll_back(&self, key: &CounterKey, step: Step) {
        // A step that gives back needs no room, so it cannot fail.
        drop(self.apply_now(key, &step));
    }
}

/// A guard of what one step took under a lease. Dropping it closes the lease, so a call that is
/// cancelled during its query gives back what it may have taken.
pub(super) struct RollbackGuard {
    /// The rollback. It is boxed, because most decisions take no lease and need no space for one.
    armed: Option<Box<Rollback>>,
}

/// The step that closes a lease.
struct Rollback {
    store: Arc<dyn LeaseStore>,
    key: CounterKey,
    step: Step,
}

impl Rollback {
    fn apply(self) {
        self.store.roll_back(&self.key, self.step);
    }
}

impl RollbackGuard {
    /// A guard of the `hits` of `limit` that a step at `now` takes under the lease `id`.
    pub(super) fn new(
        store: Arc<dyn LeaseStore>,
        id: LeaseId,
        key: &CounterKey,
        limit: &Limit,
        hits: i64,
        now: Micros,
    ) -> RollbackGuard {
        // A slot is released; a reservation is settled at no cost.
        let hits = if limit.counts_slots() { -hits } else { 0 };
        let step = algorithm::plan_with_lease(limit, hits, Some(Lease::Close(id)), now);
        RollbackGuard { armed: Some(Box::new(Rollback { store, key: *key, step })) }
    }

    /// The lease's id.
    pub(super) fn id(&self) -> Option<LeaseId> {
        match self.armed.as_ref()?.step.lease? {
            Lease::Open { id, .. } | Lease::Close(id) => Some(id),
        }
    }

    /// Drops the guard without giving anything back.
    pub(super) fn disarm(mut self) {
        self.armed = None;
    }

    /// The rollback as a closure for the writer of the response; `None` if the guard is disarmed.
    pub(super) fn into_action(mut self) -> Option<RollbackAction> {
        let rollback = self.armed.take()?;
        Some(Box::new(move || rollback.apply()))
    }
}

impl Drop for RollbackGuard {
    fn drop(&mut self) {
        if let Some(rollback) = self.armed.take() {
            rollback.apply();
        }
    }
}
