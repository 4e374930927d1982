//! A limit on the bytes that a worker reads from one connection before it serves the others.
//!
//! Without a limit, a client that sends faster than its calls are decided would keep the worker
//! busy.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes read per poll: about a hundred calls.
const BYTES: usize = 16 * 1024;

/// The read budget of one connection, shared by its task and its socket.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadBudget(Arc<State>);

#[derive(Debug, Default)]
struct State {
    left: AtomicUsize,
    was_read: AtomicBool,
}

impl ReadBudget {
    /// Runs `connection` with a full budget for each poll.
    pub(super) async fn poll_with_budget<C: Future>(&self, connection: C) -> C::Output {
        let mut connection = pin!(connection);
        poll_fn(|context| {
            self.0.left.store(BYTES, Ordering::Relaxed);
            connection.as_mut().poll(context)
        })
        .await
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
