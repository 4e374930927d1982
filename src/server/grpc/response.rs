//! Sends responses on their stream, as far as the client's flow-control window allows.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::{Body as _, Frame};

use super::framing::framed;
use super::memory::call::CallMemory;
use super::status::{GRPC, GrpcStatus};
use super::tonic_services::{ResponseBody, TonicResponse};
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::RlsResponse;

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

pub(super) const OK: HeaderValue = HeaderValue::from_static("0");

/// The `grpc-status` with which tonic rejects a message over `grpc.max_message_bytes`. tonic also
/// writes the status message.
const OUT_OF_RANGE: HeaderValue = HeaderValue::from_static("11");

/// Bytes of the headers and trailers of a response in h2.
pub(super) const HEADERS: usize = 1024;

/// The bytes that h2 holds for a response until the connection has written them. An error means that
/// the client has reset the call or closed the connection, or that the response failed.
pub(super) type QueuedBytes = Result<usize, h2::Error>;

/// The output of `call`, or `None` if the client resets the call before it is ready. `call` is pinned
/// in place: by value, the future of every call would have room for it twice.
pub(super) async fn unless_reset<T>(
    respond: &mut SendResponse<Bytes>,
    mut call: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => respond.poll_reset(context).map(|_| None),
    })
    .await
}

/// Sends a response without a body.
pub(super) fn send_head(respond: &mut SendResponse<Bytes>, head: Response<()>) -> QueuedBytes {
    respond.send_response(head, true).map(|_| HEADERS)
}

/// Sends the status of a call that failed.
pub(super) fn send_status(respond: &mut SendResponse<Bytes>, status: GrpcStatus) -> QueuedBytes {
    send_head(respond, status.into_response())
}

/// Sends the response of a call on the fast path.
///
/// The lease is final once the client's window has room for the whole response. Until then the
/// client may reset the call, for example after its timeout.
pub(super) async fn send_message(
    respond: &mut SendResponse<Bytes>,
    decided: RlsResponse,
    memory: &CallMemory<'_>,
) -> QueuedBytes {
    let RlsResponse { message, rollback } = decided;
    let framed = framed(&message);
    // The client may read the response late.
    drop(message);
    let bytes = HEADERS + framed.len();
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, GRPC);
    let mut stream = respond.send_response(head, false)?;
    data(&mut stream, framed, 0, memory).await?;
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, OK);
    stream.send_trailers(trailers)?;
    if let Some(rollback) = rollback {
        rollback.commit();
    }
    Ok(bytes)
}

/// Sends a response of tonic, and counts it if tonic rejected the message as too large. The lease
/// becomes final as in [`send_message`].
pub(super) async fn send(
    respond: &mut SendResponse<Bytes>,
    served: TonicResponse,
    metrics: &ServerMetrics,
    memory: &CallMemory<'_>,
) -> QueuedBytes {
    let TonicResponse { response, rollback, .. } = served;
    if response.headers().get(GRPC_STATUS) == Some(&OUT_OF_RANGE) {
        metrics.message_too_large.add();
    }
    let mut bytes = HEADERS;
    if let Some(mut open) = OpenResponse::start(respond, response)? {
        while let Some(frame) = open.next_frame().await? {
            bytes += open.send_frame(frame, 0, memory).await?;
        }
        open.end()?;
    }
    if let Some(rollback) = rollback {
        rollback.commit();
    }
    Ok(bytes)
}

/// A response of tonic whose headers were sent.
pub(super) struct OpenResponse {
    stream: SendStream<Bytes>,
    body: ResponseBody,
    has_trailers: bool,
}

impl OpenResponse {
    /// Sends the headers of `response`; `None` if they are all.
    pub(super) fn start(
        respond: &mut SendResponse<Bytes>,
        response: Response<ResponseBody>,
    ) -> Result<Option<OpenResponse>, h2::Error> {
        let (head, body) = response.into_parts();
        let is_all = body.is_end_stream();
        let stream = respond.send_response(Response::from_parts(head, ()), is_all)?;
        Ok((!is_all).then_some(OpenResponse { stream, body, has_trailers: false }))
    }

    /// The next frame of the body; `None` at its end.
    pub(super) async fn next_frame(&mut self) -> Result<Option<Frame<Bytes>>, h2::Error> {
        if self.has_trailers {
            return Ok(None);
        }
        let OpenResponse { stream, body, .. } = self;
        let frame = poll_fn(|context| {
            if let Poll::Ready(reason) = stream.poll_reset(context)? {
                return Poll::Ready(Err(reason.into()));
            }
            Pin::new(&mut *body).poll_frame(context).map(Ok::<_, h2::Error>)
        });
        match frame.await? {
            None => Ok(None),
            Some(Ok(frame)) => Ok(Some(frame)),
            Some(Err(_)) => {
                stream.send_reset(Reason::INTERNAL_ERROR);
                Err(Reason::INTERNAL_ERROR.into())
            }
        }
    }

    /// Sends `frame`, and returns its bytes. A call that must wait for the client's window holds
    /// these, and `more`.
    pub(super) async fn send_frame(
        &mut self,
        frame: Frame<Bytes>,
        more: usize,
        memory: &CallMemory<'_>,
    ) -> QueuedBytes {
        match frame.into_data() {
            Ok(piece) => {
                let bytes = piece.len();
                data(&mut self.stream, piece, more, memory).await?;
                Ok(bytes)
            }
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    self.stream.send_trailers(trailers)?;
                    self.has_trailers = true;
                }
                Ok(0)
            }
        }
    }

    /// Ends the response, unless its trailers have done so.
    pub(super) fn end(mut self) -> Result<(), h2::Error> {
        if self.has_trailers { Ok(()) } else { self.stream.send_data(Bytes::new(), true) }
    }
}

/// Sends `data` as the client's window allows. Sent without that check, h2 would buffer it. An
/// error means that the client has closed the connection or reset the call, or that the budget has
/// no room for a response that waits.
async fn data(
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
    more: usize,
    memory: &CallMemory<'_>,
) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = room(stream, data.len() + more, memory).await?.min(data.len());
        stream.send_data(data.split_to(room), false)?;
    }
    Ok(())
}

/// Waits until the client's window has room, and returns the number of bytes. While it waits, the
/// call holds `bytes`.
async fn room(
    stream: &mut SendStream<Bytes>,
    bytes: usize,
    memory: &CallMemory<'_>,
) -> Result<usize, h2::Error> {
    let room = stream.capacity();
    if room > 0 {
        return Ok(room);
    }
    if memory.wait_for_client(bytes).is_err() {
        stream.send_reset(Reason::ENHANCE_YOUR_CALM);
        return Err(Reason::ENHANCE_YOUR_CALM.into());
    }
    poll_fn(|context| {
        if let Poll::Ready(reason) = stream.poll_reset(context)? {
            return Poll::Ready(Err(reason.into()));
        }
        while stream.capacity() == 0 {
            match ready!(stream.poll_capacity(context)) {
                Some(more) => drop(more?),
                None => return Poll::Ready(Err(Reason::CANCEL.into())),
            }
        }
        Poll::Ready(Ok(stream.capacity()))
    })
    .await
}
