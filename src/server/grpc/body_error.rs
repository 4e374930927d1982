//! The reason why the body of a call ended early.

use super::status::{GrpcCode, GrpcStatus};

/// Why a body ended early.
#[derive(Debug)]
pub(super) enum BodyError {
    /// The stream was reset, or its connection has ended.
    Stream(weir_http2::Error),
    /// The server rejects more bytes.
    Refused(GrpcStatus),
}

impl From<weir_http2::Error> for BodyError {
    fn from(error: weir_http2::Error) -> BodyError {
        BodyError::Stream(error)
    }
}

impl From<BodyError> for GrpcStatus {
    fn from(error: BodyError) -> GrpcStatus {
        match error {
            // This status is never sent, because its stream has ended.
            BodyError::Stream(error) => GrpcStatus::new(GrpcCode::Internal, error.to_string()),
            BodyError::Refused(status) => status,
        }
    }
}
