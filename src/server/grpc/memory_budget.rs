//! MemoryBudget: a bound on what calls hold in memory until they are decided.
//!
//! A message is put together before it is decoded, and HTTP/2 gives the client room again as soon as
//! its bytes are read: without a bound of our own, each of its streams could fill memory with a
//! message that never ends. And a request borrows the bytes of its message for as long as a store is
//! asked, with whatever else its client has put there.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;
use tonic::codegen::StdError;

use crate::server::metrics::ServerMetrics;

/// What every call may hold uncounted: nearly all calls are smaller, and cost nothing here.
const FREE: usize = 1024;

/// What a call that may stay open for ever may send at all: a name to watch, some to look up.
const STREAMING_MAX: usize = 4096;

/// The bytes of all calls that are being received or decided.
pub(in crate::server) struct MemoryBudget {
    max: usize,
    held: AtomicUsize,
    metrics: Arc<ServerMetrics>,
}

impl MemoryBudget {
    /// At most `max` bytes, beside the first 1024 of each call.
    pub(in crate::server) fn new(max: usize, metrics: Arc<ServerMetrics>) -> MemoryBudget {
        MemoryBudget { max, held: AtomicUsize::new(0), metrics }
    }
}

/// The body of a call on its way in, and who counts it.
pub(in crate::server) struct BudgetedBody<B, U: Deref<Target = MemoryBudget> = Arc<MemoryBudget>> {
    body: B,
    budget: U,
    seen: usize,
    /// How many bytes it may send; none: as many as a message may have.
    max: Option<usize>,
}

impl<B, U: Deref<Target = MemoryBudget>> BudgetedBody<B, U> {
    /// Of a call that is over in time.
    pub(in crate::server) fn unary(body: B, budget: U) -> BudgetedBody<B, U> {
        BudgetedBody { body, budget, seen: 0, max: None }
    }

    /// Of a call that may stay open for ever.
    pub(in crate::server) fn streaming(body: B, budget: U) -> BudgetedBody<B, U> {
        BudgetedBody { body, budget, seen: 0, max: Some(STREAMING_MAX) }
    }

    fn counted(&self) -> usize {
        self.seen.saturating_sub(FREE)
    }

    fn take(&mut self, bytes: usize) -> Result<(), Status> {
        let before = self.counted();
        self.seen += bytes;
        let more = self.counted() - before;
        let held = match more {
            0 => 0,
            more => self.budget.held.fetch_add(more, Ordering::Relaxed) + more,
        };
        if held <= self.budget.max && self.max.is_none_or(|max| self.seen <= max) {
            return Ok(());
        }
        self.budget.metrics.upload_refused.add();
        Err(Status::resource_exhausted(match self.max {
            Some(_) => "a call that stays open may send no more than 4096 bytes",
            None => "too much of other calls is on its way: try again, see grpc.max_upload_bytes",
        }))
    }
}

impl<B, U: Deref<Target = MemoryBudget>> Drop for BudgetedBody<B, U> {
    fn drop(&mut self) {
        match self.counted() {
            0 => {}
            counted => drop(self.budget.held.fetch_sub(counted, Ordering::Relaxed)),
        }
    }
}

impl<B, U> Body for BudgetedBody<B, U>
where
    U: Deref<Target = MemoryBudget> + Unpin,
    B: Body<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            Some(Ok(frame)) => frame,
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        Poll::Ready(Some(match self.take(bytes) {
            Ok(()) => Ok(frame),
            Err(status) => Err(status.into()),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(max: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget::new(max, Arc::default()))
    }

    #[test]
    fn all_calls_together_hold_no_more_than_the_bound_and_give_it_back() {
        let all = budget(10_000);
        let mut first = BudgetedBody::unary((), all.clone());
        assert!(first.take(FREE).is_ok());
        assert_eq!(all.held.load(Ordering::Relaxed), 0, "what is small is not counted");
        assert!(first.take(8000).is_ok());
        let mut second = BudgetedBody::unary((), all.clone());
        assert!(second.take(FREE + 2000).is_ok());
        assert!(second.take(1).is_err());
        let mut small = BudgetedBody::unary((), all.clone());
        assert!(small.take(FREE).is_ok(), "small calls pass even then");
        drop((first, second, small));
        assert_eq!(all.held.load(Ordering::Relaxed), 0);
        assert_eq!(all.metrics.upload_refused.get(), 1);
    }

    #[test]
    fn a_call_that_stays_sends_little() {
        let mut call = BudgetedBody::streaming((), budget(usize::MAX));
        assert!(call.take(STREAMING_MAX).is_ok());
        assert!(call.take(1).is_err());
    }
}
