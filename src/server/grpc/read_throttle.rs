//! The limit on what a worker reads from one connection: 16 KiB before it serves the others, and
//! nothing while responses wait for the client.
//!
//! Without a limit, a client that sends faster than its calls are decided would keep the worker
//! busy. A client that sends and does not read would fill memory with its responses.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes read per poll: about a hundred calls.
const BYTES: usize = 16 * 1024;

/// Limits the reads of one connection. Its task and its socket share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadThrottle(Arc<State>);

// The task and the socket of a connection run on one thread.
#[derive(Debug, Default)]
struct State {
    left: AtomicUsize,
    was_read: AtomicBool,
    is_paused: AtomicBool,
    is_write_stalled: AtomicBool,
    is_in_header_block: AtomicBool,
}

impl ReadThrottle {
    /// Runs `connection` with a full budget for each poll.
    pub(super) async fn poll_with_budget<C: Future>(&self, connection: C) -> C::Output {
        let mut connection = pin!(connection);
        poll_fn(|context| {
            self.0.left.store(BYTES, Ordering::Relaxed);
            connection.as_mut().poll(context)
        })
        .await
    }

    /// Pauses reads, or continues them. Who pauses them must poll again.
    pub(super) fn pause(&self, is_paused: bool) {
        self.0.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Reports whether the last write had to wait for the client. Reads pause until it has not.
    pub(super) fn set_write_stalled(&self, is_stalled: bool) {
        self.0.is_write_stalled.store(is_stalled, Ordering::Relaxed);
    }

    /// Whether the last write had to wait for the client.
    pub(super) fn is_write_stalled(&self) -> bool {
        self.0.is_write_stalled.load(Ordering::Relaxed)
    }

    /// Whether reads must wait for writes.
    pub(super) fn is_paused(&self) -> bool {
        self.0.is_paused.load(Ordering::Relaxed) || self.is_write_stalled()
    }

    /// Reports whether the headers of a call are incomplete.
    pub(super) fn set_in_header_block(&self, is_in: bool) {
        self.0.is_in_header_block.store(is_in, Ordering::Relaxed);
    }

    /// Whether the headers of a call are incomplete.
    pub(super) fn is_in_header_block(&self) -> bool {
        self.0.is_in_header_block.load(Ordering::Relaxed)
    }

    /// Whether the budget is spent: reads must wait for the next poll.
    pub(super) fn is_spent(&self) -> bool {
        self.0.left.load(Ordering::Relaxed) == 0
    }

    /// Whether anything was read since the previous call of this method.
    pub(super) fn read_since_last_check(&self) -> bool {
        self.0.was_read.swap(false, Ordering::Relaxed)
    }

    /// Spends `bytes` that were read.
    pub(super) fn spend(&self, bytes: usize) {
        let left = self.0.left.load(Ordering::Relaxed).saturating_sub(bytes);
        self.0.left.store(left, Ordering::Relaxed);
        self.0.was_read.store(true, Ordering::Relaxed);
    }
}
