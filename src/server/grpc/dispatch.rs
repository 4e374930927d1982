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
//! Responses are written before more is read. So the output of a connection has the responses to one
//! read at most, or those of the calls that were open when the client stopped reading.

use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use weir_http2::{Call, Connection, Error, RequestBody, Responder};

use super::call_head::CallHead;
use super::connection_calls::ConnectionCalls;
use super::header_timeout::HeaderTimeout;
use super::memory::call::CALL_BYTES;
use super::method::Method;
use super::rate_limit_quota::QuotaService;
use super::request_fields::RequestFields;
use super::response::{self, Sent};
use super::should_rate_limit::ShouldRateLimit;
use super::status::{GrpcCode, GrpcStatus};
use super::streaming_call;
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::Decide;
use crate::settings::GrpcSettings;

/// Starts the calls of one worker's connections.
pub(super) struct Dispatcher<D> {
    pub(super) should_rate_limit: Arc<ShouldRateLimit<D>>,
    /// `None` unless `rlqs.enabled`.
    quotas: Option<QuotaService>,
    metrics: Arc<ServerMetrics>,
    /// Time from the first byte of a call to the last byte of its response.
    timeout: Duration,
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
        }
    }

    /// Serves `calls`, which arrive on `connection`, until it ends. `headers` is the time for incomplete
    /// headers.
    pub(super) fn serve_calls<'c, S: AsyncRead + AsyncWrite + Unpin>(
        &'c self,
        connection: &'c mut Connection<S, RequestFields>,
        calls: &'c Arc<ConnectionCalls<D>>,
        headers: &'c mut HeaderTimeout,
    ) -> impl Future<Output = Result<(), Error>> + 'c {
        let mut spare = None;
        poll_fn(move |context| {
            loop {
                match connection.poll_calls(context) {
                    Poll::Ready(Ok(true)) => {}
                    Poll::Ready(Ok(false)) => return Poll::Ready(Ok(())),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        // Everything readable has been read, and all output has been written, unless the
                        // client does not read.
                        calls.hold_buffers(connection.memory());
                        if headers.is_over(connection.incomplete_headers(), context) {
                            self.metrics.headers_timeout.add();
                            let late = io::Error::from(io::ErrorKind::TimedOut);
                            return Poll::Ready(Err(late.into()));
                        }
                        return Poll::Pending;
                    }
                }
                let mut arrived = 0;
                while let Some(call) = connection.next_call() {
                    arrived += 1;
                    let Call { head, body, mut responder } = call;
                    match head.into_call() {
                        // A reset has ended the call.
                        Err(refused) => drop(response::send_head(&mut responder, &refused, true)),
                        Ok((Method::ShouldRateLimit, head)) => {
                            let call = Arc::clone(calls).should_rate_limit(head, body, responder);
                            self.start_call(call, &mut spare, calls, context);
                        }
                        Ok((Method::Unary(path), head)) => {
                            self.spawn_call(
                                Arc::clone(calls).unary(path, head, body, responder),
                                calls,
                            );
                        }
                        Ok((Method::Streaming(path), head)) => {
                            self.spawn_streaming(path, head, body, responder, calls);
                        }
                        Ok((Method::Quotas, head)) => {
                            self.spawn_quotas(head.into_instance(), body, responder, calls);
                        }
                    }
                }
                calls.counts.calls.add_many(arrived);
            }
        })
    }

    /// Polls `call` once, and spawns a task for it if it is not done. The call's box comes from `spare`
    /// and returns there, so a call that finishes in one poll allocates none.
    fn start_call<C: Future<Output = Sent> + Send + 'static>(
        &self,
        call: C,
        spare: &mut Option<Pin<Box<C>>>,
        calls: &Arc<ConnectionCalls<D>>,
        context: &mut Context<'_>,
    ) {
        // The rest of `CALL_BYTES` is for the task and its timer.
        debug_assert!(size_of::<C>() + 1024 <= CALL_BYTES, "a call takes {} bytes", size_of::<C>());
        let mut call = reuse_box(spare, call);
        // A panic in a decision is caught by the handler, which responds with INTERNAL and counts
        // it. A panic that arrives here came from framing, decoding or encoding. Uncaught, it would
        // end the connection with all its calls. Caught, it resets this call alone, as in a
        // separate task.
        match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context))) {
            Ok(Poll::Ready(_)) => *spare = Some(call),
            Ok(Poll::Pending) => self.spawn_call(call, calls),
            Err(_) => {}
        }
    }

    /// Spawns a task for `call`. The timeout drops the call, which resets its stream.
    fn spawn_call(
        &self,
        call: impl Future<Output = Sent> + Send + 'static,
        calls: &Arc<ConnectionCalls<D>>,
    ) {
        let (metrics, open) = (Arc::clone(&self.metrics), OpenCall::new(calls));
        let call = tokio::time::timeout(self.timeout, call);
        tokio::spawn(async move {
            if call.await.is_err() {
                metrics.call_timeout.add();
            }
            drop(open);
        });
    }

    /// Serves a streaming call in a task.
    fn spawn_streaming(
        &self,
        path: &'static str,
        head: CallHead,
        body: RequestBody,
        respond: Responder,
        calls: &Arc<ConnectionCalls<D>>,
    ) {
        let (open, limit) = (OpenCall::new(calls), self.timeout);
        let call = streaming_call::serve(Arc::clone(calls), path, head, body, respond, limit);
        tokio::spawn(async move {
            let _ = call.await;
            drop(open);
        });
    }

    /// Serves a stream of quotas in a task, or refuses it.
    fn spawn_quotas(
        &self,
        name: Option<Box<str>>,
        body: RequestBody,
        mut respond: Responder,
        calls: &Arc<ConnectionCalls<D>>,
    ) {
        let Some(quotas) = self.quotas.clone() else {
            let message = "this server divides no quotas (rlqs.enabled is false)";
            let status = GrpcStatus::new(GrpcCode::Unimplemented, message);
            // A reset has ended the call.
            let _ = response::send_status(&mut respond, status);
            return;
        };
        let open = OpenCall::new(calls);
        let call = quotas.serve(Arc::clone(calls), name, body, respond);
        debug_assert!(size_of_val(&call) + 1024 <= CALL_BYTES, "{} bytes", size_of_val(&call));
        tokio::spawn(async move {
            let _ = call.await;
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
struct OpenCall<D>(Arc<ConnectionCalls<D>>);

impl<D> OpenCall<D> {
    fn new(calls: &Arc<ConnectionCalls<D>>) -> OpenCall<D> {
        calls.counts.open.add();
        OpenCall(Arc::clone(calls))
    }
}

impl<D> Drop for OpenCall<D> {
    fn drop(&mut self) {
        self.0.counts.open.subtract();
    }
}
