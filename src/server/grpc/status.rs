//! The status of a gRPC call that failed: its code and its message.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::server::rls::handler::HandleError;

/// The content type of every response.
pub(super) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The ASCII characters that a `grpc-message` encodes.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// The gRPC status codes that weir itself sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum GrpcCode {
    /// The message is not a valid request.
    InvalidArgument = 3,
    /// The clients of the server hold too much memory.
    ResourceExhausted = 8,
    /// The method is unknown, or the call does not have exactly one message.
    Unimplemented = 12,
    /// A bug in weir.
    Internal = 13,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(in crate::server) struct GrpcStatus {
    pub(in crate::server) code: GrpcCode,
    pub(in crate::server) message: String,
}

impl GrpcStatus {
    pub(super) fn new(code: GrpcCode, message: impl Into<String>) -> GrpcStatus {
        GrpcStatus { code, message: message.into() }
    }

    /// A response without a message: headers only, with the status in them ("Trailers-Only").
    pub(super) fn into_response(self) -> Response<()> {
        let mut response = Response::new(());
        *response.headers_mut() = self.into_trailers();
        response.headers_mut().insert(CONTENT_TYPE, GRPC);
        response
    }

    /// The trailers of a response that has begun.
    pub(super) fn into_trailers(self) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(self.code as u16));
        if let Ok(message) = HeaderValue::try_from(percent_encoded(&self.message)) {
            trailers.insert("grpc-message", message);
        }
        trailers
    }
}

/// Encodes `text` as a `grpc-message`: printable ASCII except `%` unchanged, every other byte as
/// `%XX` (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).
fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

impl From<HandleError> for GrpcStatus {
    fn from(error: HandleError) -> GrpcStatus {
        let code = match &error {
            HandleError::Decode(_) | HandleError::Request(_) => GrpcCode::InvalidArgument,
            HandleError::Panicked => GrpcCode::Internal,
        };
        GrpcStatus::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        for (text, encoded) in [
            ("key must not be empty", "key must not be empty"),
            ("100%", "100%25"),
            ("\u{e9}\n", "%C3%A9%0A"),
            ("", ""),
        ] {
            assert_eq!(percent_encoded(text), encoded);
        }
    }

    #[test]
    fn a_response_has_the_number_of_its_code() {
        let response = GrpcStatus::new(GrpcCode::Unimplemented, "no").into_response();
        assert_eq!(response.headers()["grpc-status"], "12");
        assert_eq!(response.headers()["grpc-message"], "no");
        assert_eq!(response.headers()["content-type"], "application/grpc");
    }
}
