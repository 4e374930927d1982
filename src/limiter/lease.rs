//! Leases: ids for what a request takes, and the way back for it.
//!
//! A lease is undone by ending it: an unknown or already ended id changes nothing, so it does not
//! matter whether the caller, a cancelled call or both give the same one back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::algorithm;
use crate::decision::GiveBack;
use crate::key::{Key, KeyBuilder, KeySeed};
use crate::limit::{Limit, Mode};
use crate::modes::{Backend, ModePath};
use crate::step::{Lease, LeaseId, Step};
use crate::store::{MemoryStore, Store};
use crate::time::Micros;

/// Makes ids that no other instance makes and nobody can guess.
pub(super) struct LeaseIds {
    seed: KeySeed,
    next: AtomicU64,
}

impl LeaseIds {
    /// Ids of this process.
    pub(super) fn new() -> LeaseIds {
        LeaseIds { seed: KeySeed::random(), next: AtomicU64::new(0) }
    }

    /// Another one.
    pub(super) fn next(&self) -> LeaseId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        LeaseId::from_bits(KeyBuilder::start(&self.seed).number(number).finish().0[0])
    }
}

/// The id that a `lease` entry names. A text that is no id of ours stands for an unknown lease.
pub(super) fn named(text: &str) -> LeaseId {
    text.parse().unwrap_or_else(|_| {
        let unknown = KeyBuilder::start(&KeySeed::fixed([1, 1])).text(text).finish();
        LeaseId::from_bits(unknown.0[0])
    })
}

/// What one step took under a lease. Dropped, it is given back; a call that is cancelled while its
/// counter is asked therefore gives back whatever it may have taken.
pub(super) struct UndoGuard<S: Store> {
    /// In a box, because most decisions take nothing and carry the room for it along.
    armed: Option<Box<(Origin<S>, Key, Step)>>,
}

/// Where it was taken.
pub(super) enum Origin<S> {
    /// Wherever counters are.
    Store(Arc<Backend<S>>),
    /// From this instance's own counters, by the fallback.
    Local(Arc<MemoryStore>),
}

impl<S: Store> Origin<S> {
    fn apply_detached(&self, key: &Key, undo: Step) {
        match self {
            Origin::Store(layers) => layers.apply_detached(key, Mode::Exact, undo),
            Origin::Local(store) => store.apply_detached(key, undo),
        }
    }
}

impl<S: Store> UndoGuard<S> {
    /// What `hits` take of `limit` at `now`, in this place under this id, if they are allowed.
    pub(super) fn new(
        place: Origin<S>,
        id: LeaseId,
        key: &Key,
        limit: &Limit,
        hits: i64,
        now: Micros,
    ) -> UndoGuard<S> {
        // A slot is given back as it was taken; a reservation is settled at no cost.
        let hits = if limit.counts_slots() { -hits } else { 0 };
        let undo = algorithm::plan(limit, hits, now).with_lease(Lease::Close(id));
        UndoGuard { armed: Some(Box::new((place, *key, undo))) }
    }

    /// The lease's id.
    pub(super) fn id(&self) -> Option<LeaseId> {
        match self.armed.as_ref()?.2.lease? {
            Lease::Open { id, .. } | Lease::Close(id) => Some(id),
        }
    }

    /// Nothing was taken, or it shall stay taken.
    pub(super) fn disarm(mut self) {
        self.armed = None;
    }

    /// The way back, for whoever writes the answer; `None` if nothing is left to give back.
    pub(super) fn into_give_back(mut self) -> Option<GiveBack> {
        let (place, key, undo) = *self.armed.take()?;
        Some(Box::new(move || place.apply_detached(&key, undo)))
    }
}

impl<S: Store> Drop for UndoGuard<S> {
    fn drop(&mut self) {
        if let Some(armed) = self.armed.take() {
            let (place, key, undo) = *armed;
            place.apply_detached(&key, undo);
        }
    }
}
