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
            Ok(data) => {
                room(&mut stream).await?;
                stream.send_data(data, false)?;
            }
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    return stream.send_trailers(trailers);
                }
            }
        }
    }
}

/// Waits until the client has room for more of the answer. An error means that it has gone, or reset
/// the call.
pub(super) async fn room(stream: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    // What a piece needs beyond one byte is asked for when it is sent.
    stream.reserve_capacity(1);
    if stream.capacity() > 0 {
        return Ok(());
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
        Poll::Ready(Ok(()))
    })
    .await
}
