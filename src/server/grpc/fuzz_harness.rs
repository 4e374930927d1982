//! A harness for tests and fuzzing: serves `ShouldRateLimit` calls without a connection.
//!
//! Its users are the fuzz target `request_proto` and `tests/random_inputs`, both by
//! `fuzz/src/requests.rs`, and `src/server/tests/paths_agree.rs`. The first two are other crates, so
//! this module is public, with the feature `fuzz` alone.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::Body;
use percent_encoding::percent_decode_str;
use weir_http2::RequestHead;

use super::budgeted_handler::BudgetedHandler;
use super::framing::framed;
use super::memory::budget::MemoryBudget;
use super::memory::call::CallMemory;
use super::request_body::ReceivedBody;
use super::request_fields::RequestFields;
use super::should_rate_limit::{ServedResponse, ShouldRateLimit};
use super::tonic_services::health::Reporter;
use super::tonic_services::{TonicResponse, TonicServices};
use crate::descriptor::RequestBounds;
use crate::server::config::ServerConfig;
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::{Decide, RlsResponse};

/// The rate-limit service of the gRPC port.
pub struct GrpcService<D>(ShouldRateLimit<D>);

/// The response of a unary call, as its client receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnaryResponse {
    /// The gRPC status code.
    pub status: u16,
    /// The status message; empty for OK.
    pub message: String,
    /// The framed response message; empty if the call failed.
    pub body: Vec<u8>,
}

impl<D: Decide> GrpcService<D> {
    /// A service with default settings, except for `fast_path` and `bounds`.
    pub fn new(decider: Arc<D>, bounds: RequestBounds, fast_path: bool) -> GrpcService<D> {
        let config = ServerConfig::default();
        let max_message_bytes = config.grpc.max_message_bytes;
        let metrics = Arc::<ServerMetrics>::default();
        let budget = Arc::new(MemoryBudget::new(config.grpc.max_client_memory, metrics.clone()));
        let handler = BudgetedHandler { decider, bounds, budget };
        let services = TonicServices::new(handler.clone(), max_message_bytes, Reporter::new().1);
        GrpcService(ShouldRateLimit { handler, services, max_message_bytes, fast_path, metrics })
    }

    /// Serves a call with `headers` and `body`, which may be a framed message or any other bytes.
    pub async fn call(&self, headers: HeaderMap, body: impl Into<Bytes>) -> UnaryResponse {
        let handler = &self.0.handler;
        let mut fields = RequestFields::new(handler.decider.traces());
        for (name, value) in &headers {
            fields.field(name.as_str().as_bytes(), value.as_bytes());
        }
        let head = fields.into_head();
        let memory = CallMemory::alone(&handler.budget);
        match self.0.respond(head, ReceivedBody(body.into()), &memory).await {
            Ok(ServedResponse::FastPath(RlsResponse { message, rollback })) => {
                rollback.into_iter().for_each(|rollback| rollback.commit());
                UnaryResponse { status: 0, message: String::new(), body: framed(&message).to_vec() }
            }
            Ok(ServedResponse::Tonic(served)) => {
                let TonicResponse { response, rollback, .. } = *served;
                let received = receive(response).await;
                rollback.into_iter().for_each(|rollback| rollback.commit());
                received
            }
            Err(status) => {
                let message = status.message;
                UnaryResponse { status: status.code as u16, message, body: Vec::new() }
            }
        }
    }
}

/// Reads a response to its end. The status is in the headers if the response has no message, else
/// in the trailers.
async fn receive<B>(response: Response<B>) -> UnaryResponse
where
    B: Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let (head, body) = response.into_parts();
    let (mut headers, mut bytes, mut body) = (head.headers, Vec::new(), pin!(body));
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        match frame.expect("a response in memory").into_data() {
            Ok(data) => bytes.extend(data),
            Err(other) => headers.extend(other.into_trailers().unwrap_or_default()),
        }
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let status = text("grpc-status").and_then(|number| number.parse().ok()).unwrap_or(2);
    let message = percent_decode_str(text("grpc-message").unwrap_or_default());
    UnaryResponse { status, message: message.decode_utf8_lossy().into_owned(), body: bytes }
}
