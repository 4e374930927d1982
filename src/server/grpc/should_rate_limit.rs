//! Responds to calls of `RateLimitService/ShouldRateLimit`: on the fast path, or through tonic.
//!
//! Nearly all calls take the fast path: they have one uncompressed message within the size limit.
//! When tonic served all calls (stream task, router, boxed bodies), hyper and tonic took 23 600 of
//! the 46 000 instructions per call, and the decision 6 000 (callgrind, commit fbd7050).
//! `docs/design/grpc-server.md` explains the trade-off.

use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;

use super::body_error::BodyError;
use super::budgeted_handler::BudgetedHandler;
use super::call_head::CallHead;
use super::framing::{self, fast_path_message};
use super::memory::call::CallMemory;
use super::status::GrpcStatus;
use super::tonic_services::{TonicResponse, TonicServices};
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::{Decide, RlsResponse};

/// The request path of `ShouldRateLimit`.
pub(in crate::server) const PATH: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The service of `ShouldRateLimit`. Each worker has one.
pub(super) struct ShouldRateLimit<D> {
    pub(super) handler: BudgetedHandler<D>,
    pub(super) services: TonicServices,
    pub(super) max_message_bytes: usize,
    /// `grpc.fast_path`. If false, tonic serves every call of a known method.
    pub(super) fast_path: bool,
    pub(super) metrics: Arc<ServerMetrics>,
}

/// The response to a call, by the path that the call took.
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and boxing costs")]
pub(super) enum ServedResponse {
    FastPath(RlsResponse),
    Tonic(Box<TonicResponse>),
}

impl<D: Decide> ShouldRateLimit<D> {
    /// The response to one call. The message is read once. A call that cannot take the fast path
    /// then goes to tonic unchanged, so tonic alone decides how malformed calls are rejected.
    ///
    /// `memory` counts what the call holds while it waits. Dropping the future at any time gives
    /// back what the decision has taken.
    pub(super) async fn respond<B>(
        &self,
        head: CallHead,
        body: B,
        memory: &CallMemory<'_>,
    ) -> Result<ServedResponse, GrpcStatus>
    where
        B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
    {
        let (handler, max) = (&self.handler, self.max_message_bytes);
        let framed = framing::read_unary(body, max, (head.bytes(), memory)).await?;
        if self.fast_path
            && !head.is_compressed()
            && let Some(message) = fast_path_message(&framed, max)
        {
            return handler.handle(&head, message, memory).await.map(ServedResponse::FastPath);
        }
        // Boxed because it is large: unboxed, the future of the fast path would be as large.
        let call = Box::pin(self.services.call_received(PATH, head, framed, memory));
        Ok(ServedResponse::Tonic(Box::new(call.await?)))
    }
}
