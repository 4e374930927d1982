//! The index of a shard: where in the slab each counter stands, four bytes a slot.
//!
//! Open addressing with linear probing and backward-shift deletion: no tombstones, so the size
//! depends on the number of counters alone, never on how many came and went. A slot packs the
//! counter's place in the slab with twelve bits of its hash; those settle nearly every comparison
//! without a look at the slab. Keys are keyed hashes already: their bits are used as they are.
//!
//! Between a quarter and three quarters of the slots are taken, and 60 % after each rebuild, so a
//! growing index costs 5.3 to 6.7 bytes per counter. A rebuild touches one shard only.

use crate::key::Key;

/// Places in the slab are below this.
pub(super) const PLACES: u32 = (1 << PLACE_BITS) - 1;

const PLACE_BITS: u32 = 20;
/// No counter here. Places are stored plus one, so a taken slot is never zero.
const EMPTY: u32 = 0;
/// Below this an index is not worth shrinking.
const SLOTS_MIN: usize = 16;

/// Maps keys to places.
#[derive(Default)]
pub(super) struct Index {
    slots: Box<[u32]>,
}

impl Index {
    /// An index of `places` counters, whose keys `key_at` tells.
    pub(super) fn build(places: u32, key_at: impl Fn(u32) -> Key) -> Index {
        let slots = (places as usize + 1).saturating_mul(5).div_ceil(3).max(SLOTS_MIN);
        let mut index = Index { slots: vec![EMPTY; slots].into_boxed_slice() };
        for place in 0..places {
            index.insert(&key_at(place), place);
        }
        index
    }

    /// One more than `places` counters would crowd it.
    pub(super) fn is_tight(&self, places: u32) -> bool {
        (places as usize + 1) * 4 > self.slots.len() * 3
    }

    /// `places` counters leave most of it empty.
    pub(super) fn is_loose(&self, places: u32) -> bool {
        self.slots.len() > SLOTS_MIN && (places as usize) * 4 < self.slots.len()
    }

    /// Where the counter stands whose tag fits `key` and whose place satisfies `is_it`.
    pub(super) fn find(&self, key: &Key, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let tag = tag(key);
        let mut at = self.home(key);
        loop {
            let slot = self.slots[at];
            if slot == EMPTY {
                return None;
            }
            if slot >> PLACE_BITS == tag && is_it(place_of(slot)) {
                return Some(place_of(slot));
            }
            at = self.after(at);
        }
    }

    /// Adds a counter that is not there yet. The index must not be tight.
    pub(super) fn insert(&mut self, key: &Key, place: u32) {
        let mut at = self.home(key);
        while self.slots[at] != EMPTY {
            at = self.after(at);
        }
        self.slots[at] = slot_of(key, place);
    }

    /// Takes out the counter at `place`; `key_at` tells the keys of the others.
    pub(super) fn remove(&mut self, key: &Key, place: u32, key_at: impl Fn(u32) -> Key) {
        let mut hole = self.slot_at(key, place);
        let mut at = hole;
        loop {
            at = self.after(at);
            let slot = self.slots[at];
            if slot == EMPTY {
                break;
            }
            // A counter may fill the hole unless its home lies behind the hole.
            let home = self.home(&key_at(place_of(slot)));
            if self.distance(home, at) >= self.distance(hole, at) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = EMPTY;
    }

    /// Notes that the counter `key` has moved from one place to another.
    pub(super) fn repoint(&mut self, key: &Key, from: u32, to: u32) {
        let at = self.slot_at(key, from);
        self.slots[at] = slot_of(key, to);
    }

    /// How many slots there are.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The slot that holds `place`, which must be indexed under `key`.
    fn slot_at(&self, key: &Key, place: u32) -> usize {
        let wanted = slot_of(key, place);
        let mut at = self.home(key);
        while self.slots[at] != wanted {
            assert!(self.slots[at] != EMPTY, "every counter of the slab is indexed");
            at = self.after(at);
        }
        at
    }

    /// Where the search for `key` starts: its upper half-word scaled to the number of slots.
    fn home(&self, key: &Key) -> usize {
        (((key.0[0] >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// Slots from `from` forward to `to`.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

fn tag(key: &Key) -> u32 {
    (key.0[0] as u32) >> PLACE_BITS
}

fn slot_of(key: &Key, place: u32) -> u32 {
    debug_assert!(place < PLACES);
    tag(key) << PLACE_BITS | (place + 1)
}

fn place_of(slot: u32) -> u32 {
    (slot & PLACES) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The index and a list of keys it stands beside, as a shard uses them.
    #[derive(Default)]
    struct Beside {
        index: Index,
        keys: Vec<Key>,
    }

    impl Beside {
        fn find(&self, key: &Key) -> Option<u32> {
            self.index.find(key, |place| self.keys[place as usize] == *key)
        }

        fn toggle(&mut self, key: Key) {
            let count = self.keys.len() as u32;
            match self.find(&key) {
                None => {
                    if self.index.is_tight(count) {
                        self.index = Index::build(count, |place| self.keys[place as usize]);
                    }
                    self.index.insert(&key, count);
                    self.keys.push(key);
                }
                Some(place) => {
                    self.index.remove(&key, place, |place| self.keys[place as usize]);
                    let last = count - 1;
                    if place != last {
                        self.index.repoint(&self.keys[last as usize], last, place);
                    }
                    self.keys.swap_remove(place as usize);
                }
            }
        }
    }

    /// Few homes and few tags, so that runs are long, wrap around, and tags alone do not tell.
    fn crowded_key() -> impl Strategy<Value = Key> {
        (0_u64..4, 0_u64..2, 0_u64..8)
            .prop_map(|(home, tag, other)| Key([(home * 0x5555_5555) << 32 | tag << 31, other]))
    }

    proptest! {
        #[test]
        fn it_finds_exactly_the_keys_that_are_there(
            toggles in proptest::collection::vec(crowded_key(), 0..200),
        ) {
            let mut beside = Beside::default();
            let mut model = std::collections::BTreeSet::new();
            for key in toggles {
                beside.toggle(key);
                if !model.insert(key) {
                    model.remove(&key);
                }
                for home in 0..4 {
                    for (tag, other) in (0..16).map(|n| (n & 1, n >> 1)) {
                        let key = Key([(home * 0x5555_5555) << 32 | tag << 31, other]);
                        let found = beside.find(&key).map(|place| beside.keys[place as usize]);
                        prop_assert_eq!(found, model.get(&key).copied());
                    }
                }
            }
        }
    }

    #[test]
    fn it_is_never_tight_nor_loose_after_a_build() {
        for places in 0..1000 {
            let key = |place| Key([u64::from(place) << 40, 0]);
            let index = Index::build(places, key);
            assert!(!index.is_tight(places), "{places}");
            assert!(!index.is_loose(places), "{places}");
        }
    }
}
