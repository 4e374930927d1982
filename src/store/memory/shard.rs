//! One shard: the counters behind one lock, with their index.

use super::budget::Budget;
use super::entry::{CounterEntry, EntryMeta, StateKind};
use super::index::{Index, PLACES};
use super::large_state::{LargeState, LargeStates, bytes_of};
use super::rng::Rng;
use super::slab::Slab;
use crate::key::CounterKey;
use crate::step::{Outcome, State, Step};
use crate::time::Micros;

/// Entries that a step examines for expiry when it creates a counter. More than one, so that
/// expired counters are removed faster than new ones arrive.
const EXAMINED_PER_INSERT: u32 = 4;

/// Why a shard has no room for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The store has `max_counters` counters, and no examined one can be evicted.
    Counters,
    /// Large states use all their bytes, and no examined one can be evicted.
    Bytes,
}

/// Counters, their index, and the sweep position.
pub(super) struct MemoryShard {
    pub(super) index: Index,
    pub(super) slab: Slab,
    pub(super) large_states: LargeStates,
    pub(super) rng: Rng,
    /// The place that is examined next for expiry.
    cursor: u32,
}

impl MemoryShard {
    /// An empty shard, without heap memory.
    pub(super) fn new() -> MemoryShard {
        MemoryShard {
            index: Index::default(),
            slab: Slab::default(),
            large_states: LargeStates::default(),
            rng: Rng::new(),
            cursor: 0,
        }
    }

    /// The place of the counter `key`.
    pub(super) fn find(&self, key: &CounterKey) -> Option<u32> {
        self.index.find(key, |place| self.slab.get(place).key == *key)
    }

    /// [`CounterEntry::ends`] of the counter `key`; 0 if there is none.
    pub(super) fn ends_of(&self, key: &CounterKey) -> u64 {
        self.find(key).map_or(0, |place| self.slab.get(place).ends())
    }

    /// The state of the counter at `place`.
    pub(super) fn state(&self, place: u32) -> Option<State> {
        let entry = self.slab.get(place);
        match entry.kind {
            StateKind::Large => self.large_states.get(entry.words[0]).state.clone(),
            _ => entry.state(),
        }
    }

    /// Applies `step` to the counter `key`. On an error the counter is unchanged.
    pub(super) fn apply(
        &mut self,
        key: &CounterKey,
        step: &Step,
        budget: &Budget,
    ) -> Result<Outcome, Full> {
        let Some(place) = self.find(key) else {
            self.reclaim(step.now, EXAMINED_PER_INSERT, budget);
            let mut state = None;
            let outcome = step.apply(&mut state);
            if let Some(state) = state {
                self.insert(key, step, state, budget)?;
            }
            return Ok(outcome);
        };
        let entry = self.slab.get_mut(place);
        let mut state = entry.state();
        if state.is_none() {
            return self.apply_large(key, step, budget);
        }
        let outcome = step.apply(&mut state);
        match state {
            Some(state) if entry.pack(step, &state) => {}
            state => self.outgrow(key, place, step, state, budget)?,
        }
        Ok(outcome)
    }

    /// Adds a counter whose first state is `state`.
    fn insert(
        &mut self,
        key: &CounterKey,
        step: &Step,
        state: State,
        budget: &Budget,
    ) -> Result<(), Full> {
        if !CounterEntry::fits(&state) {
            self.make_room(bytes_of(&state), key, step.now, budget)?;
        }
        self.reserve_counter(step.now, budget)?;
        if self.index.is_tight(self.slab.len()) {
            self.rebuild_index();
        }
        let place = self.slab.push(CounterEntry::new(*key));
        self.index.insert(key, place);
        self.write(place, step, state, budget);
        Ok(())
    }

    /// Reserves room for one counter, by evicting another one if necessary.
    fn reserve_counter(&mut self, now: Micros, budget: &Budget) -> Result<(), Full> {
        if self.slab.len() < PLACES && budget.try_reserve() {
            return Ok(());
        }
        // The victim's reservation passes to the new counter, so no other thread can take it.
        let victim = self.victim(now).ok_or(Full::Counters)?;
        self.remove(victim, budget);
        budget.count_evicted();
        Ok(())
    }

