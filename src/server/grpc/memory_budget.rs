//! The memory budget: a bound on the bytes that calls hold until they are decided.
//!
//! A message is assembled before it is decoded, and the client may send more as soon as its bytes
//! are read. Without a budget, each stream could fill memory with a message that never ends. A
//! request also borrows the bytes of its message, unknown fields included, until the store has
//! decided.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::body_error::BodyError;
use super::status::{GrpcCode, GrpcStatus};
use crate::server::metrics::ServerMetrics;

/// Bytes of each call that are not counted. Nearly all calls are smaller, so they do not touch the
/// shared counter.
const FREE: usize = 1024;

/// Bytes that a call of a streaming method may send in total. Such calls send only a few names: the
/// service to watch, or the symbols to look up by reflection.
pub(super) const STREAMING_MAX: usize = 4096;

/// The bytes of all calls that are being received or decided, with their maximum.
pub(in crate::server) struct MemoryBudget {
    max: usize,
    held: AtomicUsize,
    metrics: Arc<ServerMetrics>,
}

impl MemoryBudget {
    /// A budget of `max` bytes, in addition to the first 1024 bytes of each call.
    pub(in crate::server) fn new(max: usize, metrics: Arc<ServerMetrics>) -> MemoryBudget {
        MemoryBudget { max, held: AtomicUsize::new(0), metrics }
    }
}

/// One call's share of the budget: the bytes that it holds. Dropping it returns them.
pub(super) struct BudgetShare<M: Deref<Target = MemoryBudget>> {
    budget: M,
    bytes: usize,
    /// Bytes that the call may send in total; `None` if only the message size limits it.
    max: Option<usize>,
}

impl<M: Deref<Target = MemoryBudget>> BudgetShare<M> {
    /// An empty share for a call of a unary method.
    pub(super) fn unary(budget: M) -> BudgetShare<M> {
        BudgetShare { budget, bytes: 0, max: None }
    }

    /// An empty share for a call of a streaming method, which may stay open for days.
    fn streaming(budget: M) -> BudgetShare<M> {
        BudgetShare { budget, bytes: 0, max: Some(STREAMING_MAX) }
    }

    fn counted(&self) -> usize {
        self.bytes.saturating_sub(FREE)
    }

    /// Adds `bytes`. Fails if the budget, or the call's own maximum, is exceeded.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), GrpcStatus> {
        let before = self.counted();
        self.bytes += bytes;
        let more = self.counted() - before;
        let held = match more {
            0 => 0,
            more => self.budget.held.fetch_add(more, Ordering::Relaxed) + more,
        };
        if held <= self.budget.max && self.max.is_none_or(|max| self.bytes <= max) {
            return Ok(());
        }
        self.budget.metrics.buffer_full.add();
        let message = match self.max {
            Some(max) => format!("a streaming call may send at most {max} bytes"),
            None => {
                "the server buffers too many request bytes (grpc.max_buffered_bytes); retry".into()
            }
        };
        Err(GrpcStatus::new(GrpcCode::ResourceExhausted, message))
    }

    /// Converts a share that borrows the budget to one that owns a reference to it.
    pub(super) fn shared(mut self, budget: Arc<MemoryBudget>) -> BudgetShare<Arc<MemoryBudget>> {
        BudgetShare { budget, bytes: std::mem::take(&mut self.bytes), max: self.max }
    }
}

impl<M: Deref<Target = MemoryBudget>> Drop for BudgetShare<M> {
    fn drop(&mut self) {
        match self.counted() {
            0 => {}
            counted => drop(self.budget.held.fetch_sub(counted, Ordering::Relaxed)),
        }
    }
}

/// The body of a call. Its bytes count in the budget as they arrive.
pub(super) struct BudgetedBody<B, M: Deref<Target = MemoryBudget>> {
    body: B,
    share: BudgetShare<M>,
}

impl<B, M: Deref<Target = MemoryBudget>> BudgetedBody<B, M> {
    /// The body of a call of a unary method.
    pub(super) fn unary(body: B, budget: M) -> BudgetedBody<B, M> {
        BudgetedBody { body, share: BudgetShare::unary(budget) }
    }

    /// The body of a call of a streaming method.
    pub(super) fn streaming(body: B, budget: M) -> BudgetedBody<B, M> {
        BudgetedBody { body, share: BudgetShare::streaming(budget) }
    }

    /// Returns the share and drops the body.
    pub(super) fn into_share(self) -> BudgetShare<M> {
        self.share
    }
}

impl<B, M> Body for BudgetedBody<B, M>
where
    M: Deref<Target = MemoryBudget> + Unpin,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            Some(Ok(frame)) => frame,
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let grown = self.share.grow(bytes);
        Poll::Ready(Some(grown.map(|()| frame).map_err(BodyError::Refused)))
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
    fn calls_together_stay_within_the_budget() {
        let all = budget(10_000);
        let mut first = BudgetShare::unary(all.clone());
        assert!(first.grow(FREE).is_ok());
        assert_eq!(all.held.load(Ordering::Relaxed), 0, "small calls are not counted");
        assert!(first.grow(8000).is_ok());
        let mut second = BudgetShare::unary(&*all);
        assert!(second.grow(FREE + 2000).is_ok());
        assert!(second.grow(1).is_err());
        let mut small = BudgetShare::unary(&*all);
        assert!(small.grow(FREE).is_ok(), "small calls pass even when the budget is spent");
        let second = second.shared(all.clone());
        assert_eq!(all.held.load(Ordering::Relaxed), 10_001, "each byte is counted once");
        drop((first, second, small));
        assert_eq!(all.held.load(Ordering::Relaxed), 0);
        assert_eq!(all.metrics.buffer_full.get(), 1);
    }

    #[test]
    fn a_streaming_call_sends_at_most_4096_bytes() {
        let mut call = BudgetShare::streaming(budget(usize::MAX));
        assert!(call.grow(STREAMING_MAX).is_ok());
        assert!(call.grow(1).is_err());
    }
}
