//! The streams of a connection that are not closed.
//!
//! A stream is freed when it closes. Handles of its call find it by a key, and find none then.

use std::collections::VecDeque;
use std::task::Waker;

/// The place of a stream, and its number. Numbers are not used again, so a key of a freed stream
/// matches none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamKey {
    slot: u32,
    /// The stream identifier.
    pub(crate) id: u32,
}

/// What the sender of a stream waits for. A reset always wakes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SenderWait {
    /// Nothing, or a reset alone.
    #[default]
    Reset,
    /// Room in the window of its stream.
    Window,
    /// Room in the window of the connection or in the output.
    Connection,
}

/// One stream that is open or half-closed.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// The stream identifier; 0 in a free slot.
    id: u32,
    /// The client has sent END_STREAM.
    pub(crate) is_received: bool,
    /// The application has the call.
    pub(crate) is_accepted: bool,
    /// The application does not read the body any more.
    pub(crate) is_body_dropped: bool,
    /// The response has ended.
    pub(crate) is_sent: bool,
    pub(crate) sender_wait: SenderWait,
    /// Bytes that the server may send.
    pub(crate) send_window: i64,
    /// Bytes that the client may send.
    pub(crate) receive_window: u32,
    /// Bytes received and not released.
    pub(crate) unreleased: u32,
    /// Bytes released and not announced by WINDOW_UPDATE.
    pub(crate) unannounced: u32,
    /// Bytes that `content-length` still promises.
    pub(crate) content_left: Option<u64>,
    /// Data received and not read.
    pub(crate) body: Vec<u8>,
    pub(crate) reader: Option<Waker>,
    pub(crate) sender: Option<Waker>,
}

/// The table keeps this many free slots.
const SLOTS_KEPT: usize = 32;

/// All streams of a connection that are not closed.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    slots: Vec<Stream>,
    free: Vec<u32>,
    /// The open streams in the order of their numbers, in which clients open them.
    open: VecDeque<StreamKey>,
    /// The stream of the last frame: the next frame often has the same one.
    last: Option<StreamKey>,
}

impl StreamTable {
    /// The number of streams.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Adds a stream, whose `id` must be larger than those of all before.
    pub(crate) fn open(&mut self, id: u32, mut stream: Stream) -> StreamKey {
        stream.id = id;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = stream;
                slot
            }
            None => {
                self.slots.push(stream);
                (self.slots.len() - 1) as u32
            }
        };
        let key = StreamKey { slot, id };
        self.open.push_back(key);
        self.last = Some(key);
        key
    }

    /// The key of the stream `id`; `None` if it is not open.
    pub(crate) fn find(&mut self, id: u32) -> Option<StreamKey> {
        if let Some(last) = self.last
            && last.id == id
        {
            return Some(last);
        }
        let index = self.open.binary_search_by_key(&id, |key| key.id).ok()?;
        self.last = Some(self.open[index]);
        self.last
    }

    pub(crate) fn get(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.slots.get_mut(key.slot as usize).filter(|stream| stream.id == key.id)
    }

    /// Frees a stream, and returns it.
    pub(crate) fn close(&mut self, key: StreamKey) -> Option<Stream> {
        let stream = std::mem::take(self.get(key)?);
        self.free.push(key.slot);
        if let Ok(index) = self.open.binary_search_by_key(&key.id, |key| key.id) {
            self.open.remove(index);
        }
        if self.last == Some(key) {
            self.last = None;
        }
        if self.open.is_empty() && self.slots.capacity() > SLOTS_KEPT {
            self.slots.truncate(SLOTS_KEPT);
            self.slots.shrink_to(SLOTS_KEPT);
            self.free = (0..self.slots.len() as u32).collect();
            self.open.shrink_to(SLOTS_KEPT);
        }
        Some(stream)
    }

    /// All streams.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slots.iter_mut().filter(|stream| stream.id != 0)
    }

    /// The keys of all streams.
    pub(crate) fn keys(&self) -> Vec<StreamKey> {
        self.open.iter().copied().collect()
    }

    /// Bytes in memory without bodies.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Stream>()
            + self.free.capacity() * size_of::<u32>()
            + self.open.capacity() * size_of::<StreamKey>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    proptest! {
        /// A table finds what is open, and nothing else, in any order of opening and closing.
        #[test]
        fn only_open_streams_are_found(
            steps in prop::collection::vec((any::<bool>(), 0..64_usize), 1..300)
        ) {
            let (mut table, mut next) = (StreamTable::default(), 1);
            let (mut open, mut closed) = (Vec::new(), Vec::new());
            for (opens, at) in steps {
                if opens || open.is_empty() {
                    open.push(table.open(next, Stream::default()));
                    next += 2 + 2 * at as u32;
                } else {
                    let key = open.remove(at % open.len());
                    prop_assert!(table.close(key).is_some());
                    closed.push(key);
                }
                prop_assert_eq!(table.len(), open.len());
                for key in &open {
                    prop_assert_eq!(table.find(key.id), Some(*key));
                    prop_assert!(table.get(*key).is_some_and(|stream| stream.id == key.id));
                }
                for key in &closed {
                    prop_assert_eq!(table.find(key.id), None);
                    prop_assert!(table.get(*key).is_none());
                    prop_assert!(table.close(*key).is_none());
                }
                prop_assert_eq!(table.iter_mut().count(), open.len());
            }
        }
    }

    #[test]
    fn memory_is_freed_with_the_last_stream() {
        let mut table = StreamTable::default();
        let keys: Vec<_> = (0..1000).map(|n| table.open(2 * n + 1, Stream::default())).collect();
        assert!(table.memory() >= 1000 * size_of::<Stream>());
        for key in keys {
            table.close(key);
        }
        assert!(table.memory() < 10_000, "{} bytes", table.memory());
        let key = table.open(3001, Stream::default());
        assert_eq!(table.find(3001), Some(key));
    }
}
