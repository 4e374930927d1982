//! Serves calls of `RateLimitService/ShouldRateLimit`: on the fast path, which is directly on their
//! HTTP/2 stream, or through tonic.
//!
//! Nearly all calls take the fast path: they have one uncompressed message within the size limit.
//! When tonic served all calls (stream task, router, boxed bodies), hyper and tonic took 23 600 of
//! the 46 000 instructions per call, and the decision 6 000 (callgrind, commit fbd7050).
//! `docs/design/grpc-server.md` explains the trade-off.

use std::sync::Arc;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;
use http::request::Parts;
use http_body::Body;

use super::body_error::BodyError;
use super::framing::{self, fast_path_message};
use super::memory_budget::BudgetedBody;
use super::rate_limit_handler::RateLimitHandler;
use super::request_body::{ReceivedBody, RequestBody};
use super::response::{self, unless_reset};
use super::status::GrpcStatus;
use super::tonic_services::{TonicResponse, TonicServices, is_compressed};
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::{Decide, RlsResponse};

/// The request path of `ShouldRateLimit`.
pub(in crate::server) const PATH: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The service of `ShouldRateLimit`. Each worker has one.
pub(super) struct ShouldRateLimit<D> {
    pub(super) handler: RateLimitHandler<D>,
    pub(super) services: TonicServices,
    pub(super) max_message_bytes: usize,
    /// `grpc.fast_path`. If false, tonic serves every call.
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
    /// Serves one call. Dropping the future at any time gives back what the decision has taken.
    pub(super) async fn call(
        self: Arc<Self>,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) {
        let (mut head, body) = request.into_parts();
        let served = self.respond(&mut head, RequestBody::new(body));
        let Some(served) = unless_reset(&mut respond, served).await else { return };
        // An error here means that the client has reset the call or closed the connection.
        let _ = match served {
            Ok(ServedResponse::FastPath(decided)) => {
                response::send_message(&mut respond, decided).await
            }
            // Boxed, like the call below: the future of every call has room for the largest part.
            Ok(ServedResponse::Tonic(served)) => {
                Box::pin(response::send(&mut respond, *served, &self.metrics)).await
            }
            Err(status) => respond.send_response(status.into_response(), true).map(drop),
        };
    }

    /// The response to one call. The message is read once. A call that cannot take the fast path
    /// then goes to tonic unchanged, so tonic alone decides how malformed calls are rejected.
    ///
    /// `head` is borrowed, because only tonic takes it. By value, the future of every call would
    /// hold its 224 bytes twice.
    pub(super) async fn respond<B>(
        &self,
        head: &mut Parts,
        body: B,
    ) -> Result<ServedResponse, GrpcStatus>
    where
        B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
    {
        let fast_path = self.fast_path && !is_compressed(&head.headers);
        // The request borrows the bytes of its message, so they count in the budget until it is
        // decided.
        let mut body = BudgetedBody::unary(body, &*self.handler.budget);
        let framed = framing::read_unary(&mut body, self.max_message_bytes).await?;
        if fast_path && let Some(message) = fast_path_message(&framed, self.max_message_bytes) {
            return self.handler.handle(&head.headers, message).await.map(ServedResponse::FastPath);
        }
        let budget = Arc::clone(&self.handler.budget);
        let body = ReceivedBody::new(framed, body.into_share().shared(budget));
        // Boxed because it is large: unboxed, the future of the fast path would be as large.
        let head = std::mem::replace(head, Request::new(()).into_parts().0);
        let call = Box::pin(self.services.call(Request::from_parts(head, body)));
        Ok(ServedResponse::Tonic(Box::new(call.await)))
    }
}
