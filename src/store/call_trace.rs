//! Call traces: records the store calls of one request, for tracing and for the log of fallbacks.
//!
//! Calls are recorded on the thread that polls the request, so stores need no request argument. A
//! call on behalf of several requests belongs to the request that awaited it.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;

use super::{NodeId, StoreError};
use crate::time::Micros;

/// Calls recorded per request. Further ones are dropped.
const CALLS_MAX: usize = 64;

/// One call to a node of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreCall {
    /// The node.
    pub node: NodeId,
    /// When it was sent.
    pub began: Micros,
    /// When the reply arrived, or the caller stopped waiting.
    pub ended: Micros,
    /// The reason why there is no outcome; `None` if there is one.
    pub error: Option<StoreError>,
}

thread_local! {
    /// The calls of the request that this thread polls; `None` if it is not traced.
    static CALLS: RefCell<Option<Vec<StoreCall>>> = const { RefCell::new(None) };

    /// Calls that returned an outcome to a future on this thread.
    static OUTCOMES: Cell<u64> = const { Cell::new(0) };
}

/// Polls a future with `poll`. Also returns whether a store call returned an outcome to it.
pub fn observe<T>(poll: impl FnOnce() -> T) -> (T, bool) {
    let before = OUTCOMES.get();
    let polled = poll();
    (polled, OUTCOMES.get() != before)
}

/// Runs `request`, and returns its calls.
pub async fn collect<T>(request: impl Future<Output = T>) -> (T, Vec<StoreCall>) {
    let mut request = pin!(request);
    let mut calls = Vec::new();
    let output = poll_fn(|context| {
        let outer = CALLS.replace(Some(std::mem::take(&mut calls)));
        let _restore = Restore(outer);
        let polled = request.as_mut().poll(context);
        calls = CALLS.take().unwrap_or_default();
        polled
    })
    .await;
    (output, calls)
}

/// Restores the calls of the outer request when it is dropped, also if a poll panics.
struct Restore(Option<Vec<StoreCall>>);

impl Drop for Restore {
    fn drop(&mut self) {
        CALLS.set(self.0.take());
    }
}

/// Counts a call that returned an outcome, for [`observe`].
pub(super) fn count_outcome() {
    OUTCOMES.set(OUTCOMES.get().wrapping_add(1));
}

/// Records a call, if the request is traced.
pub(super) fn record(call: impl FnOnce() -> StoreCall) {
    CALLS.with_borrow_mut(|calls| {
        if let Some(calls) = calls.as_mut().filter(|calls| calls.len() < CALLS_MAX) {
            calls.push(call());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(node: u32) -> StoreCall {
        StoreCall { node: NodeId(node), began: Micros(1), ended: Micros(2), error: None }
    }

    #[tokio::test]
    async fn interleaved_requests_record_their_own_calls() {
        let request = |node: u32| async move {
            record(|| call(node));
            tokio::task::yield_now().await;
            record(|| call(node));
        };
        let (((), one), ((), two)) = tokio::join!(collect(request(1)), collect(request(2)));
        assert_eq!((one, two), (vec![call(1); 2], vec![call(2); 2]));
        request(3).await;
        let ((), none) = collect(async {}).await;
        assert_eq!(none, [], "untraced calls are not kept");
    }

    #[test]
    fn only_the_observed_poll_counts_outcomes() {
        count_outcome();
        let twice = || (0..2).for_each(|_| count_outcome());
        let ((), inner) = observe(|| assert!(!observe(|| ()).1));
        assert!(!inner);
        assert!(observe(twice).1);
        assert!(!observe(|| ()).1);
    }

    #[tokio::test]
    async fn calls_are_bounded() {
        let ((), calls) = collect(async { (0..1000).for_each(|node| record(|| call(node))) }).await;
        assert_eq!(calls.len(), CALLS_MAX);
    }
}
