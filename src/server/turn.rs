//! Turns: how much of one connection is read before the others of its core are served.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What one turn has: some hundred calls.
const BYTES: usize = 16 * 1024;

/// The present turn of one connection, shared by its task and its stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn(Arc<AtomicUsize>);

impl Turn {
    /// Runs a connection in turns: each time that its core comes to it is one.
    pub(super) async fn by_turn<C: Future>(&self, mut connection: Pin<&mut C>) -> C::Output {
        poll_fn(|context| {
            self.0.store(BYTES, Ordering::Relaxed);
            connection.as_mut().poll(context)
        })
        .await
    }

    /// It is over: whoever reads must wait for the next.
    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// So many bytes were read.
    pub(super) fn spend(&self, bytes: usize) {
        let left = self.0.load(Ordering::Relaxed).saturating_sub(bytes);
        self.0.store(left, Ordering::Relaxed);
    }
}
