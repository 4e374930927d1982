//! The body of a call: a stream that is still arriving, or bytes that have been received.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::{Body, Frame, SizeHint};

use super::body_error::BodyError;

/// The body of a call on its HTTP/2 stream. Each returned piece reopens the client's flow-control
/// window.
pub(super) struct RequestBody {
    stream: RecvStream,
    data_ended: bool,
}

impl RequestBody {
    pub(super) fn new(stream: RecvStream) -> RequestBody {
        RequestBody { stream, data_ended: false }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.data_ended {
            match ready!(self.stream.poll_data(context)) {
                Some(Ok(bytes)) => {
                    // This fails only for more bytes than have arrived.
                    let _ = self.stream.flow_control().release_capacity(bytes.len());
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Err(error)) => return Poll::Ready(ended_by(error)),
                None => self.data_ended = true,
            }
        }
        Poll::Ready(match ready!(self.stream.poll_trailers(context)) {
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => ended_by(error),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}

/// A reset with NO_ERROR only ends the body (RFC 9113, section 8.1).
fn ended_by<T>(error: h2::Error) -> Option<Result<T, h2::Error>> {
    (error.reason() != Some(Reason::NO_ERROR)).then_some(Err(error))
}

/// A body that was received completely.
pub(super) struct ReceivedBody(pub(super) Bytes);

impl Body for ReceivedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let bytes = std::mem::take(&mut self.0);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}
