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

use super::counters::Counters;
use super::decide::{Answer, Decide, Refusal, answer, caller};
use super::incoming::Incoming;
use super::upload::{Upload, Uploads};
use super::{message, outgoing, timeout};

/// The path of its calls.
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What its calls need; one per core.
pub(super) struct Rls<D> {
    pub(super) decider: Arc<D>,
    pub(super) bounds: Bounds,
    pub(super) max_message_bytes: usize,
    pub(super) uploads: Arc<Uploads>,
    pub(super) counters: Arc<Counters>,
}

impl<D: Decide> Rls<D> {
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

    async fn answer(&self, headers: &HeaderMap, body: RecvStream) -> Result<Answer, Status> {
        refuse_compression(headers)?;
        // The request borrows the bytes of its message, so they count until it is decided.
        let mut upload = Upload::passing(Incoming::new(body), &*self.uploads);
        let content =
            message::only(&mut upload, self.max_message_bytes).await.inspect_err(|status| {
                if status.code() == Code::OutOfRange {
                    self.counters.message_too_large.add();
                }
            })?;
        let caller = caller(&*self.decider, headers);
        Ok(answer(&*self.decider, &self.bounds, &content, timeout::of(headers), caller).await?)
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
async fn send(respond: &mut SendResponse<Bytes>, answer: Answer) -> Result<(), h2::Error> {
    let Answer { response, grant } = answer;
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, GRPC);
    let mut stream = respond.send_response(head, false)?;
    outgoing::data(&mut stream, message::framed(&response)).await?;
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

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        match &refusal {
            Refusal::Unreadable(_) | Refusal::Request(_) => {
                Status::invalid_argument(refusal.to_string())
            }
            Refusal::Panicked => Status::internal(refusal.to_string()),
        }
    }
}
