//! OverLimitCache: which counters are known to be full, in a fixed number of places.
//!
//! A key may be kept in the eight places of one set, and of nine the one goes that ends first. So
//! memory is bounded, a flood of keys pushes out but never grows, and a look takes one short lock;
//! or none: a set's mark says without it that nothing is kept there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::denied_state::DeniedState;
use crate::key::Key;
use crate::step::{Outcome, Step};
use crate::time::Micros;

/// Sets; with eight places each, 65536 counters.
const SETS: usize = 8192;
/// Places of one set.
const PLACES: usize = 8;

/// How long after something was given back without an answer no denial is remembered: far longer
/// than it takes to reach the counter.
const QUIET: Micros = Micros::SECOND;

/// Counters that are known to be full.
#[derive(Debug)]
pub struct OverLimitCache {
    sets: Box<[Set]>,
    denied: AtomicU64,
}

/// Where some keys may be kept.
#[derive(Debug, Default)]
pub(super) struct Set {
    /// How many places are taken, in the lowest byte; above it, how often something was given back
    /// to any of the keys.
    mark: AtomicU64,
    places: Mutex<Vec<Place>>,
}

/// One reading of a set's mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(u64);

#[derive(Debug)]
struct Place {
    key: Key,
    holds: Holds,
}

#[derive(Debug)]
enum Holds {
    /// Denied.
    DeniedState(DeniedState),
    /// Something is on its way that gives hits back: until then, which the first step after it
    /// sets, no denial counts.
    Quiet(Option<Micros>),
}

/// What is known about a step.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The counter denies it.
    Denied(Outcome),
    /// The counter must be asked, and before it, must hear of this.
    Unreported(Step),
    /// The counter must be asked.
    Miss,
}

impl OverLimitCache {
    /// Nothing is known.
    pub(in crate::modes) fn new() -> OverLimitCache {
        OverLimitCache {
            sets: (0..SETS).map(|_| Set::default()).collect(),
            denied: AtomicU64::new(0),
        }
    }

    /// Where `key` may be kept.
    pub(super) fn set(&self, key: &Key) -> &Set {
        &self.sets[key.0[0] as usize % SETS]
    }

    /// Something was given back to `key` that does not come this way: its rule has another mode now.
    pub(in crate::modes) fn invalidate(&self, key: &Key, now: Micros) {
        let set = self.set(key);
        if set.mark().holds_anything() {
            // What it owes was counted in a mode that counts denied hits; this one does not.
            let _ = set.forget(key, now);
        }
    }

    pub(super) fn count_denied(&self) {
        self.denied.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that were denied without the store.
    pub fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }

    /// Counters that are kept.
    pub fn counters(&self) -> u64 {
        self.sets.iter().map(|set| set.mark().0 & 0xff).sum()
    }
}

impl Mark {
    /// Whether anything is kept in the set.
    pub(super) fn holds_anything(self) -> bool {
        self.0 & 0xff > 0
    }

    /// How often something was given back.
    fn given_back(self) -> u64 {
        self.0 >> 8
    }
}