    /// Stores a state that is empty, or too large for the entry at `place`.
    #[cold]
    fn outgrow(
        &mut self,
        key: &CounterKey,
        place: u32,
        step: &Step,
        state: Option<State>,
        budget: &Budget,
    ) -> Result<(), Full> {
        let Some(state) = state else {
            self.remove(place, budget);
            budget.release();
            return Ok(());
        };
        self.make_room(bytes_of(&state), key, step.now, budget)?;
        let place = self.find(key).expect("make_room never evicts the counter it is for");
        self.write(place, step, state, budget);
        Ok(())
    }

    /// Applies `step` to a large state in place.
    fn apply_large(
        &mut self,
        key: &CounterKey,
        step: &Step,
        budget: &Budget,
    ) -> Result<Outcome, Full> {
        let has_room = self.make_room(1, key, step.now, budget);
        let place = self.find(key).expect("make_room never evicts the counter it is for");
        let large = self.large_states.get_mut(self.slab.get(place).words[0]);
        let outcome = if let Err(full) = has_room {
            // There is no room to grow. A step that needs none must still get its outcome, so that
            // a client at its limit stays denied.
            let mut trial = large.state.clone();
            let outcome = step.apply(&mut trial);
            if trial.as_ref().is_some_and(|state| bytes_of(state) > large.bytes) {
                return Err(full);
            }
            large.state = trial;
            outcome
        } else {
            step.apply(&mut large.state)
        };
        let Some(state) = &large.state else {
            self.remove(place, budget);
            budget.release();
            return Ok(outcome);
        };
        let bytes = bytes_of(state);
        budget.charge(large.bytes, bytes);
        large.bytes = bytes;
        self.slab.get_mut(place).set_meta(EntryMeta::of(step, state));
        Ok(outcome)
    }

    /// Stores `state`, which `step` left, in the entry at `place`. The entry has no large state.
    fn write(&mut self, place: u32, step: &Step, state: State, budget: &Budget) {
        let entry = self.slab.get_mut(place);
        if !entry.pack(step, &state) {
            let (bytes, meta) = (bytes_of(&state), EntryMeta::of(step, &state));
            budget.charge(0, bytes);
            entry.kind = StateKind::Large;
            entry.words[0] =
                self.large_states.push(LargeState { place, state: Some(state), bytes });
            entry.set_meta(meta);
        }
    }

    /// Removes the counter at `place`; the last counter moves there. The caller releases its
    /// budget.
    pub(super) fn remove(&mut self, place: u32, budget: &Budget) {
        self.drop_large(place, budget);
        let key = self.slab.get(place).key;
        let last = self.slab.len() - 1;
        self.index.remove(&key, place, |place| self.slab.get(place).key);
        if place != last {
            let moved = *self.slab.get(last);
            self.index.repoint(&moved.key, last, place);
            if moved.kind == StateKind::Large {
                self.large_states.get_mut(moved.words[0]).place = place;
            }
        }
        self.slab.swap_remove(place);
        if self.index.is_loose(last) {
            self.rebuild_index();
        }
    }

    /// Drops the large state of the entry at `place`, if it has one.
    fn drop_large(&mut self, place: u32, budget: &Budget) {
        let entry = self.slab.get_mut(place);
        if entry.kind != StateKind::Large {
            return;
        }
        entry.kind = StateKind::FixedWindow;
        let id = entry.words[0];
        let (gone, moved) = self.large_states.swap_remove(id);
        budget.charge(gone.bytes, 0);
        if let Some(place) = moved {
            self.slab.get_mut(place).words[0] = id;
        }
    }

    /// Examines the next `examined` entries and removes the expired ones. Returns how many.
    pub(super) fn reclaim(&mut self, now: Micros, examined: u32, budget: &Budget) -> usize {
        let mut reclaimed = 0;
        for _ in 0..examined.min(self.slab.len()) {
            if self.cursor >= self.slab.len() {
                self.cursor = 0;
            }
            if self.slab.get(self.cursor).meta().is_expired(now) {
                // The last entry moves here and is examined next.
                self.remove(self.cursor, budget);
                budget.release();
                reclaimed += 1;
            } else {
                self.cursor += 1;
            }
        }
        if reclaimed > 0 {
            budget.count_reclaimed(reclaimed);
        }
        reclaimed
    }

    fn rebuild_index(&mut self) {
        // The old index is freed first, so that memory never holds both.
        self.index = Index::default();
        self.index = Index::build(self.slab.len(), |place| self.slab.get(place).key);
    }
}
