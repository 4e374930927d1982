//! Outgoing: answers on their way to their stream, as fast as the client makes room for them.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::Response;
use http_body::Body as _;
use tonic::body::Body;

/// Sends `response` whole. An error means that the client has gone, or reset the call.
pub(super) async fn send(
    respond: &mut SendResponse<Bytes>,
    response: Response<Body>,
) -> Result<(), h2::Error> {
    let (head, body) = response.into_parts();
    let is_all = body.is_end_stream();
    let mut stream = respond.send_response(Response::from_parts(head, ()), is_all)?;
    if is_all {
        return Ok(());
    }
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
                return Ok(());
            }
        };
        match frame.into_data() {
            Ok(piece) => data(&mut stream, piece).await?,
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    return stream.send_trailers(trailers);
                }
            }
        }
    }
}

/// Sends `data` as the client makes room for it, so that it is not kept for one that does not. An error
/// means that the client has gone, or reset the call.
pub(super) async fn data(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = room(stream).await?.min(data.len());
        stream.send_data(data.split_to(room), false)?;
    }
    Ok(())
}

/// How many bytes the client has room for, once there are any.
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
