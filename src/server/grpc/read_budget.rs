//! Turns: how much of one connection is read before the others of its core are served.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What one turn has: some hundred calls.
const BYTES: usize = 16 * 1024;

/// The present turn of one connection, shared by its task and its stream.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadBudget(Arc<State>);

#[derive(Debug, Default)]
struct State {
    left: AtomicUsize,
    was_read: AtomicBool,
}

impl ReadBudget {
    /// Runs a connection in turns: each time that its core comes to it is one.
    pub(super) async fn poll_with_budget<C: Future>(&self, connection: C) -> C::Output {
        let mut connection = pin!(connection);
        poll_fn(|context| {
            self.0.left.store(BYTES, Ordering::Relaxed);
            connection.as_mut().poll(context)
        })
        .await
    }

    /// It is over: whoever reads must wait for the next.
    pub(super) fn is_spent(&self) -> bool {
        self.0.left.load(Ordering::Relaxed) == 0
    }

    /// Whether anything was read since this was last asked.
    pub(super) fn read_since_last_check(&self) -> bool {
        self.0.was_read.swap(false, Ordering::Relaxed)
    }

    /// So many bytes were read.
    pub(super) fn spend(&self, bytes: usize) {
        let left = self.0.left.load(Ordering::Relaxed).saturating_sub(bytes);
        self.0.left.store(left, Ordering::Relaxed);
        self.0.was_read.store(true, Ordering::Relaxed);
    }
}
