//! Starts every call of a connection, and ends calls that take too long.
//!
//! A new call is polled once in the connection's task. Most calls have arrived completely and need
//! no I/O, so one poll decides them. All calls of one read are started before anything is written,
//! so their responses leave in one write.
//!
//! A call that needs more than one poll becomes a task of the worker, which resets it at the
//! timeout. Health watches and reflection have other time limits: `streaming_call.rs`. So have streams
//! of quotas: `rate_limit_quota.rs`.
//!
//! Responses are written before more is read. So h2 buffers the responses of one read at most, or
//! of the calls that were open when the client stopped reading.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use super::abuse::premature_resets::PrematureResets;
use super::call_head::{CallHead, instance_name, not_grpc};
use super::connection_calls::ConnectionCalls;
use super::memory::call::CALL_BYTES;
use super::rate_limit_quota::{self, QuotaService};
use super::read_throttle::ReadThrottle;
use super::response::{self, QueuedBytes};
use super::should_rate_limit::{PATH, ShouldRateLimit};
use super::status::{GrpcCode, GrpcStatus};
use super::streaming_call;
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::Decide;
use crate::settings::GrpcSettings;

/// Calls for which a worker keeps room between reads. A larger burst may be followed by an hour of
/// silence, so its memory is freed.
const BATCH_CAPACITY: usize = 256;

/// Largest part of an unknown path in a status message, in characters.
const PATH_SHOWN: usize = 200;

/// A call that has arrived and was not started.
type Arrived = (Request<RecvStream>, SendResponse<Bytes>);

