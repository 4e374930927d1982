//! gRPC: `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`, from its stream to its answer.
//!
//! Nearly all calls are of this method, so it is served on the stream itself: what a general service
//! goes through (routers, boxed bodies, a task each) costs more than most decisions do.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use tonic::{Code, Status};

use crate::descriptor::Bounds;

use super::memory_budget::{BudgetedBody, MemoryBudget};
use super::request_body::RequestBody;
use super::{framing, response, timeout};
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::{Decide, HandleError, RlsResponse, caller, handle};

/// The path of its calls.
pub(in crate::server) const PATH: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What its calls need; one per core.
pub(super) struct ShouldRateLimit<D> {
    pub(super) decider: Arc<D>,
    pub(super) bounds: Bounds,
    pub(super) max_message_bytes: usize,
    pub(super) budget: Arc<MemoryBudget>,
    pub(super) metrics: Arc<ServerMetrics>,
}

impl<D: Decide> ShouldRateLimit<D> {
    /// Answers one call. Dropped at any time, it gives back what it may have taken.
    pub(super) async fn call(
        self: Arc<Self>,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) {
        let (head, body) = request.into_parts();
        let Some(answer) = unless_reset(&mut respond, self.answer(&head.headers, body)).await
        else {
            return;
        };
        // An error has no one to be told to: the client has gone.
        let _ = match answer {
            Ok(answer) => send(&mut respond, answer).await,
            Err(status) => respond.send_response(refused(status), true).map(drop),
        };
    }

    async fn answer(&self, headers: &HeaderMap, body: RecvStream) -> Result<RlsResponse, Status> {
        refuse_compression(headers)?;
        // The request borrows the bytes of its message, so they count until it is decided.
        let mut upload = BudgetedBody::unary(RequestBody::new(body), &*self.budget);
        let content = framing::read_unary(&mut upload, self.max_message_bytes).await.inspect_err(
            |status| {
                if status.code() == Code::OutOfRange {
                    self.metrics.message_too_large.add();
                }
            },
        )?;
        let caller = caller(&*self.decider, headers);
        Ok(handle(&*self.decider, &self.bounds, &content, timeout::of(headers), caller).await?)
    }
}

/// The outcome of `answer`, or nothing if the client has reset the call before there was one.
pub(super) async fn unless_reset<T>(
    respond: &mut SendResponse<Bytes>,
    answer: impl Future<Output = T>,
) -> Option<T> {
    let mut answer = pin!(answer);
    poll_fn(|context| match answer.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => respond.poll_reset(context).map(|_| None),
    })
    .await
}

/// What the answer grants becomes the caller's once the client has room for all of it: until then it may
/// reset the call, and does where a proxy has timed out.
async fn send(respond: &mut SendResponse<Bytes>, answer: RlsResponse) -> Result<(), h2::Error> {
    let RlsResponse { response, grant } = answer;
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, GRPC);
    let mut stream = respond.send_response(head, false)?;
    response::data(&mut stream, framing::framed(&response)).await?;
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(Status::GRPC_STATUS, OK);
    stream.send_trailers(trailers)?;
    if let Some(grant) = grant {
        grant.delivered();
    }
    Ok(())
}

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const OK: HeaderValue = HeaderValue::from_static("0");

/// The whole answer where there is no message.
fn refused(status: Status) -> Response<()> {
    status.into_http()
}

/// A message is read as it is; the client is told which forms there are.
fn refuse_compression(headers: &HeaderMap) -> Result<(), Status> {
    let Some(encoding) = headers.get("grpc-encoding").filter(|encoding| *encoding != "identity")
    else {
        return Ok(());
    };
    let encoding = encoding.to_str().unwrap_or("this way");
    let reason = format!("compressed by {encoding}, which is not supported: send it as it is");
    let mut status = Status::unimplemented(reason);
    let accepted = tonic::metadata::MetadataValue::from_static("identity");
    status.metadata_mut().insert("grpc-accept-encoding", accepted);
    Err(status)
}

impl From<HandleError> for Status {
    fn from(error: HandleError) -> Status {
        match &error {
            HandleError::DecodeError(_) | HandleError::Request(_) => {
                Status::invalid_argument(error.to_string())
            }
            HandleError::Panicked => Status::internal(error.to_string()),
        }
    }
}
