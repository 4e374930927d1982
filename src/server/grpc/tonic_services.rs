//! The adapter to tonic: mounts the rate-limit service, health and reflection, and serves their
//! calls.
//!
//! Outside this module, the server does not use tonic. tonic writes the status and the text of the
//! calls that it rejects: a message over `grpc.max_message_bytes` (OUT_OF_RANGE, "decoded message
//! length too large"), a truncated message, an unknown flag, encoding or method. `response.rs`
//! counts the calls with OUT_OF_RANGE.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tonic::Status;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder};
use tonic::service::Routes;
use tonic_prost::ProstEncoder;

use super::body_error::BodyError;
use super::budgeted_handler::BudgetedHandler;
use super::call_head::CallHead;
use super::memory::address::AddressMemory;
use super::memory::call::CallMemory;
use super::request_body::ReceivedBody;
use super::status::{GrpcCode, GrpcStatus};
use crate::lease_rollback::LeaseRollback;
use crate::proto::RateLimitResponse;
use crate::server::rls::handler::{Decide, RlsResponse};
use generated::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};

pub(in crate::server) mod health;
mod reflection;

use health::HealthService;

/// The server trait that tonic generates from `proto/`. Its request type is the bytes of the
/// message.
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/server/envoy.service.ratelimit.v3.rs"));
}

/// The body of a response of tonic.
pub(super) type ResponseBody = tonic::body::Body;

/// A response of tonic, and the rollback to commit when the response is delivered.
pub(super) struct TonicResponse {
    pub(super) response: Response<ResponseBody>,
    pub(super) rollback: Option<LeaseRollback>,
    /// The bytes of the message that was decided, without compression.
    pub(super) message_bytes: Option<usize>,
}

/// The bytes of a message, in the extensions of tonic's response.
#[derive(Clone, Copy)]
struct MessageBytes(usize);

/// All services of the gRPC port, as tonic serves them.
#[derive(Clone)]
pub(super) struct TonicServices(TowerToHyperService<Routes>);

impl TonicServices {
    /// Mounts all services. Messages to `handler` may have at most `max_message_bytes`, before and
    /// after decompression.
    pub(super) fn new<D: Decide>(
        handler: BudgetedHandler<D>,
        max_message_bytes: usize,
        health: HealthService,
    ) -> TonicServices {
        let rate_limit = RateLimitServiceServer::new(handler)
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(max_message_bytes);
        let routes = reflection::add_to(Routes::new(rate_limit).add_service(health));
        TonicServices(TowerToHyperService::new(routes.prepare()))
    }

    /// Serves one call.
    pub(super) async fn call<B>(&self, request: Request<B>) -> TonicResponse
    where
        B: Body<Data = Bytes, Error = BodyError> + Send + Unpin + 'static,
    {
        let Ok(mut response) = self.0.call(request.map(TonicBody)).await;
        let rollback = response.extensions_mut().remove::<PendingRollback>();
        let message_bytes = response.extensions_mut().remove::<MessageBytes>();
        TonicResponse {
            response,
            rollback: rollback.and_then(PendingRollback::take),
            message_bytes: message_bytes.map(|MessageBytes(bytes)| bytes),
        }
    }

    /// Serves a call whose body was received completely. While the response is pending, `memory`
    /// holds the body.
    pub(super) async fn call_received(
        &self,
        path: &'static str,
        head: CallHead,
        framed: Bytes,
        memory: &CallMemory<'_>,
    ) -> Result<TonicResponse, GrpcStatus> {
        let bytes = framed.len() + head.bytes();
        let mut request = head.into_request(path, ReceivedBody(framed));
        request.extensions_mut().insert(Arc::clone(memory.address()));
        let call = pin!(self.call(request));
        memory.wait_for_decision(|| bytes, call).await
    }
}

#[tonic::async_trait]
impl<D: Decide> RateLimitService for BudgetedHandler<D> {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<Bytes>,
    ) -> Result<tonic::Response<RateLimitResponse>, Status> {
        let head = request.extensions().get::<CallHead>().cloned().unwrap_or_default();
        let address = request.extensions().get::<Arc<AddressMemory>>();
        let address = Arc::clone(address.unwrap_or(self.budget.no_address()));
        // A copy: tonic's message is a part of a buffer that may be twice as large.
        let message = Bytes::copy_from_slice(request.get_ref());
        drop(request);
        // The compressed bytes count already. The inflated message may be 1000 times larger.
        let memory = CallMemory::of_address(&self.budget, &address);
        let bytes = MessageBytes(message.len());
        let RlsResponse { message, rollback } = self.handle(&head, &message, &memory).await?;
        let mut response = tonic::Response::new(message);
        response.extensions_mut().insert(bytes);
        if let Some(rollback) = rollback {
            response.extensions_mut().insert(PendingRollback::new(rollback));
        }
        Ok(response)
    }
}

/// A rollback in the extensions of tonic's response, which must be `Clone`. If tonic drops the
/// response, the rollback is dropped too and gives back what the request took.
#[derive(Clone)]
struct PendingRollback(Arc<Mutex<Option<LeaseRollback>>>);

impl PendingRollback {
    fn new(rollback: LeaseRollback) -> PendingRollback {
        PendingRollback(Arc::new(Mutex::new(Some(rollback))))
    }

    fn take(self) -> Option<LeaseRollback> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The codec of the generated service. It does not decode requests: the handler does so on both
/// paths, so both reject the same messages with the same text.
#[derive(Debug, Default)]
pub(in crate::server) struct RateLimitCodec;

impl Codec for RateLimitCodec {
    type Encode = RateLimitResponse;
    type Decode = Bytes;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = BytesDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> BytesDecoder {
        BytesDecoder
    }
}

/// A decoder that returns the bytes of a message.
#[derive(Debug)]
pub(in crate::server) struct BytesDecoder;

impl Decoder for BytesDecoder {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

/// A request body with its errors converted to tonic's `Status`.
struct TonicBody<B>(B);

impl<B: Body<Data = Bytes, Error = BodyError> + Unpin> Body for TonicBody<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.0).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map_err(|error| GrpcStatus::from(error).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl From<GrpcStatus> for Status {
    fn from(status: GrpcStatus) -> Status {
        let code = match status.code {
            GrpcCode::InvalidArgument => tonic::Code::InvalidArgument,
            GrpcCode::ResourceExhausted => tonic::Code::ResourceExhausted,
            GrpcCode::Unimplemented => tonic::Code::Unimplemented,
            GrpcCode::Internal => tonic::Code::Internal,
        };
        Status::new(code, status.message)
    }
}
