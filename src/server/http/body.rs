//! Errors of request bodies: over the maximum, or not received to the end.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;

/// A request body, or why it was not read. Its maximum is the `DefaultBodyLimit` of the route.
pub(super) type ReadBody = Result<Bytes, BytesRejection>;

/// The status and the reason of a body that was not read. `max` is the maximum in bytes, and `fix`
/// what to do about a larger body.
pub(super) fn refused(error: &BytesRejection, max: usize, fix: &str) -> (StatusCode, String) {
    let status = error.status();
    let reason = if status == StatusCode::PAYLOAD_TOO_LARGE {
        format!("the body is larger than {max} bytes; {fix}")
    } else {
        "the body ended early or is malformed; send it again".to_owned()
    };
    (status, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    use axum::body::Body;
    use axum::extract::{FromRequest, Request};

    /// The maximum of a route without a `DefaultBodyLimit`.
    const MAX: usize = 2 << 20;

    async fn refused_body(body: Body) -> (StatusCode, String) {
        let read: ReadBody = Bytes::from_request(Request::new(body), &()).await;
        refused(&read.unwrap_err(), MAX, "send less")
    }

    #[tokio::test]
    async fn a_broken_body_is_not_reported_as_too_large() {
        let (status, reason) = refused_body(Body::from(vec![b' '; MAX + 1])).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(reason, "the body is larger than 2097152 bytes; send less");
        let broken = tokio_stream::once(Err::<Bytes, _>(io::Error::other("reset")));
        let (status, reason) = refused_body(Body::from_stream(broken)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(reason.contains("ended early"), "{reason}");
    }
}
