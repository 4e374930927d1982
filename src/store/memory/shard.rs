//! A shard: the counters behind one lock, found by key, each a step away from its next state.

use super::budget::Budget;
use super::entry::{CounterEntry, EntryMeta, StateKind};
use super::index::{Index, PLACES};
use super::large_state::{LargeState, LargeStates, bytes_of};
use super::rng::Rng;
use super::slab::Slab;
use crate::key::Key;
use crate::step::{Outcome, State, Step};
use crate::time::Micros;

/// Entries looked at, for expiry, by a step that begins a counter. More than one, so that in the
/// long run expired counters go faster than new ones come.
const EXAMINED_PER_BEGIN: u32 = 4;

/// Why a step cannot be taken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The store holds as many counters as it may, and none of those looked at can go.
    Counters,
    /// LargeState states take as many bytes as they may, and none of those looked at can go.
    Bytes,
}

/// Counters, their index, and where housekeeping stands.
pub(super) struct Shard {
    pub(super) index: Index,
    pub(super) slab: Slab,
    pub(super) large_states: LargeStates,
    pub(super) rng: Rng,
    /// The place that is next examined for expiry.
    cursor: u32,
}

impl Shard {
    /// A shard without counters; it takes no memory beyond itself.
    pub(super) fn new() -> Shard {
        Shard {
            index: Index::default(),
            slab: Slab::default(),
            large_states: LargeStates::default(),
            rng: Rng::new(),
            cursor: 0,
        }
    }

    /// Where the counter of `key` stands.
    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        self.index.find(key, |place| self.slab.get(place).key == *key)
    }

    /// The state of the counter at `place`.
    pub(super) fn state(&self, place: u32) -> Option<State> {
        let entry = self.slab.get(place);
        match entry.kind {
            StateKind::Large => self.large_states.get(entry.words[0]).state.clone(),
            _ => entry.state(),
        }
    }

    /// Applies `step` to the counter of `key`. When it lacks room the counter stays as it was.
    pub(super) fn apply(
        &mut self,
        key: &Key,
        step: &Step,
        budget: &Budget,
    ) -> Result<Outcome, Full> {
        let Some(place) = self.find(key) else {
            self.reclaim(step.now, EXAMINED_PER_BEGIN, budget);
            let mut state = None;
            let outcome = step.apply(&mut state);
            if let Some(state) = state {
                self.begin(key, step, state, budget)?;
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
    fn begin(&mut self, key: &Key, step: &Step, state: State, budget: &Budget) -> Result<(), Full> {
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

    /// Counts one more counter, in place of another if need be.
    fn reserve_counter(&mut self, now: Micros, budget: &Budget) -> Result<(), Full> {
        if self.slab.len() < PLACES && budget.try_reserve() {
            return Ok(());
        }
        // The victim's seat passes to the new counter: nobody else can take it in between.
        let victim = self.victim(now).ok_or(Full::Counters)?;
        self.remove(victim, budget);
        budget.count_evicted();
        Ok(())
    }

    /// What a step has made of the counter at `place` is nothing, or too large for its entry.
    #[cold]
    fn outgrow(
        &mut self,
        key: &Key,
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
        let place = self.find(key).expect("make_room spares the counter it is for");
        self.write(place, step, state, budget);
        Ok(())
    }

    /// Applies `step` to a large state, where it lies.
    fn apply_large(&mut self, key: &Key, step: &Step, budget: &Budget) -> Result<Outcome, Full> {
        let has_room = self.make_room(1, key, step.now, budget);
        let place = self.find(key).expect("make_room spares the counter it is for");
        let large = self.large_states.get_mut(self.slab.get(place).words[0]);
        let outcome = if let Err(full) = has_room {
            // No room to grow. A step that needs none must still be answered: a client that is
            // at its limit stays there.
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

    /// Puts what `step` made into the entry at `place`, which holds no large state.
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

    /// Forgets the counter at `place`; the last counter moves there. The caller settles its seat.
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

    /// Frees the large state of the entry at `place`, if it has one.
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

    /// Looks at the next `budget` entries and forgets those that have expired. Tells how many.
    pub(super) fn reclaim(&mut self, now: Micros, examined: u32, budget: &Budget) -> usize {
        let mut reclaimed = 0;
        for _ in 0..examined.min(self.slab.len()) {
            if self.cursor >= self.slab.len() {
                self.cursor = 0;
            }
            if self.slab.get(self.cursor).meta().is_expired(now) {
                // The last entry moves here: it is looked at next.
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
        // The old one goes first, so that the two are never in memory together.
        self.index = Index::default();
        self.index = Index::build(self.slab.len(), |place| self.slab.get(place).key);
    }
}
