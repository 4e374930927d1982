//! Permits of a listener for bodies and pages that are too large for the memory of one connection.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::server::metrics::ServerMetrics;

/// Largest body, in bytes, that needs no permit.
pub(super) const SMALL_MAX: usize = 8 << 10;

/// The permits of one listener. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Permits {
    free: Arc<Semaphore>,
    metrics: Arc<ServerMetrics>,
}

/// A permit. Dropping it frees it.
#[derive(Debug)]
pub(super) struct Permit {
    _taken: OwnedSemaphorePermit,
}

impl Permits {
    /// `max` permits.
    pub(super) fn new(max: usize, metrics: Arc<ServerMetrics>) -> Permits {
        Permits { free: Arc::new(Semaphore::new(max)), metrics }
    }

    /// A permit. `None` if all are taken: the response is then [`busy`].
    pub(super) fn try_acquire(&self) -> Option<Permit> {
        let taken = Arc::clone(&self.free).try_acquire_owned();
        let permit = taken.ok().map(|_taken| Permit { _taken });
        if permit.is_none() {
            self.metrics.http_busy.add();
        }
        permit
    }

    /// `bytes`, with a permit if they are not small. `None` if they need one and all are taken.
    pub(super) fn try_hold(&self, bytes: Vec<u8>) -> Option<Bytes> {
        if bytes.len() <= SMALL_MAX {
            return Some(bytes.into());
        }
        Some(self.try_acquire()?.hold(bytes))
    }
}

impl Permit {
    /// `bytes`, which have the permit until they are dropped. hyper drops a response when the system
    /// has accepted the last byte of it, or when its connection ends.
    pub(super) fn hold(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Held { bytes, _permit: self })
    }
}

struct Held<T> {
    bytes: T,
    _permit: Permit,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// The response to a request that needs a permit when all are taken.
pub(super) fn busy() -> Response {
    let reason = "too many large requests and responses are open; send the request again later\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], reason).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_their_permit_until_they_are_dropped() {
        let metrics = Arc::<ServerMetrics>::default();
        let permits = Permits::new(1, Arc::clone(&metrics));
        let held = permits.try_hold(vec![b'x'; SMALL_MAX + 1]).unwrap();
        let part = held.slice(1..2);
        drop(held);
        assert!(permits.try_hold(vec![b'x'; SMALL_MAX + 1]).is_none(), "a part of them is left");
        assert_eq!(permits.try_hold(vec![b'x'; SMALL_MAX]).unwrap().len(), SMALL_MAX);
        assert_eq!(metrics.http_busy.get(), 1);
        drop(part);
        assert_eq!(&permits.try_acquire().unwrap().hold("page")[..], b"page");
        assert!(permits.try_acquire().is_some());
    }
}
