//! Sends responses on their stream, as far as the client's flow-control window allows.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::Body as _;

use super::framing::framed;
use super::status::GRPC;
use super::tonic_services::TonicResponse;
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::RlsResponse;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

const OK: HeaderValue = HeaderValue::from_static("0");

/// The `grpc-status` with which tonic rejects a message over `grpc.max_message_bytes`. tonic also
/// writes the status message.
const OUT_OF_RANGE: HeaderValue = HeaderValue::from_static("11");

/// The output of `call`, or `None` if the client resets the call before it is ready.
pub(super) async fn unless_reset<T>(
    respond: &mut SendResponse<Bytes>,
    call: impl Future<Output = T>,
) -> Option<T> {
    let mut call = pin!(call);
    poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => respond.poll_reset(context).map(|_| None),
    })
    .await
}

/// Sends the response of a call on the fast path.
///
/// The grant is final once the client's window has room for the whole response. Until then the
/// client may reset the call, for example after its timeout.
pub(super) async fn send_message(
    respond: &mut SendResponse<Bytes>,
    decided: RlsResponse,
) -> Result<(), h2::Error> {
    let RlsResponse { message, grant } = decided;
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, GRPC);
    let mut stream = respond.send_response(head, false)?;
    data(&mut stream, framed(&message)).await?;
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, OK);
    stream.send_trailers(trailers)?;
    if let Some(grant) = grant {
        grant.delivered();
    }
    Ok(())
}

/// Sends a response of tonic, and counts it if tonic rejected the message as too large. The grant
/// becomes final as in [`send_message`].
pub(super) async fn send(
    respond: &mut SendResponse<Bytes>,
    served: TonicResponse,
    metrics: &ServerMetrics,
) -> Result<(), h2::Error> {
    let TonicResponse { response, grant } = served;
    if response.headers().get(GRPC_STATUS) == Some(&OUT_OF_RANGE) {
        metrics.message_too_large.add();
    }
    let (head, body) = response.into_parts();
    let is_all = body.is_end_stream();
    let mut stream = respond.send_response(Response::from_parts(head, ()), is_all)?;
    if !is_all {
        send_body(&mut stream, body).await?;
    }
    if let Some(grant) = grant {
        grant.delivered();
    }
    Ok(())
}

/// Sends `body` to its end. An error means that the client has closed the connection or reset the
/// call, or that the body failed.
async fn send_body<B>(stream: &mut SendStream<Bytes>, body: B) -> Result<(), h2::Error>
where
    B: http_body::Body<Data = Bytes>,
{
    let mut body = pin!(body);
    loop {
        let frame = poll_fn(|context| {
            if let Poll::Ready(reason) = stream.poll_reset(context)? {
                return Poll::Ready(Err(reason.into()));
            }
            body.as_mut().poll_frame(context).map(Ok::<_, h2::Error>)
        });
        let frame = match frame.await? {
            None => return stream.send_data(Bytes::new(), true),
            Some(Ok(frame)) => frame,
            Some(Err(_)) => {
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Err(Reason::INTERNAL_ERROR.into());
            }
        };
        match frame.into_data() {
            Ok(piece) => data(stream, piece).await?,
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    return stream.send_trailers(trailers);
                }
            }
        }
    }
}

/// Sends `data` as the client's window allows. Sent without that check, h2 would buffer it. An
/// error means that the client has closed the connection or reset the call.
async fn data(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = room(stream).await?.min(data.len());
        stream.send_data(data.split_to(room), false)?;
    }
    Ok(())
}

/// Waits until the client's window has room, and returns the number of bytes.
async fn room(stream: &mut SendStream<Bytes>) -> Result<usize, h2::Error> {
    let room = stream.capacity();
    if room > 0 {
        return Ok(room);
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
