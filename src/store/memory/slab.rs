//! The slab of a shard: its counters side by side, in chunks that are given back when empty.

use super::entry::CounterEntry;
use crate::key::Key;

/// Entries per chunk: 3 KiB. Small, because each shard has one chunk that is partly empty.
const CHUNK: usize = 64;

/// A dense list of entries. Places are `0..len`, without gaps.
#[derive(Default)]
pub(super) struct Slab {
    #[expect(clippy::vec_box, reason = "a chunk must not move when the list grows")]
    chunks: Vec<Box<[CounterEntry; CHUNK]>>,
    len: u32,
}

impl Slab {
    /// How many entries there are.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The entry at `place`.
    pub(super) fn get(&self, place: u32) -> &CounterEntry {
        debug_assert!(place < self.len);
        let place = place as usize;
        &self.chunks[place / CHUNK][place % CHUNK]
    }

    /// The entry at `place`, to change it.
    pub(super) fn get_mut(&mut self, place: u32) -> &mut CounterEntry {
        debug_assert!(place < self.len);
        let place = place as usize;
        &mut self.chunks[place / CHUNK][place % CHUNK]
    }

    /// Adds an entry at the end and tells its place.
    pub(super) fn push(&mut self, entry: CounterEntry) -> u32 {
        let place = self.len;
        if place as usize == self.chunks.len() * CHUNK {
            self.chunks.push(empty_chunk());
        }
        self.len += 1;
        *self.get_mut(place) = entry;
        place
    }

    /// Takes out the entry at `place`; the last entry moves there.
    pub(super) fn swap_remove(&mut self, place: u32) {
        let last = self.len - 1;
        *self.get_mut(place) = *self.get(last);
        self.len = last;
        // One empty chunk is kept, so that a count that hovers at an edge does not allocate.
        if self.chunks.len() * CHUNK >= last as usize + 2 * CHUNK {
            self.chunks.pop();
            if self.chunks.capacity() > 4 * self.chunks.len() {
                self.chunks.shrink_to(2 * self.chunks.len());
            }
        }
    }

    /// Entries there is memory for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.chunks.len() * CHUNK
    }
}

/// A chunk made on the heap; an array expression would go through the stack.
fn empty_chunk() -> Box<[CounterEntry; CHUNK]> {
    vec![CounterEntry::new(Key([0; 2])); CHUNK].try_into().expect("the length is CHUNK")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64) -> CounterEntry {
        CounterEntry::new(Key([id, 0]))
    }

    #[test]
    fn removing_moves_the_last_entry_and_gives_chunks_back() {
        let mut slab = Slab::default();
        for id in 0..1000 {
            assert_eq!(u64::from(slab.push(entry(id))), id);
        }
        slab.swap_remove(3);
        assert_eq!(slab.get(3).key, Key([999, 0]));
        slab.swap_remove(998);
        assert_eq!(slab.len(), 998);
        while slab.len() > 0 {
            slab.swap_remove(slab.len() / 2);
            assert!(slab.capacity() < slab.len() as usize + 2 * CHUNK);
        }
    }
}
