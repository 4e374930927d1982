//! The hash index of a shard: the place of each counter in the slab, four bytes per cell.
//!
//! It uses open addressing with linear probing and backward-shift deletion. There are no
//! tombstones, so its size depends only on the number of counters. A cell packs the counter's place
//! with twelve bits of its hash, which settle nearly every comparison without reading the slab.
//! Keys are keyed hashes already, so their bits are used as they are.
//!
//! A quarter to three quarters of the cells are in use, 60 % after a rebuild. A growing index costs
//! 5.3 to 6.7 bytes per counter; `hashbrown::HashTable` needs about 5 bytes more at worst, which
//! would break the bound of 64 bytes. A rebuild blocks one shard only.

use crate::key::CounterKey;

/// Exclusive upper bound of places in the slab.
pub(super) const PLACES: u32 = (1 << PLACE_BITS) - 1;

const PLACE_BITS: u32 = 20;
/// A free cell. Places are stored plus one, so a used cell is never zero.
const EMPTY: u32 = 0;
/// The smallest size of an index.
const CELLS_MIN: usize = 16;

/// Maps keys to places.
#[derive(Default)]
pub(super) struct Index {
    cells: Box<[u32]>,
}

impl Index {
    /// An index of `places` counters, whose keys `key_at` returns.
    pub(super) fn build(places: u32, key_at: impl Fn(u32) -> CounterKey) -> Index {
        let cells = (places as usize + 1).saturating_mul(5).div_ceil(3).max(CELLS_MIN);
        let mut index = Index { cells: vec![EMPTY; cells].into_boxed_slice() };
        for place in 0..places {
            index.insert(&key_at(place), place);
        }
        index
    }

    /// Whether more than `places` counters would fill over three quarters of the cells.
    pub(super) fn is_tight(&self, places: u32) -> bool {
        (places as usize + 1) * 4 > self.cells.len() * 3
    }

    /// Whether `places` counters fill less than a quarter of the cells.
    pub(super) fn is_loose(&self, places: u32) -> bool {
        self.cells.len() > CELLS_MIN && (places as usize) * 4 < self.cells.len()
    }

    /// The place of `key`: its tag matches, and `is_it` confirms the place.
    pub(super) fn find(&self, key: &CounterKey, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        if self.cells.is_empty() {
            return None;
        }
        let tag = tag(key);
        let mut at = self.home(key);
        loop {
            let cell = self.cells[at];
            if cell == EMPTY {
                return None;
            }
            if cell >> PLACE_BITS == tag && is_it(place_of(cell)) {
                return Some(place_of(cell));
            }
            at = self.after(at);
        }
    }

    /// The cell where the search for `key` starts, to read it ahead of the search.
    pub(super) fn first_cell(&self, key: &CounterKey) -> u32 {
        self.cells.get(self.home(key)).copied().unwrap_or(EMPTY)
    }

    /// Adds a counter that is not in the index. The index must not be tight.
    pub(super) fn insert(&mut self, key: &CounterKey, place: u32) {
        let mut at = self.home(key);
        while self.cells[at] != EMPTY {
            at = self.after(at);
        }
        self.cells[at] = cell_of(key, place);
    }

    /// Removes the counter at `place`. `key_at` returns the keys of the others.
    pub(super) fn remove(
        &mut self,
        key: &CounterKey,
        place: u32,
        key_at: impl Fn(u32) -> CounterKey,
    ) {
        let mut hole = self.cell_at(key, place);
        let mut at = hole;
        loop {
            at = self.after(at);
            let cell = self.cells[at];
            if cell == EMPTY {
                break;
            }
            // A counter may move into the hole unless its home is after the hole.
            let home = self.home(&key_at(place_of(cell)));
            if self.distance(home, at) >= self.distance(hole, at) {
                self.cells[hole] = cell;
                hole = at;
            }
        }
        self.cells[hole] = EMPTY;
    }

    /// Updates the counter `key`, which moved in the slab.
    pub(super) fn repoint(&mut self, key: &CounterKey, from: u32, to: u32) {
        let at = self.cell_at(key, from);
        self.cells[at] = cell_of(key, to);
    }

    /// Number of cells.
    #[cfg(test)]
    pub(super) fn cells(&self) -> usize {
        self.cells.len()
    }

    /// The cell of `place`, which must be indexed under `key`.
    fn cell_at(&self, key: &CounterKey, place: u32) -> usize {
        let wanted = cell_of(key, place);
        let mut at = self.home(key);
        while self.cells[at] != wanted {
            assert!(self.cells[at] != EMPTY, "every counter of the slab is indexed");
            at = self.after(at);
        }
        at
    }

    /// The cell where the search for `key` starts: its upper half-word scaled to the number of
    /// cells.
    fn home(&self, key: &CounterKey) -> usize {
        (((key.0[0] >> 32) * self.cells.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.cells.len() { 0 } else { at + 1 }
    }

    /// Number of cells from `from` forward to `to`.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.cells.len() - from }
    }
}

fn tag(key: &CounterKey) -> u32 {
    (key.0[0] as u32) >> PLACE_BITS
}

fn cell_of(key: &CounterKey, place: u32) -> u32 {
    debug_assert!(place < PLACES);
    tag(key) << PLACE_BITS | (place + 1)
}

fn place_of(cell: u32) -> u32 {
    (cell & PLACES) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An index with its list of keys, as a shard has them.
    #[derive(Default)]
    struct IndexedKeys {
        index: Index,
        keys: Vec<CounterKey>,
    }

    impl IndexedKeys {
        fn find(&self, key: &CounterKey) -> Option<u32> {
            self.index.find(key, |place| self.keys[place as usize] == *key)
        }

        fn toggle(&mut self, key: CounterKey) {
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
    fn crowded_key() -> impl Strategy<Value = CounterKey> {
        (0_u64..4, 0_u64..2, 0_u64..8).prop_map(|(home, tag, other)| {
            CounterKey([(home * 0x5555_5555) << 32 | tag << 31, other])
        })
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
                        let key = CounterKey([(home * 0x5555_5555) << 32 | tag << 31, other]);
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
            let key = |place| CounterKey([u64::from(place) << 40, 0]);
            let index = Index::build(places, key);
            assert!(!index.is_tight(places), "{places}");
            assert!(!index.is_loose(places), "{places}");
        }
    }
}
