//! The body of a call: a stream that is still arriving, or bytes that have been received.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use weir_http2::Error;

use super::body_error::BodyError;

/// The body of a call on its HTTP/2 stream, without its trailers. Each returned piece reopens the
/// client's flow-control window.
pub(super) struct RequestBody(weir_http2::RequestBody);

impl RequestBody {
    pub(super) fn new(body: weir_http2::RequestBody) -> RequestBody {
        RequestBody(body)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let data = ready!(self.0.poll_data(context));
        Poll::Ready(data.map(|data| {
            let bytes = data?;
            self.0.release(bytes.len());
            Ok(Frame::data(bytes))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end()
    }
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
