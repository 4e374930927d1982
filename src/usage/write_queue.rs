//! The names that wait to be written to Redis, bounded in number and in bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::name_set::{NameSet, StoredName};

/// The most names that wait.
const NAMES_MAX: usize = 65_536;

/// The most bytes of their texts.
const BYTES_MAX: usize = 16 << 20;

/// A name, and the set that gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameWrite {
    pub(super) set: NameSet,
    pub(super) name: StoredName,
}

/// A queue that never waits: a name without room is given back.
#[derive(Debug, Default)]
pub(super) struct WriteQueue(Mutex<QueuedWrites>);

#[derive(Debug, Default)]
struct QueuedWrites {
    writes: VecDeque<NameWrite>,
    bytes: usize,
}

impl WriteQueue {
    /// Adds a write at the end.
    ///
    /// # Errors
    /// The write, if there is no room for it.
    pub(super) fn push(&self, write: NameWrite) -> Result<(), NameWrite> {
        let mut queued = self.lock();
        if !queued.has_room(&write) {
            return Err(write);
        }
        queued.bytes += write.name.texts.len();
        queued.writes.push_back(write);
        Ok(())
    }

    /// Removes the first writes, at most `most`.
    pub(super) fn take(&self, most: usize) -> Vec<NameWrite> {
        let mut queued = self.lock();
        let most = most.min(queued.writes.len());
        let taken: Vec<NameWrite> = queued.writes.drain(..most).collect();
        queued.bytes -= taken.iter().map(|write| write.name.texts.len()).sum::<usize>();
        taken
    }

    /// Adds writes at the start, in their order, and returns those that have no room.
    pub(super) fn put_back(&self, writes: Vec<NameWrite>) -> Vec<NameWrite> {
        let mut queued = self.lock();
        let mut without_room = Vec::new();
        for write in writes.into_iter().rev() {
            if queued.has_room(&write) {
                queued.bytes += write.name.texts.len();
                queued.writes.push_front(write);
            } else {
                without_room.push(write);
            }
        }
        without_room
    }

    /// The number of names that wait.
    pub(super) fn len(&self) -> usize {
        self.lock().writes.len()
    }

    fn lock(&self) -> MutexGuard<'_, QueuedWrites> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueuedWrites {
    fn has_room(&self, write: &NameWrite) -> bool {
        self.writes.len() < NAMES_MAX && self.bytes + write.name.texts.len() <= BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{CounterKey, RuleId};
    use crate::time::Micros;

    fn write(number: u64, bytes: usize) -> NameWrite {
        let key = CounterKey([number, 0]);
        let name = StoredName { key, until: Micros(1), texts: vec![b'x'; bytes].into() };
        NameWrite { set: NameSet::of(RuleId([1, 2]), &key), name }
    }

    fn numbers(writes: &[NameWrite]) -> Vec<u64> {
        writes.iter().map(|write| write.name.key.0[0]).collect()
    }

    #[test]
    fn writes_that_are_put_back_come_first() {
        let queue = WriteQueue::default();
        (0..5).for_each(|number| queue.push(write(number, 3)).expect("room"));
        let taken = queue.take(3);
        assert_eq!(numbers(&taken), [0, 1, 2]);
        assert!(queue.put_back(taken).is_empty());
        assert_eq!(numbers(&queue.take(9)), [0, 1, 2, 3, 4]);
        assert_eq!((queue.len(), queue.lock().bytes), (0, 0));
    }

    #[test]
    fn the_queue_is_bounded_in_number_and_bytes() {
        let queue = WriteQueue::default();
        let pushed = (0..NAMES_MAX as u64 + 9)
            .filter(|number| queue.push(write(*number, 1)).is_ok())
            .count();
        assert_eq!(pushed, NAMES_MAX);
        let taken = queue.take(10);
        assert!((0..4).all(|number| queue.push(write(number, 1)).is_ok()));
        // The last ones have room, because each is put before the others.
        assert_eq!(numbers(&queue.put_back(taken)), [3, 2, 1, 0]);
        let long = WriteQueue::default();
        let pushed = (0..100_000).filter(|number| long.push(write(*number, 1_000)).is_ok()).count();
        assert_eq!(pushed, BYTES_MAX / 1_000);
    }
}
