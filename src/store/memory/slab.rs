//! The slab of a shard: its entries without gaps, in chunks that are freed when empty.

use super::entry::CounterEntry;
use crate::key::CounterKey;

/// Entries per chunk, 3 KiB. Small, because each shard has one partly empty chunk.
const CHUNK: usize = 64;

/// A dense list of entries at the places `0..len`.
#[derive(Default)]
pub(super) struct Slab {
    #[expect(clippy::vec_box, reason = "a chunk must not move when the list grows")]
    chunks: Vec<Box<[CounterEntry; CHUNK]>>,
    len: u32,
}

impl Slab {
    /// Number of entries.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The entry at `place`.
    pub(super) fn get(&self, place: u32) -> &CounterEntry {
        debug_assert!(place < self.len);
        let place = place as usize;
        &self.chunks[place / CHUNK][place % CHUNK]
    }

    /// The entry at `place`, mutable.
    pub(super) fn get_mut(&mut self, place: u32) -> &mut CounterEntry {
        debug_assert!(place < self.len);
        let place = place as usize;
        &mut self.chunks[place / CHUNK][place % CHUNK]
    }

    /// Appends an entry and returns its place.
    pub(super) fn push(&mut self, entry: CounterEntry) -> u32 {
        let place = self.len;
        if place as usize == self.chunks.len() * CHUNK {
            self.chunks.push(empty_chunk());
        }
        self.len += 1;
        *self.get_mut(place) = entry;
        place
    }

    /// Removes the entry at `place`; the last entry moves there.
    pub(super) fn swap_remove(&mut self, place: u32) {
        let last = self.len - 1;
        *self.get_mut(place) = *self.get(last);
        self.len = last;
        // One empty chunk stays, so that a length around a chunk's edge does not allocate
        // repeatedly.
        if self.chunks.len() * CHUNK >= last as usize + 2 * CHUNK {
            self.chunks.pop();
            if self.chunks.capacity() > 4 * self.chunks.len() {
                self.chunks.shrink_to(2 * self.chunks.len());
            }
        }
    }

    /// Number of entries that are allocated.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.chunks.len() * CHUNK
    }
}

/// A chunk that is created on the heap; an array expression would use the stack.
fn empty_chunk() -> Box<[CounterEntry; CHUNK]> {
    vec![CounterEntry::new(CounterKey([0; 2])); CHUNK].try_into().expect("the length is CHUNK")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64) -> CounterEntry {
        CounterEntry::new(CounterKey([id, 0]))
    }

    #[test]
    fn removal_moves_the_last_entry_and_frees_chunks() {
        let mut slab = Slab::default();
        for id in 0..1000 {
            assert_eq!(u64::from(slab.push(entry(id))), id);
        }
        slab.swap_remove(3);
        assert_eq!(slab.get(3).key, CounterKey([999, 0]));
        slab.swap_remove(998);
        assert_eq!(slab.len(), 998);
        while slab.len() > 0 {
            slab.swap_remove(slab.len() / 2);
            assert!(slab.capacity() < slab.len() as usize + 2 * CHUNK);
        }
    }
}
