//! The limit on what a worker reads from one connection: 16 KiB before it serves the others.
//!
//! Without a limit, a client that sends faster than its calls are decided would keep the worker
//! busy. The socket also reports here whether a write waits for the client.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes read per poll: about a hundred calls.
const POLL_BYTES_MAX: usize = 16 * 1024;

/// Limits the reads of one connection. Its task and its socket share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadThrottle(Arc<ThrottleState>);

// The task and the socket of a connection run on one thread.
#[derive(Debug, Default)]
struct ThrottleState {
    left: AtomicUsize,
    /// Bytes that the next polls may read less.
    debt: AtomicUsize,
    was_read: AtomicBool,
    is_write_stalled: AtomicBool,
}

impl ReadThrottle {
    /// Runs `connection` with a full budget for each poll.
    pub(super) async fn poll_with_budget<C: Future>(&self, connection: C) -> C::Output {
        let mut connection = pin!(connection);
        poll_fn(|context| {
            let debt = self.0.debt.load(Ordering::Relaxed);
            self.0.left.store(POLL_BYTES_MAX.saturating_sub(debt), Ordering::Relaxed);
            self.0.debt.store(debt.saturating_sub(POLL_BYTES_MAX), Ordering::Relaxed);
            connection.as_mut().poll(context)
        })
        .await
    }

    /// Reports whether the last write had to wait for the client.
    pub(super) fn set_write_stalled(&self, is_stalled: bool) {
        self.0.is_write_stalled.store(is_stalled, Ordering::Relaxed);
    }

    /// Whether the last write had to wait for the client.
    pub(super) fn is_write_stalled(&self) -> bool {
        self.0.is_write_stalled.load(Ordering::Relaxed)
    }

    /// Whether the budget is spent: reads must wait for the next poll.
    pub(super) fn is_spent(&self) -> bool {
        self.0.left.load(Ordering::Relaxed) == 0
    }

    /// Whether anything was read since the previous call of this method.
    pub(super) fn read_since_last_check(&self) -> bool {
        self.0.was_read.swap(false, Ordering::Relaxed)
    }

    /// Spends `bytes` of the next polls: a compressed message costs time for the bytes that it had before
    /// compression.
    pub(super) fn charge(&self, bytes: usize) {
        self.0.debt.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Spends `bytes` that were read.
    pub(super) fn spend(&self, bytes: usize) {
        let left = self.0.left.load(Ordering::Relaxed).saturating_sub(bytes);
        self.0.left.store(left, Ordering::Relaxed);
        self.0.was_read.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures_util::FutureExt;

    #[test]
    fn a_charge_is_paid_by_the_next_polls() {
        let throttle = ReadThrottle::default();
        throttle.charge(2 * POLL_BYTES_MAX + 1);
        let is_spent = || {
            let spent = throttle.poll_with_budget(async { throttle.is_spent() });
            spent.now_or_never().expect("it is ready")
        };
        assert_eq!([(); 4].map(|()| is_spent()), [true, true, false, false]);
    }
}
