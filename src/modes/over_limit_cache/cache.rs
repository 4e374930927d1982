//! The cache of full counters, with a fixed number of slots.
//!
//! A key has one set of eight slots. A ninth key of a set evicts the entry that ends first, so a
//! flood of keys evicts entries but cannot grow the cache. A lookup takes one lock, or none if the
//! set is empty, because the set's stamp is an atomic integer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::denied_state::DeniedState;
use crate::key::CounterKey;
use crate::step::{Outcome, Step};
use crate::time::Micros;

/// Number of sets. With eight slots each, they have 65536 counters.
const SETS: usize = 8192;
/// Slots of one set.
const SLOTS: usize = 8;
/// Most counters in the cache.
pub(crate) const DENIALS_MAX: usize = SETS * SLOTS;

/// The time in which no denial is cached after hits were given back without an outcome. The step
/// reaches the counter much sooner.
const SUPPRESSION_TTL: Micros = Micros::SECOND;

/// Counters that are full, and the states that deny their requests.
#[derive(Debug)]
pub struct OverLimitCache {
    sets: Box<[CacheSet]>,
    denied: AtomicU64,
}

/// The slots that the keys of one set share.
#[derive(Debug, Default)]
pub(super) struct CacheSet {
    /// Lowest byte: the number of used slots. Higher bytes: how often hits were given back to any
    /// key of the set.
    stamp: AtomicU64,
    slots: Mutex<Vec<CacheSlot>>,
}

/// One reading of a set's stamp.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetStamp(u64);

#[derive(Debug)]
struct CacheSlot {
    key: CounterKey,
    entry: CacheEntry,
}

#[derive(Debug)]
enum CacheEntry {
    /// The counter is full.
    Denied(DeniedState),
    /// Hits are being given back, so no denial is cached before this instant. The first denial
    /// sets the instant.
    Suppressed(Option<Micros>),
}

/// The result of a lookup for a step.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The counter denies the step.
    Denied(Outcome),
    /// The store must apply this report of denied hits, and then decide the step.
    Unreported(Step),
    /// The store must decide the step.
    Miss,
}

impl OverLimitCache {
    /// An empty cache.
    pub(in crate::modes) fn new() -> OverLimitCache {
        OverLimitCache::with_sets(SETS)
    }

    /// An empty cache of this number of sets.
    pub(in crate::modes) fn with_sets(sets: usize) -> OverLimitCache {
        OverLimitCache {
            sets: (0..sets).map(|_| CacheSet::default()).collect(),
            denied: AtomicU64::new(0),
        }
    }

    /// The set of `key`.
    pub(super) fn set(&self, key: &CounterKey) -> &CacheSet {
        &self.sets[key.0[0] as usize % self.sets.len()]
    }

    /// Invalidates `key` after hits were given back past the cache, because the rule's mode changed.
    pub(in crate::modes) fn invalidate(&self, key: &CounterKey, now: Micros) {
        let set = self.set(key);
        if !set.stamp().is_empty() {
            // Unreported hits belong to the old mode. The new one does not count denied hits.
            let _ = set.invalidate(key, now);
        }
    }

    pub(super) fn count_denied(&self) {
        self.denied.fetch_add(1, Ordering::Relaxed);
    }

    /// Steps denied without a call to the store.
    pub fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }

    /// Counters in the cache.
    pub fn counters(&self) -> u64 {
        self.sets.iter().map(|set| set.stamp().0 & 0xff).sum()
    }
}

impl SetStamp {
    /// Whether the set has no entry.
    pub(super) fn is_empty(self) -> bool {
        self.0 & 0xff == 0
    }

    /// How often hits were given back.
    fn refunds(self) -> u64 {
        self.0 >> 8
    }
}

impl CacheSet {
    /// The set's stamp, read without a lock.
    pub(super) fn stamp(&self) -> SetStamp {
        SetStamp(self.stamp.load(Ordering::Acquire))
    }

    /// Looks up `step`, which takes hits or peeks. Entries older than `max_age` are ignored. If the
    /// store must decide the step, the entry is removed once nothing is unreported.
    pub(super) fn lookup(&self, key: &CounterKey, step: &Step, max_age: Micros) -> Lookup {
        let mut slots = self.lock();
        let Some(index) = find(&slots, key) else { return Lookup::Miss };
        let CacheEntry::Denied(state) = &mut slots[index].entry else { return Lookup::Miss };
        if let Some(outcome) = state.deny(step, max_age) {
            return Lookup::Denied(outcome);
        }
        if let Some(denied) = state.take_unreported(step.now) {
            return Lookup::Unreported(denied);
        }
        if step.hits > 0 {
            slots.swap_remove(index);
            self.update_stamp(&slots, 0);
        }
        Lookup::Miss
    }

    /// Takes the report of denied hits that must precede a step at `now`.
    pub(super) fn take_unreported(&self, key: &CounterKey, now: Micros) -> Option<Step> {
        let mut slots = self.lock();
        let index = find(&slots, key)?;
        match &mut slots[index].entry {
            CacheEntry::Denied(state) => state.take_unreported(now),
            CacheEntry::Suppressed(_) => None,
        }
    }

