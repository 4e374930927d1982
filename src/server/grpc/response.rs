//! Sends responses on their stream, as far as the client's flow-control window allows.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::{Body as _, Frame};
use weir_http2::{Error, Reason, Responder};

use super::framing::{framed, framed_length, write_framed};
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

/// The trailers of a response on the fast path.
const OK_TRAILERS: [(&[u8], &[u8]); 1] = [(b"grpc-status", b"0")];

/// The end of a call. An error means that the client has reset the call or closed the connection, or
/// that the response failed.
pub(super) type Sent = Result<(), Error>;

/// The output of `call`, or `None` if the client resets the call before it is ready. `call` is pinned
/// in place: by value, the future of every call would have room for it twice.
pub(super) async fn unless_reset<T>(
    respond: &mut Responder,
    mut call: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => respond.poll_reset(context).map(|_| None),
    })
    .await
}

/// Sends the head of a response, and ends the response if `ends`.
pub(super) fn send_head(respond: &mut Responder, head: &Response<()>, ends: bool) -> Sent {
    respond.send_head(head.status().as_u16(), fields(head.headers()), ends)
}

/// Sends trailers, which end the response.
pub(super) fn send_trailers(respond: &mut Responder, trailers: &HeaderMap) -> Sent {
    respond.send_trailers(fields(trailers))
}

fn fields(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}

/// Sends the status of a call that failed.
pub(super) fn send_status(respond: &mut Responder, status: GrpcStatus) -> Sent {
    send_head(respond, &status.into_response(), true)
}

/// Sends the response of a call on the fast path.
///
/// The lease is final once the client's window has room for the whole response. Until then the
/// client may reset the call, for example after its timeout.
pub(super) async fn send_message(
    respond: &mut Responder,
    decided: RlsResponse,
    memory: &CallMemory<'_>,
) -> Sent {
    let RlsResponse { message, rollback } = decided;
    let length = framed_length(&message);
    if !respond.send_message(length, |out| write_framed(&message, length, out))? {
        let framed = framed(&message);
        // The client may read the response late.
        drop(message);
        let mut head = Response::new(());
        head.headers_mut().insert(CONTENT_TYPE, GRPC);
        data(respond, &mut Some(head), framed, 0, memory).await?;
        respond.send_trailers(OK_TRAILERS)?;
    }
    if let Some(rollback) = rollback {
        rollback.commit();
    }
    Ok(())
}

/// Sends a response of tonic, and counts it if tonic rejected the message as too large. The lease
/// becomes final as in [`send_message`].
pub(super) async fn send(
    respond: &mut Responder,
    served: TonicResponse,
    metrics: &ServerMetrics,
    memory: &CallMemory<'_>,
) -> Sent {
    let TonicResponse { response, rollback, .. } = served;
    if response.headers().get(GRPC_STATUS) == Some(&OUT_OF_RANGE) {
        metrics.message_too_large.add();
    }
    if let Some(mut open) = OpenResponse::start(respond, response)? {
        while let Some(frame) = open.next_frame().await? {
            open.send_frame(frame, 0, memory).await?;
        }
        open.end()?;
    }
    if let Some(rollback) = rollback {
        rollback.commit();
    }
    Ok(())
}

/// A response of tonic. Its headers are sent with its first frame.
pub(super) struct OpenResponse<'r> {
    respond: &'r mut Responder,
    head: Option<Response<()>>,
    body: ResponseBody,
    has_trailers: bool,
}

impl<'r> OpenResponse<'r> {
    /// Starts `response`; `None` if it has headers alone, which are sent.
    pub(super) fn start(
        respond: &'r mut Responder,
        response: Response<ResponseBody>,
    ) -> Result<Option<OpenResponse<'r>>, Error> {
        let (head, body) = response.into_parts();
        let head = Response::from_parts(head, ());
        if body.is_end_stream() {
            send_head(respond, &head, true)?;
            return Ok(None);
        }
        Ok(Some(OpenResponse { respond, head: Some(head), body, has_trailers: false }))
    }

    /// Sends the headers, unless they were sent.
    pub(super) fn send_head(&mut self) -> Sent {
        self.head.take().map_or(Ok(()), |head| send_head(self.respond, &head, false))
    }

    /// The next frame of the body; `None` at its end.
    pub(super) async fn next_frame(&mut self) -> Result<Option<Frame<Bytes>>, Error> {
        if self.has_trailers {
            return Ok(None);
        }
        let OpenResponse { respond, body, .. } = self;
        let frame = poll_fn(|context| {
            if let Poll::Ready(error) = respond.poll_reset(context) {
                return Poll::Ready(Err(error));
            }
            Pin::new(&mut *body).poll_frame(context).map(Ok::<_, Error>)
        });
        match frame.await? {
            None => Ok(None),
            Some(Ok(frame)) => Ok(Some(frame)),
            Some(Err(_)) => {
                respond.send_reset(Reason::INTERNAL_ERROR);
                Err(Reason::INTERNAL_ERROR.into())
            }
        }
    }

    /// Sends `frame`. A call that must wait for the client's window holds its bytes, and `more`.
    pub(super) async fn send_frame(
        &mut self,
        frame: Frame<Bytes>,
        more: usize,
        memory: &CallMemory<'_>,
    ) -> Sent {
        match frame.into_data() {
            Ok(piece) => data(self.respond, &mut self.head, piece, more, memory).await,
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    self.send_head()?;
                    send_trailers(self.respond, &trailers)?;
                    self.has_trailers = true;
                }
                Ok(())
            }
        }
    }

    /// Ends the response, unless its trailers have done so.
    pub(super) fn end(mut self) -> Sent {
        if self.has_trailers {
            return Ok(());
        }
        self.send_head()?;
        self.respond.send_data(&[], true)
    }
}

/// Sends `data` as the client's window allows, and `head` before it. A call for which the budget has no
/// room has not sent `head`. An error means that the client has closed the connection or reset the call, or that
/// the budget has no room for a response that waits.
async fn data(
    respond: &mut Responder,
    head: &mut Option<Response<()>>,
    mut data: Bytes,
    more: usize,
    memory: &CallMemory<'_>,
) -> Sent {
    poll_fn(|context| {
        while !data.is_empty() {
            let room = match respond.poll_room(context) {
                Poll::Ready(room) => room?.min(data.len()),
                Poll::Pending => {
                    if memory.wait_for_client(data.len() + more).is_ok() {
                        if let Some(head) = head.take() {
                            send_head(respond, &head, false)?;
                        }
                        return Poll::Pending;
                    }
                    respond.send_reset(Reason::ENHANCE_YOUR_CALM);
                    return Poll::Ready(Err(Reason::ENHANCE_YOUR_CALM.into()));
                }
            };
            if let Some(head) = head.take() {
                send_head(respond, &head, false)?;
            }
            respond.send_data(&data.split_to(room), false)?;
        }
        Poll::Ready(Ok(()))
    })
    .await
}
