//! The decision of one `ShouldRateLimit` message, shared by the fast path and tonic.

use std::sync::Arc;

use http::HeaderMap;

use super::memory_budget::MemoryBudget;
use super::status::GrpcStatus;
use super::timeout;
use crate::descriptor::Bounds;
use crate::server::rls::handler::{Decide, RlsResponse, handle, trace_context};

/// Decides the message of a call, on the fast path and on tonic's.
pub(in crate::server) struct RateLimitHandler<D> {
    pub(in crate::server) decider: Arc<D>,
    pub(in crate::server) bounds: Bounds,
    pub(in crate::server) budget: Arc<MemoryBudget>,
}

impl<D> Clone for RateLimitHandler<D> {
    fn clone(&self) -> RateLimitHandler<D> {
        RateLimitHandler {
            decider: Arc::clone(&self.decider),
            bounds: self.bounds,
            budget: Arc::clone(&self.budget),
        }
    }
}

impl<D: Decide> RateLimitHandler<D> {
    /// Decides `message`. Reads `grpc-timeout` and the caller's trace context from `headers`.
    pub(super) async fn handle(
        &self,
        headers: &HeaderMap,
        message: &[u8],
    ) -> Result<RlsResponse, GrpcStatus> {
        let trace = trace_context(&*self.decider, headers);
        Ok(handle(&*self.decider, &self.bounds, message, timeout::of(headers), trace).await?)
    }
}
