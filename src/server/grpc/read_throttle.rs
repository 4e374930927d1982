//! The limit on what a worker reads from one connection: 16 KiB before it serves the others, and
//! nothing while responses wait for the client.
//!
//! Without a limit, a client that sends faster than its calls are decided would keep the worker
//! busy. A client that sends and does not read would fill memory with its responses.
//!
//! The socket also reports here what h2 keeps of the frames that were read.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

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
    is_paused: AtomicBool,
    is_write_stalled: AtomicBool,
    is_in_header_block: AtomicBool,
    /// Bytes of input that h2 keeps.
    kept_bytes: AtomicU64,
    /// Frames that calls may not have read yet, and the largest number of them at a time.
    call_frames: AtomicU64,
    most_call_frames: AtomicU64,
    /// HEADERS frames whose streams are not counted yet.
    heads: AtomicU64,
}

impl ReadThrottle {
    /// Runs `connection` with a full budget for each poll.
    pub(super) async fn poll_with_budget<C: Future>(&self, connection: C) -> C::Output {
        let mut connection = pin!(connection);
        poll_fn(|context| {
            let debt = self.0.debt.load(Ordering::Relaxed);
            self.0.left.store(POLL_BYTES_MAX.saturating_sub(debt), Ordering::Relaxed);
            self.0.debt.store(debt.saturating_sub(POLL_BYTES_MAX), Ordering::Relaxed);
            // h2 has parsed all that was read, unless a write stopped it. Calls have read their
            // frames: each call was polled since then.
            if !self.is_write_stalled() {
                self.0.call_frames.store(0, Ordering::Relaxed);
            }
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

    /// Reports what was read: `call_frames` more HEADERS and DATA frames, whether the headers of a
    /// call are incomplete, and the bytes of all input so far that h2 keeps.
    pub(super) fn report(&self, call_frames: u64, is_in_header_block: bool, kept_bytes: u64) {
        let frames = self.0.call_frames.load(Ordering::Relaxed) + call_frames;
        self.0.call_frames.store(frames, Ordering::Relaxed);
        self.0.most_call_frames.fetch_max(frames, Ordering::Relaxed);
        self.0.is_in_header_block.store(is_in_header_block, Ordering::Relaxed);
        self.0.kept_bytes.store(kept_bytes, Ordering::Relaxed);
    }

    /// Reports `heads` more HEADERS frames.
    pub(super) fn report_heads(&self, heads: u64) {
        self.0.heads.fetch_add(heads, Ordering::Relaxed);
    }

    /// The HEADERS frames since the last call of this method.
    pub(super) fn take_heads(&self) -> u64 {
        self.0.heads.swap(0, Ordering::Relaxed)
    }

    /// The most HEADERS and DATA frames that h2 has held at a time.
    pub(super) fn most_call_frames(&self) -> u64 {
        self.0.most_call_frames.load(Ordering::Relaxed)
    }

    /// Bytes of input that h2 keeps.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.0.kept_bytes.load(Ordering::Relaxed)
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

    /// Polls a connection that reads `frames`. Returns the most frames so far.
    fn poll_with(throttle: &ReadThrottle, frames: u64) -> u64 {
        let connection = async { throttle.report(frames, false, 0) };
        throttle.poll_with_budget(connection).now_or_never().expect("it is ready");
        throttle.most_call_frames()
    }

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

    #[test]
    fn frames_of_one_poll_count_together() {
        let throttle = ReadThrottle::default();
        assert_eq!(poll_with(&throttle, 3), 3);
        assert_eq!(poll_with(&throttle, 2), 3);
        assert_eq!(poll_with(&throttle, 4), 4);
        throttle.set_write_stalled(true);
        assert_eq!(poll_with(&throttle, 5), 9, "h2 may not have parsed the four before");
        throttle.set_write_stalled(false);
        assert_eq!(poll_with(&throttle, 6), 9);
    }
}
