//! The hash index of a shard: the place of each counter in the slab, four bytes per slot.
//!
//! It uses open addressing with linear probing and backward-shift deletion. There are no
//! tombstones, so its size depends only on the number of counters. A slot packs the counter's place
//! with twelve bits of its hash, which settle nearly every comparison without reading the slab.
//! Keys are keyed hashes already, so their bits are used as they are.
//!
//! A quarter to three quarters of the slots are in use, 60 % after a rebuild. A growing index costs
//! 5.3 to 6.7 bytes per counter; `hashbrown::HashTable` needs about 5 bytes more at worst, which
//! would break the bound of 64 bytes. A rebuild blocks one shard only.

use crate::key::Key;

/// Exclusive upper bound of places in the slab.
pub(super) const PLACES: u32 = (1 << PLACE_BITS) - 1;

const PLACE_BITS: u32 = 20;
/// A free slot. Places are stored plus one, so a used slot is never zero.
const EMPTY: u32 = 0;
/// The smallest size of an index.
const SLOTS_MIN: usize = 16;

/// Maps keys to places.
#[derive(Default)]
pub(super) struct Index {
    slots: Box<[u32]>,
}

impl Index {
    /// An index of `places` counters, whose keys `key_at` returns.
    pub(super) fn build(places: u32, key_at: impl Fn(u32) -> Key) -> Index {
        let slots = (places as usize + 1).saturating_mul(5).div_ceil(3).max(SLOTS_MIN);
        let mut index = Index { slots: vec![EMPTY; slots].into_boxed_slice() };
        for place in 0..places {
            index.insert(&key_at(place), place);
        }
        index
    }

    /// Whether more than `places` counters would fill over three quarters of the slots.
    pub(super) fn is_tight(&self, places: u32) -> bool {
        (places as usize + 1) * 4 > self.slots.len() * 3
    }

    /// Whether `places` counters fill less than a quarter of the slots.
    pub(super) fn is_loose(&self, places: u32) -> bool {
        self.slots.len() > SLOTS_MIN && (places as usize) * 4 < self.slots.len()
    }

    /// The place of `key`: its tag matches, and `is_it` confirms the place.
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

    /// Adds a counter that is not in the index. The index must not be tight.
    pub(super) fn insert(&mut self, key: &Key, place: u32) {
        let mut at = self.home(key);
        while self.slots[at] != EMPTY {
            at = self.after(at);
        }
        self.slots[at] = slot_of(key, place);
    }

    /// Removes the counter at `place`. `key_at` returns the keys of the others.
    pub(super) fn remove(&mut self, key: &Key, place: u32, key_at: impl Fn(u32) -> Key) {
        let mut hole = self.slot_at(key, place);
        let mut at = hole;
        loop {
            at = self.after(at);
            let slot = self.slots[at];
            if slot == EMPTY {
                break;
            }
            // A counter may move into the hole unless its home is after the hole.
            let home = self.home(&key_at(place_of(slot)));
            if self.distance(home, at) >= self.distance(hole, at) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = EMPTY;
    }

    /// Updates the counter `key`, which moved in the slab.
    pub(super) fn repoint(&mut self, key: &Key, from: u32, to: u32) {
        let at = self.slot_at(key, from);
        self.slots[at] = slot_of(key, to);
    }

    /// Number of slots.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The slot of `place`, which must be indexed under `key`.
    fn slot_at(&self, key: &Key, place: u32) -> usize {
        let wanted = slot_of(key, place);
        let mut at = self.home(key);
        while self.slots[at] != wanted {
            assert!(self.slots[at] != EMPTY, "every counter of the slab is indexed");
            at = self.after(at);
        }
        at
    }

    /// The slot where the search for `key` starts: its upper half-word scaled to the number of
    /// slots.
    fn home(&self, key: &Key) -> usize {
        (((key.0[0] >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// Number of slots from `from` forward to `to`.
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

    /// An index with its list of keys, as a shard has them.
    #[derive(Default)]
    struct IndexedKeys {
        index: Index,
        keys: Vec<Key>,
    }

    impl IndexedKeys {
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

    /// Keys with few homes and few tags: probe sequences are long and wrap, and tags collide.
    fn crowded_key() -> impl Strategy<Value = Key> {
        (0_u64..4, 0_u64..2, 0_u64..8)
            .prop_map(|(home, tag, other)| Key([(home * 0x5555_5555) << 32 | tag << 31, other]))
    }

    proptest! {
        #[test]
        fn finds_exactly_the_keys_it_has(
            toggles in proptest::collection::vec(crowded_key(), 0..200),
        ) {
            let mut keys = IndexedKeys::default();
            let mut model = std::collections::BTreeSet::new();
            for key in toggles {
                keys.toggle(key);
                if !model.insert(key) {
                    model.remove(&key);
                }
                for home in 0..4 {
                    for (tag, other) in (0..16).map(|n| (n & 1, n >> 1)) {
                        let key = Key([(home * 0x5555_5555) << 32 | tag << 31, other]);
                        let found = keys.find(&key).map(|place| keys.keys[place as usize]);
                        prop_assert_eq!(found, model.get(&key).copied());
                    }
                }
            }
        }
    }

    #[test]
    fn is_neither_tight_nor_loose_after_a_build() {
        for places in 0..1000 {
            let key = |place| Key([u64::from(place) << 40, 0]);
            let index = Index::build(places, key);
            assert!(!index.is_tight(places), "{places}");
            assert!(!index.is_loose(places), "{places}");
        }
    }
}
