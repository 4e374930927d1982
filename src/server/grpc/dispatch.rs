//! Dispatcher: the streams of one connection, each to what answers it, with an end to those that take too
//! long.
//!
//! Dispatcher that have arrived whole and need no store elsewhere are answered where they are found, all
//! that one read has brought before anything is written; so their answers leave together. Others
//! become tasks of the core. One that is sent or read too slowly is reset, and holds nothing any
//! more. Those that are meant to stay open have no such end: health watches and reflection.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Connection, SendResponse};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::codegen::Service as _;
use tonic::service::Routes;

use super::memory_budget::{BudgetedBody, MemoryBudget};
use super::request_body::RequestBody;
use super::response;
use super::should_rate_limit::{self, ShouldRateLimit};
use crate::server::metrics::{Metric, ServerMetrics};
use crate::server::rls::handler::Decide;

/// Paths that start so stay open.
const STREAMING_METHODS: [&str; 2] = ["/grpc.health.v1.Health/Watch", "/grpc.reflection."];

/// Where a message beyond the bound is told, by the name of its status.
const OUT_OF_RANGE: &str = "11";

/// Dispatcher of one read that a connection keeps room for. A burst is followed by others, or by an hour
/// of silence.
const BATCH_CAPACITY: usize = 256;

/// What answers the calls of a core's connections.
pub(super) struct Dispatcher<D> {
    pub(super) should_rate_limit: Arc<ShouldRateLimit<D>>,
    /// All other methods.
    pub(super) routes: Routes,
    pub(super) budget: Arc<MemoryBudget>,
    pub(super) metrics: Arc<ServerMetrics>,
    /// From the first byte of a call to the last of its answer.
    pub(super) timeout: Duration,
}

/// What a connection is used for.
#[derive(Debug, Default)]
pub(super) struct ConnectionStats {
    /// Dispatcher so far.
    pub(super) calls: Metric,
    /// Those that have become tasks and are still open.
    pub(super) open: Metric,
}

impl<D: Decide> Dispatcher<D> {
    /// Answers the calls of `connection` until it ends, each time that it is polled.
    pub(super) fn answer<'c, S: AsyncRead + AsyncWrite + Unpin>(
        &'c self,
        connection: &'c mut Connection<S, Bytes>,
        stats: &'c Arc<ConnectionStats>,
    ) -> impl Future<Output = Result<(), h2::Error>> + 'c {
        let (mut arrived, mut spare) = (Vec::new(), None);
        poll_fn(move |context| {
            loop {
                match connection.poll_accept(context) {
                    Poll::Ready(Some(Ok(call))) => arrived.push(call),
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                    Poll::Ready(None) => return Poll::Ready(Ok(())),
                    Poll::Pending if arrived.is_empty() => return Poll::Pending,
                    // All that could be read has been. The next turn of the loop writes.
                    Poll::Pending => {
                        for (request, respond) in arrived.drain(..) {
                            stats.calls.add();
                            if request.uri().path() != should_rate_limit::PATH {
                                self.route(request, respond, stats);
                                continue;
                            }
                            let call = Arc::clone(&self.should_rate_limit).call(request, respond);
                            let mut call = reuse_box(&mut spare, call);
                            let poll = || call.as_mut().poll(context);
                            match catch_unwind(AssertUnwindSafe(poll)) {
                                Ok(Poll::Ready(())) => spare = Some(call),
                                Ok(Poll::Pending) => self.spawn_call(call, stats),
                                // As in a task of its own: the call is reset, and no other.
                                Err(_) => {}
                            }
                        }
                        arrived.shrink_to(BATCH_CAPACITY);
                    }
                }
            }
        })
    }

    /// Answers a call of another method, in a task of its own.
    fn route(
        &self,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        stats: &Arc<ConnectionStats>,
    ) {
        let streams = STREAMING_METHODS.iter().any(|start| request.uri().path().starts_with(start));
        let upload = if streams { BudgetedBody::streaming } else { BudgetedBody::unary };
        let budget = Arc::clone(&self.budget);
        let request = request.map(|body| upload(RequestBody::new(body), budget));
        let (mut routes, metrics) = (self.routes.clone(), Arc::clone(&self.metrics));
        let call = async move {
            let routed = should_rate_limit::unless_reset(&mut respond, routes.call(request)).await;
            let Some(Ok(response)) = routed else { return };
            if response.headers().get("grpc-status").is_some_and(|code| code == OUT_OF_RANGE) {
                metrics.message_too_large.add();
            }
            // An error has no one to be told to: the client has gone.
            let _ = response::send(&mut respond, response).await;
        };
        if streams {
            let open = Open::new(stats);
            tokio::spawn(async move {
                call.await;
                drop(open);
            });
        } else {
            self.spawn_call(call, stats);
        }
    }

    /// Lets a call go on in a task of its own, until it takes too long.
    fn spawn_call(
        &self,
        call: impl Future<Output = ()> + Send + 'static,
        stats: &Arc<ConnectionStats>,
    ) {
        let (metrics, open) = (Arc::clone(&self.metrics), Open::new(stats));
        let call = tokio::time::timeout(self.timeout, call);
        tokio::spawn(async move {
            if call.await.is_err() {
                metrics.call_timeout.add();
            }
            drop(open);
        });
    }
}

/// Puts `call` to the place of one that has ended, or to one of its own.
fn reuse_box<C>(spare: &mut Option<Pin<Box<C>>>, call: C) -> Pin<Box<C>> {
    let Some(mut place) = spare.take() else { return Box::pin(call) };
    place.set(call);
    place
}

/// Counts an open call until it is dropped.
struct Open(Arc<ConnectionStats>);

impl Open {
    fn new(stats: &Arc<ConnectionStats>) -> Open {
        stats.open.add();
        Open(Arc::clone(stats))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.subtract();
    }
}
