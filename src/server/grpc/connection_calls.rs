//! The calls of one connection: what they share, and how each is served on its stream.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::watch;
use weir_http2::{Reason, Responder};

use super::call_head::CallHead;
use super::framing;
use super::memory::call::CallMemory;
use super::memory::connection::ConnectionMemory;
use super::memory::inbox::SMALL_REQUEST_MAX;
use super::read_throttle::ReadThrottle;
use super::request_body::RequestBody;
use super::response::{self, Sent, unless_reset};
use super::should_rate_limit::{ServedResponse, ShouldRateLimit};
use crate::atomic_count::AtomicCount;
use crate::server::rls::handler::Decide;

/// What the task and the calls of one connection share.
pub(super) struct ConnectionCalls<D> {
    pub(super) service: Arc<ShouldRateLimit<D>>,
    pub(super) memory: ConnectionMemory,
    pub(super) counts: ConnectionCounts,
    pub(super) drain: ConnectionDrain,
    reads: ReadThrottle,
}

/// Counts of one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionCounts {
    /// Calls since the connection opened. Its slot reads them.
    pub(super) calls: Arc<AtomicCount>,
    /// Calls that have become tasks and are still open.
    pub(super) open: AtomicCount,
    /// Open health watches and reflection calls.
    pub(super) streaming: AtomicCount,
    /// Open streams of quotas.
    pub(super) quota_streams: AtomicCount,
}

/// Counts one call of a connection until it is dropped.
pub(super) struct CountedCall<'c>(&'c AtomicCount);

impl CountedCall<'_> {
    /// `None` if `count` is `max`. The calls of a connection run on one thread.
    pub(super) fn begin(count: &AtomicCount, max: u64) -> Option<CountedCall<'_>> {
        let has_room = count.get() < max;
        has_room.then(|| {
            count.add();
            CountedCall(count)
        })
    }
}

impl Drop for CountedCall<'_> {
    fn drop(&mut self) {
        self.0.subtract();
    }
}

/// Tells calls without an end that their connection drains.
#[derive(Debug, Default)]
pub(super) struct ConnectionDrain(watch::Sender<bool>);

impl ConnectionDrain {
    /// Ends these calls. The client has got GOAWAY, or gets it first.
    pub(super) fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Returns once the connection drains.
    pub(super) async fn begun(&self) {
        // `self` holds the sender, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|is_draining| *is_draining).await;
    }
}

impl<D: Decide> ConnectionCalls<D> {
    /// The calls of a new connection, which are counted in `calls`. What `reads` allows depends on them.
    pub(super) fn new(
        service: &Arc<ShouldRateLimit<D>>,
        memory: ConnectionMemory,
        calls: &Arc<AtomicCount>,
        reads: ReadThrottle,
    ) -> Arc<ConnectionCalls<D>> {
        let counts = ConnectionCounts { calls: Arc::clone(calls), ..ConnectionCounts::default() };
        let (service, drain) = (Arc::clone(service), ConnectionDrain::default());
        Arc::new(ConnectionCalls { service, memory, counts, drain, reads })
    }

    /// Counts the `bytes` that the connection holds after a poll.
    pub(super) fn hold_buffers(&self, bytes: usize) {
        self.memory.hold(bytes, self.reads.is_write_stalled(), self.counts.open.get());
    }

    /// Serves a call of `ShouldRateLimit`.
    pub(super) async fn should_rate_limit(
        self: Arc<Self>,
        head: CallHead,
        body: weir_http2::RequestBody,
        mut respond: Responder,
    ) -> Sent {
        let (memory, is_compressed) = (CallMemory::of(&self.memory), head.is_compressed());
        let served = {
            let served = pin!(self.service.respond(head, RequestBody::new(body), &memory));
            unless_reset(&mut respond, served).await
        };
        match served {
            None => Err(Reason::CANCEL.into()),
            Some(Ok(ServedResponse::FastPath(decided))) => {
                response::send_message(&mut respond, decided, &memory).await
            }
            // Boxed, like the call in `respond`: the future of every call has room for the largest
            // part.
            Some(Ok(ServedResponse::Tonic(served))) => {
                if is_compressed {
                    // A refused message may have had the largest size.
                    let bytes = served.message_bytes.unwrap_or(self.service.max_message_bytes);
                    self.reads.charge(bytes);
                }
                let metrics = &self.service.metrics;
                Box::pin(response::send(&mut respond, *served, metrics, &memory)).await
            }
            Some(Err(status)) => response::send_status(&mut respond, status),
        }
    }

    /// Serves a call of another method with one request and one response, through tonic.
    pub(super) async fn unary(
        self: Arc<Self>,
        path: &'static str,
        head: CallHead,
        body: weir_http2::RequestBody,
        mut respond: Responder,
    ) -> Sent {
        let memory = CallMemory::of(&self.memory);
        let served = {
            let served = pin!(async {
                let (body, held) = (RequestBody::new(body), (head.bytes(), &memory));
                let framed = framing::read_unary(body, SMALL_REQUEST_MAX, held).await?;
                self.service.services.call_received(path, head, framed, &memory).await
            });
            unless_reset(&mut respond, served).await
        };
        match served {
            None => Err(Reason::CANCEL.into()),
            Some(Ok(served)) => {
                response::send(&mut respond, served, &self.service.metrics, &memory).await
            }
            Some(Err(status)) => response::send_status(&mut respond, status),
        }
    }
}