    /// Takes back a report that was not applied. Returns false if its entry no longer exists.
    pub(super) fn restore_unreported(&self, key: &CounterKey, denied: &Step) -> bool {
        let mut slots = self.lock();
        let Some(index) = find(&slots, key) else { return false };
        match &mut slots[index].entry {
            CacheEntry::Denied(state) => state.restore_unreported(denied),
            CacheEntry::Suppressed(_) => false,
        }
    }

    /// Caches the denial of `step`, unless hits were given back since `before`. If an entry is
    /// evicted, returns its report of denied hits with its key.
    pub(super) fn insert(
        &self,
        before: SetStamp,
        key: &CounterKey,
        step: &Step,
        outcome: &Outcome,
    ) -> Option<(CounterKey, Step)> {
        let state = DeniedState::new(step, outcome)?;
        let mut slots = self.lock();
        if self.stamp().refunds() != before.refunds() {
            return None;
        }
        let mut report = None;
        match find(&slots, key) {
            Some(index) => {
                let slot = &mut slots[index];
                match &mut slot.entry {
                    CacheEntry::Suppressed(until) => {
                        let until = *until.get_or_insert(step.now.saturating_add(SUPPRESSION_TTL));
                        if step.now < until {
                            return None;
                        }
                    }
                    // A concurrent call cached a denial first, and may have denied hits since.
                    CacheEntry::Denied(known) => {
                        report = known.take_unreported(step.now).map(|denied| (*key, denied));
                    }
                }
                slot.entry = CacheEntry::Denied(state);
            }
            None => {
                report = evict(&mut slots, step.now);
                slots.push(CacheSlot { key: *key, entry: CacheEntry::Denied(state) });
            }
        }
        self.update_stamp(&slots, 0);
        report
    }

    /// Removes `key` because hits are given back to it. Denials that are already on their way are
    /// not cached either. Returns the report of denied hits that must precede the step.
    pub(super) fn invalidate(&self, key: &CounterKey, now: Micros) -> Option<Step> {
        self.take_out(key, now, 1)
    }

    /// Removes `key` because the store decides a step that changes the counter. Returns the report
    /// of denied hits that must precede the step.
    pub(super) fn remove(&self, key: &CounterKey, now: Micros) -> Option<Step> {
        self.take_out(key, now, 0)
    }

    fn take_out(&self, key: &CounterKey, now: Micros, refunds: u64) -> Option<Step> {
        let mut slots = self.lock();
        let mut report = None;
        if let Some(index) = find(&slots, key)
            && let CacheEntry::Denied(state) = &mut slots[index].entry
        {
            report = state.take_unreported(now);
            slots.swap_remove(index);
        }
        self.update_stamp(&slots, refunds);
        report
    }

    /// Suppresses denials of `key` because hits are given back to it at an unknown time. If an
    /// entry is evicted, returns its report of denied hits with its key.
    pub(super) fn suppress(&self, key: &CounterKey, now: Micros) -> Option<(CounterKey, Step)> {
        let mut slots = self.lock();
        let mut report = None;
        match find(&slots, key) {
            Some(index) => {
                let entry =
                    std::mem::replace(&mut slots[index].entry, CacheEntry::Suppressed(None));
                if let CacheEntry::Denied(mut state) = entry {
                    report = state.take_unreported(now).map(|denied| (*key, denied));
                }
            }
            None => {
                report = evict(&mut slots, now);
                slots.push(CacheSlot { key: *key, entry: CacheEntry::Suppressed(None) });
            }
        }
        self.update_stamp(&slots, 1);
        report
    }

    /// Updates the stamp. The caller holds the lock of `slots`.
    fn update_stamp(&self, slots: &[CacheSlot], refunds: u64) {
        let refunds = self.stamp().refunds().wrapping_add(refunds);
        self.stamp.store(refunds << 8 | slots.len() as u64, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CacheSlot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(slots: &[CacheSlot], key: &CounterKey) -> Option<usize> {
    slots.iter().position(|slot| slot.key == *key)
}

/// Evicts the entry that ends first, if no slot is free. Returns its report of denied hits, with
/// its key.
fn evict(slots: &mut Vec<CacheSlot>, now: Micros) -> Option<(CounterKey, Step)> {
    if slots.len() < SLOTS {
        return None;
    }
    let ends = |slot: &CacheSlot| match &slot.entry {
        CacheEntry::Denied(state) => state.ends(),
        CacheEntry::Suppressed(until) => until.unwrap_or(now.saturating_add(SUPPRESSION_TTL)),
    };
    let first = (0..slots.len()).min_by_key(|&index| ends(&slots[index]))?;
    let CacheSlot { key, entry } = slots.swap_remove(first);
    match entry {
        CacheEntry::Denied(mut state) => state.take_unreported(now).map(|denied| (key, denied)),
        CacheEntry::Suppressed(_) => None,
    }
}