/// How a method is served.
enum Method {
    ShouldRateLimit,
    /// One request and one response, through tonic.
    Unary(&'static str),
    /// A call that may stay open, through tonic.
    Streaming(&'static str),
    /// A stream of quotas of the client with this name.
    Quotas(Option<Box<str>>),
}

impl Method {
    /// The method of a request path; `None` if it is unknown.
    fn at(path: &str) -> Option<Method> {
        const CHECK: &str = "/grpc.health.v1.Health/Check";
        const LIST: &str = "/grpc.health.v1.Health/List";
        const WATCH: &str = "/grpc.health.v1.Health/Watch";
        const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        const REFLECTION_ALPHA: &str =
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
        Some(match path {
            PATH => Method::ShouldRateLimit,
            rate_limit_quota::PATH => Method::Quotas(None),
            CHECK => Method::Unary(CHECK),
            LIST => Method::Unary(LIST),
            WATCH => Method::Streaming(WATCH),
            REFLECTION => Method::Streaming(REFLECTION),
            REFLECTION_ALPHA => Method::Streaming(REFLECTION_ALPHA),
            _ => return None,
        })
    }
}

/// Starts the calls of one worker's connections.
pub(super) struct Dispatcher<D> {
    pub(super) should_rate_limit: Arc<ShouldRateLimit<D>>,
    /// `None` unless `rlqs.enabled`.
    quotas: Option<QuotaService>,
    metrics: Arc<ServerMetrics>,
    /// Time from the first byte of a call to the last byte of its response.
    timeout: Duration,
    /// `grpc.max_header_bytes`, for the memory of incomplete headers.
    max_header_bytes: u32,
    /// `grpc.max_pending_resets`.
    max_pending_resets: usize,
    /// Room for the calls of the next read. All connections of the worker share it.
    batch: Mutex<Vec<Arrived>>,
}

impl<D: Decide> Dispatcher<D> {
    pub(super) fn new(
        should_rate_limit: Arc<ShouldRateLimit<D>>,
        quotas: Option<QuotaService>,
        settings: &GrpcSettings,
    ) -> Dispatcher<D> {
        Dispatcher {
            metrics: Arc::clone(&should_rate_limit.metrics),
            should_rate_limit,
            quotas,
            timeout: settings.call_timeout,
            max_header_bytes: settings.max_header_bytes,
            max_pending_resets: settings.max_pending_resets,
            batch: Mutex::default(),
        }
    }

    /// Serves `calls`, which arrive on `connection`, until it ends.
    pub(super) fn serve_calls<'c, S: AsyncRead + AsyncWrite + Unpin>(
        &'c self,
        connection: &'c mut Connection<S, Bytes>,
        calls: &'c Arc<ConnectionCalls<D>>,
        reads: &'c ReadThrottle,
    ) -> impl Future<Output = Result<(), h2::Error>> + 'c {
        let (mut arrived, mut spare) = (Vec::new(), None);
        let mut resets = PrematureResets::new(self.max_pending_resets);
        poll_fn(move |context| {
            loop {
                let writes_first = calls.counts.unsent.get() > 0;
                reads.pause(writes_first);
                match connection.poll_accept(context) {
                    Poll::Ready(Some(Ok(call))) => {
                        if arrived.is_empty() {
                            arrived = self.take_batch();
                        }
                        arrived.push(call);
                        continue;
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                    Poll::Ready(None) => return Poll::Ready(Ok(())),
                    Poll::Pending => {}
                }
                // Everything readable has been read. Everything queued has been written, unless the
                // client does not read.
                let is_stalled = reads.is_write_stalled();
                if !is_stalled {
                    calls.counts.unsent.set(0);
                }
                calls.count_arrived(arrived.len(), reads.take_heads());
                if arrived.is_empty() {
                    calls.hold_buffers(reads, self.max_header_bytes);
                    if writes_first && !is_stalled {
                        continue;
                    }
                    return Poll::Pending;
                }
                let mut unsent = 0;
                for (request, mut respond) in arrived.drain(..) {
                    let started = match self.accept(request) {
                        Err(refused) => Some(response::send_head(&mut respond, refused)),
                        Ok((Method::ShouldRateLimit, head, body)) => {
                            let call = Arc::clone(calls).should_rate_limit(head, body, respond);
                            self.start_call(call, &mut spare, calls, context)
                        }
                        Ok((Method::Unary(path), head, body)) => {
                            let call = Arc::clone(calls).unary(path, head, body, respond);
                            self.spawn_call(call, calls);
                            None
                        }
                        Ok((Method::Streaming(path), head, body)) => {
                            self.spawn_streaming(path, head, body, respond, calls);
                            None
                        }
                        Ok((Method::Quotas(name), _, body)) => {
                            self.spawn_quotas(name, body, respond, calls)
                        }
                    };
                    resets.record(matches!(started, Some(Err(_))));
                    unsent += started.map_or(0, |queued| queued.unwrap_or(0));
                }
                calls.counts.unsent.add_many(unsent as u64);
                self.return_batch(std::mem::take(&mut arrived));
                if resets.are_too_many() {
                    self.metrics.flood.add();
                    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    // Writes GOAWAY, if the client reads.
                    let _ = connection.poll_accept(context);
                    return Poll::Ready(Ok(()));
                }
            }
        })
    }

    /// What weir needs of a call, or the response that refuses it. The headers are dropped.
    fn accept(
        &self,
        request: Request<RecvStream>,
    ) -> Result<(Method, CallHead, RecvStream), Response<()>> {
        let (head, body) = request.into_parts();
        if let Some(refused) = not_grpc(&head) {
            return Err(refused);
        }
        let path = head.uri.path();
        let Some(mut method) = Method::at(path) else {
            let shown: String = path.chars().take(PATH_SHOWN).collect();
            let message = format!("unknown method {shown}");
            return Err(GrpcStatus::new(GrpcCode::Unimplemented, message).into_response());
        };
        if let Method::Quotas(name) = &mut method {
            *name = instance_name(&head.headers).map(Box::from);
        }
        let is_traced = self.should_rate_limit.handler.decider.traces();
        Ok((method, CallHead::read(&head.headers, is_traced), body))
    }

    /// Polls `call` once, and spawns a task for it if it is not done. Returns what it has queued if
    /// it is done. The call's box comes from `spare` and returns there, so a call that finishes in
    /// one poll allocates none.
    fn start_call<C: Future<Output = QueuedBytes> + Send + 'static>(
        &self,
        call: C,
        spare: &mut Option<Pin<Box<C>>>,
        calls: &Arc<ConnectionCalls<D>>,
        context: &mut Context<'_>,
    ) -> Option<QueuedBytes> {
        // The rest of `CALL_BYTES` is for the task and its timer.
        debug_assert!(size_of::<C>() + 1024 <= CALL_BYTES, "a call takes {} bytes", size_of::<C>());
        let mut call = reuse_box(spare, call);
        // A panic in a decision is caught by the handler, which responds with INTERNAL and counts
        // it. A panic that arrives here came from framing, decoding or encoding. Uncaught, it would
        // end the connection with all its calls. Caught, it resets this call alone, as in a
        // separate task.
        match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context))) {
            Ok(Poll::Ready(queued)) => {
                *spare = Some(call);
                Some(queued)
            }
            Ok(Poll::Pending) => {
                self.spawn_call(call, calls);
                None
            }
            Err(_) => None,
        }
    }

    /// Spawns a task for `call`. The timeout drops the call, which resets its stream.
    fn spawn_call(
        &self,
        call: impl Future<Output = QueuedBytes> + Send + 'static,
        calls: &Arc<ConnectionCalls<D>>,
    ) {
        let (metrics, open) = (Arc::clone(&self.metrics), OpenCall::new(calls));
        let call = tokio::time::timeout(self.timeout, call);
        tokio::spawn(async move {
            match call.await {
                Ok(queued) => open.finish(queued),
                Err(_) => metrics.call_timeout.add(),
            }
        });
    }

    /// Serves a streaming call in a task.
    fn spawn_streaming(
        &self,
        path: &'static str,
        head: CallHead,
        body: RecvStream,
        respond: SendResponse<Bytes>,
        calls: &Arc<ConnectionCalls<D>>,
    ) {
        let (open, limit) = (OpenCall::new(calls), self.timeout);
        let call = streaming_call::serve(Arc::clone(calls), path, head, body, respond, limit);
        tokio::spawn(async move { open.finish(call.await) });
    }

    /// Serves a stream of quotas in a task, or refuses it and returns what that has queued.
    fn spawn_quotas(
        &self,
        name: Option<Box<str>>,
        body: RecvStream,
        mut respond: SendResponse<Bytes>,
        calls: &Arc<ConnectionCalls<D>>,
    ) -> Option<QueuedBytes> {
        let Some(quotas) = self.quotas.clone() else {
            let message = "this server divides no quotas (rlqs.enabled is false)";
            let status = GrpcStatus::new(GrpcCode::Unimplemented, message);
            return Some(response::send_status(&mut respond, status));
        };
        let open = OpenCall::new(calls);
        let call = quotas.serve(Arc::clone(calls), name, body, respond);
        debug_assert!(size_of_val(&call) + 1024 <= CALL_BYTES, "{} bytes", size_of_val(&call));
        tokio::spawn(async move { open.finish(call.await) });
        None
    }

    fn take_batch(&self) -> Vec<Arrived> {
        std::mem::take(&mut *self.batch.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn return_batch(&self, mut batch: Vec<Arrived>) {
        batch.shrink_to(BATCH_CAPACITY);
        *self.batch.lock().unwrap_or_else(PoisonError::into_inner) = batch;
    }
}

/// Puts `call` into the spare box if there is one, else into a new one.
fn reuse_box<C>(spare: &mut Option<Pin<Box<C>>>, call: C) -> Pin<Box<C>> {
    let Some(mut boxed) = spare.take() else { return Box::pin(call) };
    boxed.set(call);
    boxed
}

/// Counts an open call until it is dropped.
struct OpenCall<D>(Arc<ConnectionCalls<D>>);

impl<D> OpenCall<D> {
    fn new(calls: &Arc<ConnectionCalls<D>>) -> OpenCall<D> {
        calls.counts.open.add();
        OpenCall(Arc::clone(calls))
    }

    /// Counts the response of the call, which h2 holds until it is written.
    fn finish(self, queued: QueuedBytes) {
        self.0.counts.unsent.add_many(queued.unwrap_or(0) as u64);
    }
}

impl<D> Drop for OpenCall<D> {
    fn drop(&mut self) {
        self.0.counts.open.subtract();
    }
}
