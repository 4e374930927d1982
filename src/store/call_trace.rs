//! Visits: which calls to the store one request came to, for those who trace it.
//!
//! Collected on the thread that polls the request, so that stores need not be told whose call it
//! is. A call that was made on behalf of several requests belongs to the one that waited for it.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;

use super::{NodeId, StoreError};
use crate::time::Micros;

/// Visits kept per request.
const CALLS_MAX: usize = 64;

/// One call to a node of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreCall {
    /// Which node.
    pub node: NodeId,
    /// When it was sent.
    pub began: Micros,
    /// When there was an answer, or nobody waited any longer.
    pub ended: Micros,
    /// Why there was no outcome.
    pub error: Option<StoreError>,
}

thread_local! {
    /// Those of the request that this thread polls, if anybody wants to know.
    static CALLS: RefCell<Option<Vec<StoreCall>>> = const { RefCell::new(None) };
}

/// Runs `request`, and tells what calls it made.
pub async fn collect<T>(request: impl Future<Output = T>) -> (T, Vec<StoreCall>) {
    let mut request = pin!(request);
    let mut calls = Vec::new();
    let output = poll_fn(|context| {
        let outer = CALLS.replace(Some(std::mem::take(&mut calls)));
        let _back = Back(outer);
        let polled = request.as_mut().poll(context);
        calls = CALLS.take().unwrap_or_default();
        polled
    })
    .await;
    (output, calls)
}

/// Puts back what was there before, also when a poll panics.
struct Back(Option<Vec<StoreCall>>);

impl Drop for Back {
    fn drop(&mut self) {
        CALLS.set(self.0.take());
    }
}

/// Notes a call, if anybody wants to know.
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
    async fn each_request_hears_of_its_own_visits_however_they_interleave() {
        let request = |node: u32| async move {
            record(|| call(node));
            tokio::task::yield_now().await;
            record(|| call(node));
        };
        let (((), one), ((), two)) = tokio::join!(collect(request(1)), collect(request(2)));
        assert_eq!((one, two), (vec![call(1); 2], vec![call(2); 2]));
        request(3).await;
        let ((), none) = collect(async {}).await;
        assert_eq!(none, [], "what nobody collects is not kept");
    }

    #[tokio::test]
    async fn their_number_is_bounded() {
        let ((), calls) = collect(async { (0..1000).for_each(|node| record(|| call(node))) }).await;
        assert_eq!(calls.len(), CALLS_MAX);
    }
}