impl Set {
    /// What can be said without a lock.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.mark.load(Ordering::Acquire))
    }

    /// What is known about `step`, which takes or looks. A step that the store must decide changes
    /// what was known, once nothing is owed.
    pub(super) fn answer(&self, key: &Key, step: &Step, at_most: Option<Micros>) -> Lookup {
        let mut places = self.lock();
        let Some(index) = find(&places, key) else { return Lookup::Miss };
        let Holds::DeniedState(denial) = &mut places[index].holds else { return Lookup::Miss };
        if let Some(outcome) = denial.answer(step, at_most) {
            return Lookup::Denied(outcome);
        }
        if let Some(owed) = denial.settle(step.now) {
            return Lookup::Unreported(owed);
        }
        if step.hits > 0 {
            places.swap_remove(index);
            self.remark(&places, 0);
        }
        Lookup::Miss
    }

    /// What the counter has to hear of before a step at `now`; no longer owed from now on.
    pub(super) fn settle(&self, key: &Key, now: Micros) -> Option<Step> {
        let mut places = self.lock();
        let index = find(&places, key)?;
        match &mut places[index].holds {
            Holds::DeniedState(denial) => denial.settle(now),
            Holds::Quiet(_) => None,
        }
    }

    /// The counter has not heard of `owed`. Tells whether it is owed again: not, if what was known
    /// has gone meanwhile.
    pub(super) fn owe(&self, key: &Key, owed: &Step) -> bool {
        let mut places = self.lock();
        let Some(index) = find(&places, key) else { return false };
        match &mut places[index].holds {
            Holds::DeniedState(denial) => denial.owe(owed),
            Holds::Quiet(_) => false,
        }
    }

    /// Remembers that the counter denied `step`, unless something was given back since `before`.
    /// What had to make room may have left something to tell its counter.
    pub(super) fn learn(
        &self,
        before: Mark,
        key: &Key,
        step: &Step,
        outcome: &Outcome,
    ) -> Option<(Key, Step)> {
        let denial = DeniedState::of(step, outcome)?;
        let mut places = self.lock();
        if self.mark().given_back() != before.given_back() {
            return None;
        }
        let mut left = None;
        match find(&places, key) {
            Some(index) => {
                let place = &mut places[index];
                match &mut place.holds {
                    Holds::Quiet(until) => {
                        let until = *until.get_or_insert(step.now.saturating_add(QUIET));
                        if step.now < until {
                            return None;
                        }
                    }
                    // Another call was faster, and what it left may already know of more.
                    Holds::DeniedState(known) => {
                        left = known.settle(step.now).map(|owed| (*key, owed))
                    }
                }
                place.holds = Holds::DeniedState(denial);
            }
            None => {
                left = make_room(&mut places, step.now);
                places.push(Place { key: *key, holds: Holds::DeniedState(denial) });
            }
        }
        self.remark(&places, 0);
        left
    }

    /// Hits are given back to `key`: what was known does not hold any more, nor what is told by a
    /// denial that was asked for before. The counter may have to hear of something first.
    pub(super) fn forget(&self, key: &Key, now: Micros) -> Option<Step> {
        self.take_out(key, now, 1)
    }

    /// A step that the store must decide is about to change `key`. The counter may have to hear of
    /// something first.
    pub(super) fn drop_known(&self, key: &Key, now: Micros) -> Option<Step> {
        self.take_out(key, now, 0)
    }

    fn take_out(&self, key: &Key, now: Micros, given_back: u64) -> Option<Step> {
        let mut places = self.lock();
        let mut owed = None;
        if let Some(index) = find(&places, key)
            && let Holds::DeniedState(denial) = &mut places[index].holds
        {
            owed = denial.settle(now);
            places.swap_remove(index);
        }
        self.remark(&places, given_back);
        owed
    }

    /// Hits are given back to `key`, and nobody will hear when. What had to make room, or was known
    /// until now, may have left something to tell its counter.
    pub(super) fn be_quiet(&self, key: &Key, now: Micros) -> Option<(Key, Step)> {
        let mut places = self.lock();
        let mut left = None;
        match find(&places, key) {
            Some(index) => {
                let known = std::mem::replace(&mut places[index].holds, Holds::Quiet(None));
                if let Holds::DeniedState(mut denial) = known {
                    left = denial.settle(now).map(|owed| (*key, owed));
                }
            }
            None => {
                left = make_room(&mut places, now);
                places.push(Place { key: *key, holds: Holds::Quiet(None) });
            }
        }
        self.remark(&places, 1);
        left
    }

    /// Brings the mark up to date; the places are locked.
    fn remark(&self, places: &[Place], given_back: u64) {
        let times = self.mark().given_back().wrapping_add(given_back);
        self.mark.store(times << 8 | places.len() as u64, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(places: &[Place], key: &Key) -> Option<usize> {
    places.iter().position(|place| place.key == *key)
}

/// Takes out the one that ends first, if all places are taken. Tells what its counter must hear of.
fn make_room(places: &mut Vec<Place>, now: Micros) -> Option<(Key, Step)> {
    if places.len() < PLACES {
        return None;
    }
    let ends = |place: &Place| match &place.holds {
        Holds::DeniedState(denial) => denial.ends(),
        Holds::Quiet(until) => until.unwrap_or(now.saturating_add(QUIET)),
    };
    let first = (0..places.len()).min_by_key(|&index| ends(&places[index]))?;
    let Place { key, holds } = places.swap_remove(first);
    match holds {
        Holds::DeniedState(mut denial) => denial.settle(now).map(|owed| (key, owed)),
        Holds::Quiet(_) => None,
    }
}
