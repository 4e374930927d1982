//! RequestBody: the body of a call as it arrives on its stream, in the form that services read.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::{Body, Frame};

/// A call's body. The client gets room for more as soon as a piece has been handed out.
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
                    // Fails only for more than has come.
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

/// A client that resets without an error has only said that no more will come
/// (RFC 9113, section 8.1).
fn ended_by<T>(error: h2::Error) -> Option<Result<T, h2::Error>> {
    (error.reason() != Some(Reason::NO_ERROR)).then_some(Err(error))
}
