//! A shard: the counters behind one lock, found by key, each a step away from its next state.

use super::dice::Dice;
use super::entry::{Entry, Kind, Marks};
use super::index::{Index, PLACES};
use super::large::{Large, Larges, bytes_of};
use super::ledger::Ledger;
use super::slab::Slab;
use crate::key::Key;
use crate::step::{Outcome, State, Step};
use crate::time::Micros;

/// Entries looked at, for expiry, by a step that begins a counter. More than one, so that in the
/// long run expired counters go faster than new ones come.
const EXAMINED_PER_BEGIN: u32 = 4;

/// Why a step cannot be taken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The store holds as many counters as it may, and none of those looked at can go.
    Seat,
    /// Large states take as many bytes as they may, and none of those looked at can go.
    Bytes,
}

/// Counters, their index, and where housekeeping stands.
pub(super) struct Shard {
    pub(super) index: Index,
    pub(super) slab: Slab,
    pub(super) larges: Larges,
    pub(super) dice: Dice,
    /// The place that is next examined for expiry.
    cursor: u32,
}

impl Shard {
    /// A shard without counters; it takes no memory beyond itself.
    pub(super) fn new() -> Shard {
        Shard {
            index: Index::default(),
            slab: Slab::default(),
            larges: Larges::default(),
            dice: Dice::new(),
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
            Kind::Large => self.larges.get(entry.words[0]).state.clone(),
            _ => entry.state(),
        }
    }

    /// Applies `step` to the counter of `key`. When it lacks room the counter stays as it was.
    pub(super) fn apply(
        &mut self,
        key: &Key,
        step: &Step,
        ledger: &Ledger,
    ) -> Result<Outcome, Lack> {
        let Some(place) = self.find(key) else {
            self.reclaim(step.now, EXAMINED_PER_BEGIN, ledger);
            let mut state = None;
            let outcome = step.apply(&mut state);
            if let Some(state) = state {
                self.begin(key, step, state, ledger)?;
            }
            return Ok(outcome);
        };
        let entry = self.slab.get_mut(place);
        let mut state = entry.state();
        if state.is_none() {
            return self.apply_large(key, step, ledger);
        }
        let outcome = step.apply(&mut state);
        match state {
            Some(state) if entry.pack(step, &state) => {}
            state => self.outgrow(key, place, step, state, ledger)?,
        }
        Ok(outcome)
    }

    /// Adds a counter whose first state is `state`.
    fn begin(&mut self, key: &Key, step: &Step, state: State, ledger: &Ledger) -> Result<(), Lack> {
        if !Entry::fits(&state) {
            self.make_room(bytes_of(&state), key, step.now, ledger)?;
        }
        self.make_seat(step.now, ledger)?;
        if self.index.is_tight(self.slab.len()) {
            self.rebuild_index();
        }
        let place = self.slab.push(Entry::new(*key));
        self.index.insert(key, place);
        self.write(place, step, state, ledger);
        Ok(())
    }

    /// Counts one more counter, in place of another if need be.
    fn make_seat(&mut self, now: Micros, ledger: &Ledger) -> Result<(), Lack> {
        if self.slab.len() < PLACES && ledger.take_seat() {
            return Ok(());
        }
        // The victim's seat passes to the new counter: nobody else can take it in between.
        let victim = self.victim(now).ok_or(Lack::Seat)?;
        self.remove(victim, ledger);
        ledger.count_evicted();
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
        ledger: &Ledger,
    ) -> Result<(), Lack> {
        let Some(state) = state else {
            self.remove(place, ledger);
            ledger.leave_seat();
            return Ok(());
        };
        self.make_room(bytes_of(&state), key, step.now, ledger)?;
        let place = self.find(key).expect("make_room spares the counter it is for");
        self.write(place, step, state, ledger);
        Ok(())
    }

    /// Applies `step` to a large state, where it lies.
    fn apply_large(&mut self, key: &Key, step: &Step, ledger: &Ledger) -> Result<Outcome, Lack> {
        let has_room = self.make_room(1, key, step.now, ledger);
        let place = self.find(key).expect("make_room spares the counter it is for");
        let large = self.larges.get_mut(self.slab.get(place).words[0]);
        let outcome = if let Err(lack) = has_room {
            // No room to grow. A step that needs none must still be answered: a client that is
            // at its limit stays there.
            let mut trial = large.state.clone();
            let outcome = step.apply(&mut trial);
            if trial.as_ref().is_some_and(|state| bytes_of(state) > large.bytes) {
                return Err(lack);
            }
            large.state = trial;
            outcome
        } else {
            step.apply(&mut large.state)
        };
        let Some(state) = &large.state else {
            self.remove(place, ledger);
            ledger.leave_seat();
            return Ok(outcome);
        };
        let bytes = bytes_of(state);
        ledger.charge(large.bytes, bytes);
        large.bytes = bytes;
        self.slab.get_mut(place).set_marks(Marks::of(step, state));
        Ok(outcome)
    }

    /// Puts what `step` made into the entry at `place`, which holds no large state.
    fn write(&mut self, place: u32, step: &Step, state: State, ledger: &Ledger) {
        let entry = self.slab.get_mut(place);
        if !entry.pack(step, &state) {
            let (bytes, marks) = (bytes_of(&state), Marks::of(step, &state));
            ledger.charge(0, bytes);
            entry.kind = Kind::Large;
            entry.words[0] = self.larges.push(Large { place, state: Some(state), bytes });
            entry.set_marks(marks);
        }
    }

    /// Forgets the counter at `place`; the last counter moves there. The caller settles its seat.
    pub(super) fn remove(&mut self, place: u32, ledger: &Ledger) {
        self.drop_large(place, ledger);
        let key = self.slab.get(place).key;
        let last = self.slab.len() - 1;
        self.index.remove(&key, place, |place| self.slab.get(place).key);
        if place != last {
            let moved = *self.slab.get(last);
            self.index.repoint(&moved.key, last, place);
            if moved.kind == Kind::Large {
                self.larges.get_mut(moved.words[0]).place = place;
            }
        }
        self.slab.swap_remove(place);
        if self.index.is_loose(last) {
            self.rebuild_index();
        }
    }

    /// Frees the large state of the entry at `place`, if it has one.
    fn drop_large(&mut self, place: u32, ledger: &Ledger) {
        let entry = self.slab.get_mut(place);
        if entry.kind != Kind::Large {
            return;
        }
        entry.kind = Kind::Count;
        let id = entry.words[0];
        let (gone, moved) = self.larges.swap_remove(id);
        ledger.charge(gone.bytes, 0);
        if let Some(place) = moved {
            self.slab.get_mut(place).words[0] = id;
        }
    }

    /// Looks at the next `budget` entries and forgets those that have expired. Tells how many.
    pub(super) fn reclaim(&mut self, now: Micros, budget: u32, ledger: &Ledger) -> usize {
        let mut reclaimed = 0;
        for _ in 0..budget.min(self.slab.len()) {
            if self.cursor >= self.slab.len() {
                self.cursor = 0;
            }
            if self.slab.get(self.cursor).marks().is_expired(now) {
                // The last entry moves here: it is looked at next.
                self.remove(self.cursor, ledger);
                ledger.leave_seat();
                reclaimed += 1;
            } else {
                self.cursor += 1;
            }
        }
        if reclaimed > 0 {
            ledger.count_reclaimed(reclaimed);
        }
        reclaimed
    }

    fn rebuild_index(&mut self) {
        // The old one goes first, so that the two are never in memory together.
        self.index = Index::default();
        self.index = Index::build(self.slab.len(), |place| self.slab.get(place).key);
    }
}
