//! A request body whose connection waits for its client until the body has ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::HttpBody;
use http_body::{Frame, SizeHint};

use crate::server::listener::slots::Slot;

/// The request body `body`. Its end ends the wait of its connection.
pub(super) struct AwaitedBody<B> {
    body: B,
    slot: Arc<Slot>,
}

impl<B: HttpBody> AwaitedBody<B> {
    /// A body that arrives on the connection with `slot`.
    pub(super) fn new(body: B, slot: Arc<Slot>) -> AwaitedBody<B> {
        let awaited = AwaitedBody { body, slot };
        awaited.end_wait_if(awaited.body.is_end_stream());
        awaited
    }

    fn end_wait_if(&self, has_ended: bool) {
        if has_ended {
            // False after an eviction, which closes the connection.
            self.slot.end_wait();
        }
    }
}

impl<B: HttpBody + Unpin> HttpBody for AwaitedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.end_wait_if(frame.is_none());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::{poll_fn, ready};
    use std::io;
    use std::net::IpAddr;

    use axum::body::{Body, Bytes};
    use futures_util::{FutureExt, StreamExt, stream};

    use crate::server::listener::slots::ConnectionSlots;
    use crate::server::metrics::ServerMetrics;

    #[test]
    fn a_connection_waits_for_the_whole_body() {
        let metrics = Arc::<ServerMetrics>::default();
        let slots = ConnectionSlots::new(9, None, Arc::clone(&metrics), |metrics| &metrics.http);
        let client = IpAddr::from([127, 0, 0, 1]);
        let piece = || stream::once(ready(Ok::<_, io::Error>(Bytes::from_static(b"{"))));
        let arriving = Body::from_stream(piece().chain(stream::pending()));
        for (body, pieces, waits) in
            [(Body::empty(), 0, 0), (Body::from_stream(piece()), 1, 0), (arriving, 1, 1)]
        {
            let slot = Arc::new(slots.try_acquire(client.into()).unwrap());
            let mut body = AwaitedBody::new(body, slot);
            for _ in 0..pieces {
                assert_eq!(metrics.http.waiting.get(), 1);
                let piece = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
                assert!(piece.now_or_never().is_some_and(|piece| piece.is_some()));
            }
            let end = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).now_or_never();
            assert_eq!((end.is_none(), metrics.http.waiting.get()), (waits == 1, waits));
        }
    }
}
