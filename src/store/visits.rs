//! Visits: which calls to the store one request came to, for those who trace it.
//!
//! Collected on the thread that polls the request, so that stores need not be told whose call it
//! is. A call that was made on behalf of several requests belongs to the one that waited for it.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;

use super::{PartId, StoreError};
use crate::time::Micros;

/// Visits kept per request.
const VISITS_MAX: usize = 64;

/// One call to a part of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Which part.
    pub part: PartId,
    /// When it was sent.
    pub began: Micros,
    /// When there was an answer, or nobody waited any longer.
    pub ended: Micros,
    /// Why there was no outcome.
    pub error: Option<StoreError>,
}

thread_local! {
    /// Those of the request that this thread polls, if anybody wants to know.
    static VISITS: RefCell<Option<Vec<Visit>>> = const { RefCell::new(None) };
}

/// Runs `request`, and tells what visits it made.
pub async fn collect<T>(request: impl Future<Output = T>) -> (T, Vec<Visit>) {
    let mut request = pin!(request);
    let mut visits = Vec::new();
    let output = poll_fn(|context| {
        let outer = VISITS.replace(Some(std::mem::take(&mut visits)));
        let _back = Back(outer);
        let polled = request.as_mut().poll(context);
        visits = VISITS.take().unwrap_or_default();
        polled
    })
    .await;
    (output, visits)
}

/// Puts back what was there before, also when a poll panics.
struct Back(Option<Vec<Visit>>);

impl Drop for Back {
    fn drop(&mut self) {
        VISITS.set(self.0.take());
    }
}

/// Notes a visit, if anybody wants to know.
pub(super) fn note(visit: impl FnOnce() -> Visit) {
    VISITS.with_borrow_mut(|visits| {
        if let Some(visits) = visits.as_mut().filter(|visits| visits.len() < VISITS_MAX) {
            visits.push(visit());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(part: u32) -> Visit {
        Visit { part: PartId(part), began: Micros(1), ended: Micros(2), error: None }
    }

    #[tokio::test]
    async fn each_request_hears_of_its_own_visits_however_they_interleave() {
        let request = |part: u32| async move {
            note(|| visit(part));
            tokio::task::yield_now().await;
            note(|| visit(part));
        };
        let (((), one), ((), two)) = tokio::join!(collect(request(1)), collect(request(2)));
        assert_eq!((one, two), (vec![visit(1); 2], vec![visit(2); 2]));
        request(3).await;
        let ((), none) = collect(async {}).await;
        assert_eq!(none, [], "what nobody collects is not kept");
    }

    #[tokio::test]
    async fn their_number_is_bounded() {
        let ((), visits) = collect(async { (0..1000).for_each(|part| note(|| visit(part))) }).await;
        assert_eq!(visits.len(), VISITS_MAX);
    }
}
