//! Starts every call of a connection, and ends calls that take too long.
//!
//! A new call is polled once in the connection's task. Most calls have arrived completely and need
//! no I/O, so one poll decides them. All calls of one read are started before anything is written,
//! so their responses leave in one write.
//!
//! A call that needs more than one poll becomes a task of the worker, which resets it at the
//! timeout. Streaming methods (health watches and reflection) have no timeout.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Connection, SendResponse};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};

use super::memory_budget::{BudgetedBody, MemoryBudget};
use super::request_body::RequestBody;
use super::response::{self, unless_reset};
use super::should_rate_limit::{PATH, ShouldRateLimit};
use super::tonic_services::TonicServices;
use crate::server::metrics::{Metric, ServerMetrics};
use crate::server::rls::handler::Decide;

/// Path prefixes of the streaming methods, whose calls may stay open.
const STREAMING_METHODS: [&str; 2] = ["/grpc.health.v1.Health/Watch", "/grpc.reflection."];

/// Capacity that a connection keeps between reads, in calls. A larger burst may be followed by an
/// hour of silence, so its memory is freed.
const BATCH_CAPACITY: usize = 256;

/// The services that handle the calls of one worker's connections.
pub(super) struct Dispatcher<D> {
    pub(super) should_rate_limit: Arc<ShouldRateLimit<D>>,
    /// The services of all other methods, through tonic.
    pub(super) services: TonicServices,
    pub(super) budget: Arc<MemoryBudget>,
    pub(super) metrics: Arc<ServerMetrics>,
    /// Time from the first byte of a call to the last byte of its response.
    pub(super) timeout: Duration,
}

/// Call counts of one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionStats {
    /// Calls since the connection opened.
    pub(super) calls: Metric,
    /// Calls that have become tasks and are still open.
    pub(super) open: Metric,
}

impl<D: Decide> Dispatcher<D> {
    /// Serves the calls of `connection` until it ends.
    pub(super) fn serve_calls<'c, S: AsyncRead + AsyncWrite + Unpin>(
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
                    // Everything readable has been read. The next `poll_accept` writes the
                    // responses.
                    Poll::Pending => {
                        for (request, respond) in arrived.drain(..) {
                            stats.calls.add();
                            if request.uri().path() == PATH {
                                let call =
                                    Arc::clone(&self.should_rate_limit).call(request, respond);
                                self.start_call(call, &mut spare, stats, context);
                            } else {
                                self.spawn_other(request, respond, stats);
                            }
                        }
                        arrived.shrink_to(BATCH_CAPACITY);
                    }
                }
            }
        })
    }

    /// Polls `call` once, and spawns a task for it if it is not done. The call's box comes from
    /// `spare` and returns there, so a call that finishes in one poll allocates none.
    fn start_call<C: Future<Output = ()> + Send + 'static>(
        &self,
        call: C,
        spare: &mut Option<Pin<Box<C>>>,
        stats: &Arc<ConnectionStats>,
        context: &mut Context<'_>,
    ) {
        let mut call = reuse_box(spare, call);
        // A panic in a decision is caught by the handler, which responds with INTERNAL and counts
        // it. A panic that arrives here came from framing, decoding or encoding. Uncaught, it would
        // end the connection with all its calls. Caught, it resets this call alone, as in a
        // separate task.
        match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context))) {
            Ok(Poll::Ready(())) => *spare = Some(call),
            Ok(Poll::Pending) => self.spawn_call(call, stats),
            Err(_) => {}
        }
    }

    /// Serves a call of any other method in a task.
    fn spawn_other(
        &self,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        stats: &Arc<ConnectionStats>,
    ) {
        let path = request.uri().path();
        let streaming = STREAMING_METHODS.iter().any(|method| path.starts_with(method));
        let budgeted = if streaming { BudgetedBody::streaming } else { BudgetedBody::unary };
        let budget = Arc::clone(&self.budget);
        let request = request.map(|body| budgeted(RequestBody::new(body), budget));
        let (services, metrics) = (self.services.clone(), Arc::clone(&self.metrics));
        let call = async move {
            let Some(answer) = unless_reset(&mut respond, services.call(request)).await else {
                return;
            };
            // An error here means that the client has reset the call or closed the connection.
            let _ = response::send(&mut respond, answer, &metrics).await;
        };
        if streaming {
            let open = OpenCall::new(stats);
            tokio::spawn(async move {
                call.await;
                drop(open);
            });
        } else {
            self.spawn_call(call, stats);
        }
    }

    /// Spawns a task for `call`. The timeout drops the call, which resets its stream.
    fn spawn_call(
        &self,
        call: impl Future<Output = ()> + Send + 'static,
        stats: &Arc<ConnectionStats>,
    ) {
        let (metrics, open) = (Arc::clone(&self.metrics), OpenCall::new(stats));
        let call = tokio::time::timeout(self.timeout, call);
        tokio::spawn(async move {
            if call.await.is_err() {
                metrics.call_timeout.add();
            }
            drop(open);
        });
    }
}

/// Puts `call` into the spare box if there is one, else into a new one.
fn reuse_box<C>(spare: &mut Option<Pin<Box<C>>>, call: C) -> Pin<Box<C>> {
    let Some(mut boxed) = spare.take() else { return Box::pin(call) };
    boxed.set(call);
    boxed
}

/// Counts an open call until it is dropped.
struct OpenCall(Arc<ConnectionStats>);

impl OpenCall {
    fn new(stats: &Arc<ConnectionStats>) -> OpenCall {
        stats.open.add();
        OpenCall(Arc::clone(stats))
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.open.subtract();
    }
}
