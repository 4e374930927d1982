//! Reads request bodies, within a maximum for each and with permits for the large ones.

use std::future::poll_fn;
use std::pin::Pin;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use axum::response::Response;

use super::permits::{self, Permit, Permits, SMALL_MAX};
use crate::client_address::ClientAddress;

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyReadError {
    /// The body is larger than its maximum.
    TooLarge,
    /// The body ended early or is malformed.
    Broken,
    /// The body is large, and all permits are taken.
    Busy,
}

/// The whole `body`, of at most `max` bytes. A body over [`SMALL_MAX`] comes with one of `permits`, as
/// a client of `address`.
pub(super) async fn read(
    mut body: Body,
    max: usize,
    permits: &Permits,
    address: Option<ClientAddress>,
) -> Result<(Vec<u8>, Option<Permit>), BodyReadError> {
    let (mut whole, mut permit): (Vec<u8>, Option<Permit>) = (Vec::new(), None);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| BodyReadError::Broken)?;
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else { continue };
        let bytes = whole.len() + data.len();
        if bytes > max {
            return Err(BodyReadError::TooLarge);
        }
        if bytes > SMALL_MAX && permit.is_none() {
            permit = Some(permits.try_acquire(address).ok_or(BodyReadError::Busy)?);
            // Growth by doubling could exceed the maximum.
            whole.reserve_exact(max - whole.len());
        }
        // A copy: the piece, which may be one byte, keeps the whole read buffer in which it arrived.
        whole.extend_from_slice(&data);
    }
    Ok((whole, permit))
}

/// The response to a body that was not read. `max` is the maximum in bytes, `fix` what to do about a
/// larger body, and `response` writes a status and a reason.
pub(super) fn refused(
    error: BodyReadError,
    max: usize,
    fix: &str,
    response: impl FnOnce(StatusCode, String) -> Response,
) -> Response {
    match error {
        BodyReadError::TooLarge => response(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is larger than {max} bytes; {fix}"),
        ),
        BodyReadError::Broken => response(
            StatusCode::BAD_REQUEST,
            "the body ended early or is malformed; send it again".to_owned(),
        ),
        BodyReadError::Busy => permits::busy(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Arc;

    use axum::body::Bytes;

    /// The maximum of a body.
    const MAX: usize = 2 * SMALL_MAX;

    fn permits(number: usize) -> Permits {
        Permits::new(number, Arc::default())
    }

    /// The body, which has its permit.
    async fn read_all(body: Body, max: usize, permits: &Permits) -> Result<Bytes, BodyReadError> {
        let (whole, permit) = read(body, max, permits, None).await?;
        Ok(match permit {
            Some(permit) => permit.hold(whole),
            None => whole.into(),
        })
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_maximum() {
        let permits = permits(1);
        for bytes in [0, 1, SMALL_MAX, SMALL_MAX + 1, MAX] {
            let pieces = vec![b'x'; bytes];
            let pieces = pieces.chunks(1000).map(Bytes::copy_from_slice).map(Ok::<_, io::Error>);
            let pieces: Vec<_> = pieces.collect();
            let body = Body::from_stream(tokio_stream::iter(pieces));
            let whole = read_all(body, MAX, &permits).await.unwrap();
            assert_eq!(whole, vec![b'x'; bytes], "{bytes}");
        }
        let refused = read_all(Body::from(vec![b' '; MAX + 1]), MAX, &permits).await;
        assert_eq!(refused, Err(BodyReadError::TooLarge));
        let broken = tokio_stream::once(Err::<Bytes, _>(io::Error::other("reset")));
        let refused = read_all(Body::from_stream(broken), MAX, &permits).await;
        assert_eq!(refused, Err(BodyReadError::Broken));
    }

    /// A piece of a body, which is counted while it is in memory.
    struct CountedPiece {
        _counted: Arc<()>,
    }

    impl AsRef<[u8]> for CountedPiece {
        fn as_ref(&self) -> &[u8] {
            b"x"
        }
    }

    #[tokio::test]
    async fn a_body_does_not_keep_its_pieces() {
        let counted = Arc::new(());
        let pieces = (0..100).map(move |_| {
            assert_eq!(Arc::strong_count(&counted), 1, "a piece is in memory");
            let piece = CountedPiece { _counted: Arc::clone(&counted) };
            Ok::<_, io::Error>(Bytes::from_owner(piece))
        });
        let body = Body::from_stream(tokio_stream::iter(pieces));
        assert_eq!(read_all(body, MAX, &permits(0)).await.unwrap(), vec![b'x'; 100]);
    }

    #[tokio::test]
    async fn a_large_body_needs_a_permit() {
        let permits = permits(1);
        let large = || Body::from(vec![b' '; SMALL_MAX + 1]);
        let first = read_all(large(), MAX, &permits).await.unwrap();
        assert_eq!(read_all(large(), MAX, &permits).await, Err(BodyReadError::Busy));
        assert!(read_all(Body::from(vec![b' '; SMALL_MAX]), MAX, &permits).await.is_ok());
        drop(first);
        assert!(read_all(large(), MAX, &permits).await.is_ok());
    }

    #[test]
    fn each_refusal_has_its_status() {
        for (error, status) in [
            (BodyReadError::TooLarge, 413),
            (BodyReadError::Broken, 400),
            (BodyReadError::Busy, 503),
        ] {
            let response = refused(error, MAX, "send less", |status, reason| {
                assert_eq!(
                    reason.contains("16384 bytes; send less"),
                    error == BodyReadError::TooLarge
                );
                axum::response::IntoResponse::into_response((status, reason))
            });
            assert_eq!(response.status(), status);
            assert_eq!(
                response.headers().contains_key("retry-after"),
                error == BodyReadError::Busy
            );
        }
    }
}
