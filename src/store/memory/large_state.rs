//! The large states of a shard: several tiers, logs, holders. Each is boxed, its bytes counted.

use crate::step::State;

/// A state that does not fit into an entry.
pub(super) struct LargeState {
    /// Where its entry stands in the slab.
    pub(super) place: u32,
    /// The state; `None` only if a step panicked halfway, and then the counter counts as empty.
    pub(super) state: Option<State>,
    /// Bytes of memory it was last charged for.
    pub(super) bytes: usize,
}

/// Bytes per large state for its pointer in the list, whose capacity may be twice its length, and
/// for the allocator's headers of the box and of up to two allocations the state makes.
const OVERHEAD: usize = 2 * size_of::<usize>() + 3 * 16;

/// Bytes that a large state takes beside its entry.
pub(super) fn bytes_of(state: &State) -> usize {
    size_of::<LargeState>() + OVERHEAD + state.heap_bytes()
}

/// The large states, in no order and without gaps.
#[derive(Default)]
pub(super) struct LargeStates {
    #[expect(clippy::vec_box, reason = "the list's spare capacity must cost little")]
    list: Vec<Box<LargeState>>,
}

impl LargeStates {
    /// How many there are.
    pub(super) fn len(&self) -> u32 {
        self.list.len() as u32
    }

    /// Number `id`.
    pub(super) fn get(&self, id: u64) -> &LargeState {
        &self.list[id as usize]
    }

    /// Number `id`, to change it.
    pub(super) fn get_mut(&mut self, id: u64) -> &mut LargeState {
        &mut self.list[id as usize]
    }

    /// Adds one and tells its number.
    pub(super) fn push(&mut self, large: LargeState) -> u64 {
        self.list.push(Box::new(large));
        self.list.len() as u64 - 1
    }

    /// Takes out number `id`. The last one gets that number: tells the place of its entry.
    pub(super) fn swap_remove(&mut self, id: u64) -> (LargeState, Option<u32>) {
        let gone = self.list.swap_remove(id as usize);
        if self.list.capacity() > 4 * self.list.len().max(4) {
            self.list.shrink_to(2 * self.list.len());
        }
        (*gone, self.list.get(id as usize).map(|moved| moved.place))
    }
}
