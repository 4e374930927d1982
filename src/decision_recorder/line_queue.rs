//! The queue of lines between the workers and the thread that writes them.
//!
//! It has two buffers: workers add to one while the writer writes the other. The lock is held for the
//! time of a copy, never for I/O.

use std::mem::swap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Whole lines in one buffer.
pub(super) struct Lines {
    bytes: Vec<u8>,
    count: u64,
}

impl Lines {
    /// No lines, with room for `bytes`. The system assigns memory when it is used.
    pub(super) fn with_capacity(bytes: usize) -> Lines {
        Lines { bytes: Vec::with_capacity(bytes), count: 0 }
    }

    /// The lines, one after the other.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of lines.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }
}

/// A bounded queue of lines.
pub(super) struct LineQueue {
    bytes_max: usize,
    state: Mutex<QueuedLines>,
    /// Notified when the first line is added, and when the queue is closed.
    changed: Condvar,
}

struct QueuedLines {
    lines: Lines,
    is_closed: bool,
}

impl LineQueue {
    /// A queue of at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> LineQueue {
        let state = QueuedLines { lines: Lines::with_capacity(bytes_max), is_closed: false };
        LineQueue { bytes_max, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds a line. Returns false if it has no room, or if the queue is closed.
    pub(super) fn push(&self, line: &[u8]) -> bool {
        let mut state = self.state();
        if state.is_closed || line.len() > self.bytes_max - state.lines.bytes.len() {
            return false;
        }
        state.lines.bytes.extend_from_slice(line);
        state.lines.count += 1;
        let is_first = state.lines.count == 1;
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
        true
    }

    /// Replaces `lines` by all lines of the queue, and waits for the first one. Returns false if the
    /// queue is closed and empty.
    pub(super) fn take(&self, lines: &mut Lines) -> bool {
        lines.clear();
        let waits = |state: &mut QueuedLines| state.lines.count == 0 && !state.is_closed;
        let state = self.changed.wait_while(self.state(), waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        swap(&mut state.lines, lines);
        lines.count > 0
    }

    /// Ends the queue. Its lines can still be taken.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, QueuedLines> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn a_line_without_room_is_refused() {
        let queue = LineQueue::new(10);
        assert!(queue.push(b"1234\n") && !queue.push(b"12345\n") && queue.push(b"5678\n"));
        assert!(!queue.push(b"\n"), "it is full");
        let mut lines = Lines::with_capacity(10);
        assert!(queue.take(&mut lines));
        assert_eq!((lines.bytes(), lines.count()), (&b"1234\n5678\n"[..], 2));
        assert!(queue.push(b"\n"), "taken lines leave room");
        queue.close();
        assert!(!queue.push(b"\n"), "it is closed");
        assert!(queue.take(&mut lines));
        assert_eq!((lines.bytes(), lines.count()), (&b"\n"[..], 1));
        assert!(!queue.take(&mut lines));
    }

    #[test]
    fn lines_of_several_threads_arrive_whole_and_once() {
        const LINES: usize = 2_000;
        let queue = Arc::new(LineQueue::new(1 << 20));
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let queue = queue.clone();
                thread::spawn(move || {
                    for line in 0..LINES {
                        assert!(queue.push(format!("{worker} {line}\n").as_bytes()));
                    }
                })
            })
            .collect();
        let reader = thread::spawn({
            let queue = queue.clone();
            move || {
                let (mut all, mut lines) = (Vec::new(), Lines::with_capacity(1 << 20));
                while queue.take(&mut lines) {
                    all.extend_from_slice(lines.bytes());
                }
                String::from_utf8(all).expect("text")
            }
        });
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        queue.close();
        let read = reader.join().expect("no panic");
        for worker in 0..4 {
            let start = format!("{worker} ");
            let of_worker = read.lines().filter_map(|line| line.strip_prefix(start.as_str()));
            let expected = (0..LINES).map(|line| line.to_string());
            assert!(of_worker.eq(expected), "worker {worker}");
        }
    }
}
