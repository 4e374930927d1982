//! The response of a quota stream: headers, messages as the client's window allows, and a status.

use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use weir_http2::{Error, Responder};

use crate::server::grpc::response::{self, GRPC_STATUS, OK, Sent};
use crate::server::grpc::status::{GRPC, GrpcStatus};

const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// Messages are not compressed.
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// The response of a stream.
pub(super) struct QuotaResponse {
    respond: Responder,
    /// Whether the headers were sent.
    is_open: bool,
}

impl QuotaResponse {
    /// A response of which nothing was sent.
    pub(super) fn new(respond: Responder) -> QuotaResponse {
        QuotaResponse { respond, is_open: false }
    }

    /// Sends the headers if they were not sent.
    pub(super) fn begin(&mut self) -> Sent {
        if self.is_open {
            return Ok(());
        }
        self.is_open = true;
        response::send_head(&mut self.respond, &with_headers(HeaderMap::new()), false)
    }

    /// Ready when the headers were sent and the client's window has room, and returns the bytes. Nothing
    /// wakes the caller when the headers are sent, which it does itself. An error means that the client
    /// has reset the stream or closed the connection.
    pub(super) fn poll_writable(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        match self.is_open {
            true => self.respond.poll_room(context),
            false => self.respond.poll_reset(context).map(Err),
        }
    }

    /// Sends `data`, for which the window has room.
    pub(super) fn send_data(&mut self, data: &[u8]) -> Sent {
        self.respond.send_data(data, false)
    }

    /// Ends the response with OK, or with `status`: in trailers, or in the headers if those were not
    /// sent.
    pub(super) fn end(mut self, status: Option<GrpcStatus>) -> Sent {
        let trailers = match status {
            None => HeaderMap::from_iter([(GRPC_STATUS, OK)]),
            Some(status) => status.into_trailers(),
        };
        match self.is_open {
            true => response::send_trailers(&mut self.respond, &trailers),
            false => response::send_head(&mut self.respond, &with_headers(trailers), true),
        }
    }
}

/// The head of a response with `headers` and those of every response.
fn with_headers(mut headers: HeaderMap) -> Response<()> {
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(GRPC_ACCEPT_ENCODING, IDENTITY);
    let mut head = Response::new(());
    *head.headers_mut() = headers;
    head
}
