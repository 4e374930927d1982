//! The response of a quota stream: headers, messages as the client's window allows, and a status.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use crate::server::grpc::response::{GRPC_STATUS, HEADERS, OK, QueuedBytes};
use crate::server::grpc::status::{GRPC, GrpcStatus};

const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// Messages are not compressed.
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// The response of a stream.
pub(super) struct QuotaResponse {
    respond: SendResponse<Bytes>,
    /// Present after the headers were sent.
    open: Option<SendStream<Bytes>>,
}

impl QuotaResponse {
    /// A response of which nothing was sent.
    pub(super) fn new(respond: SendResponse<Bytes>) -> QuotaResponse {
        QuotaResponse { respond, open: None }
    }

    /// Sends the headers if they were not sent, and returns their bytes.
    pub(super) fn begin(&mut self) -> Result<usize, h2::Error> {
        if self.open.is_some() {
            return Ok(0);
        }
        let mut head = Response::new(());
        head.headers_mut().insert(CONTENT_TYPE, GRPC);
        head.headers_mut().insert(GRPC_ACCEPT_ENCODING, IDENTITY);
        self.open = Some(self.respond.send_response(head, false)?);
        Ok(HEADERS)
    }

    /// Ready when the headers were sent and the client's window has room; of `wanted` bytes, it may have
    /// less. Nothing wakes the caller when the headers are sent, which it does itself.
    pub(super) fn poll_writable(
        &mut self,
        wanted: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, h2::Error>> {
        let Some(open) = &mut self.open else { return Poll::Pending };
        open.reserve_capacity(wanted);
        while open.capacity() == 0 {
            match ready!(open.poll_capacity(context)) {
                Some(more) => drop(more?),
                None => return Poll::Ready(Err(Reason::CANCEL.into())),
            }
        }
        Poll::Ready(Ok(open.capacity()))
    }

    /// Sends `data`, for which the window has room.
    pub(super) fn send_data(&mut self, data: Bytes) -> Result<(), h2::Error> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.send_data(data, false)
    }

    /// Ends the response with OK, or with `status`: in trailers, or in the headers if those were not
    /// sent.
    pub(super) fn end(mut self, status: Option<GrpcStatus>) -> QueuedBytes {
        let mut trailers = match status {
            None => HeaderMap::from_iter([(GRPC_STATUS, OK)]),
            Some(status) => status.into_trailers(),
        };
        match self.open {
            Some(mut open) => open.send_trailers(trailers)?,
            None => {
                trailers.insert(CONTENT_TYPE, GRPC);
                trailers.insert(GRPC_ACCEPT_ENCODING, IDENTITY);
                let mut head = Response::new(());
                *head.headers_mut() = trailers;
                self.respond.send_response(head, true)?;
            }
        }
        Ok(HEADERS)
    }
}
