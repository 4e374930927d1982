//! The large states of a shard (several tiers, logs, slots): boxed, with their size counted.

use crate::step::State;

/// A state that does not fit into an entry of 48 bytes.
pub(super) struct LargeState {
    /// The place of its entry in the slab.
    pub(super) place: u32,
    /// The state. `None` only after a step panicked; the counter then counts as empty.
    pub(super) state: Option<State>,
    /// Bytes that the budget was last charged for it.
    pub(super) bytes: usize,
}

/// Overhead in bytes: the pointer in the list, whose capacity may be twice its length, and the
/// allocator's headers of the box and of up to two allocations of the state.
const OVERHEAD: usize = 2 * size_of::<usize>() + 3 * 16;

/// Bytes that a large state takes in addition to its entry.
pub(super) fn bytes_of(state: &State) -> usize {
    size_of::<LargeState>() + OVERHEAD + state.heap_bytes()
}

/// The large states, unordered and without gaps.
#[derive(Default)]
pub(super) struct LargeStates {
    #[expect(clippy::vec_box, reason = "the list's spare capacity must cost little")]
    list: Vec<Box<LargeState>>,
}

impl LargeStates {
    /// The number of large states.
    pub(super) fn len(&self) -> u32 {
        self.list.len() as u32
    }

    /// The state at index `id`.
    pub(super) fn get(&self, id: u64) -> &LargeState {
        &self.list[id as usize]
    }

    /// The state at index `id`, mutable.
    pub(super) fn get_mut(&mut self, id: u64) -> &mut LargeState {
        &mut self.list[id as usize]
    }

    /// Adds a state and returns its index.
    pub(super) fn push(&mut self, large: LargeState) -> u64 {
        self.list.push(Box::new(large));
        self.list.len() as u64 - 1
    }

    /// Removes the state at `id`. The last one moves there; returns the place of its entry.
    pub(super) fn swap_remove(&mut self, id: u64) -> (LargeState, Option<u32>) {
        let gone = self.list.swap_remove(id as usize);
        if self.list.capacity() > 4 * self.list.len().max(4) {
            self.list.shrink_to(2 * self.list.len());
        }
        (*gone, self.list.get(id as usize).map(|moved| moved.place))
    }
}
