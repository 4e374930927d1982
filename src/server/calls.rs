//! Calls: from hyper's requests to tonic's services, with an end to those that take too long.
//!
//! A call that is sent or read too slowly is reset, and holds nothing any more. Those that are meant
//! to stay open have no such end: health watches and reflection.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::Service;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::codegen::http::{Request, Response};
use tonic::service::Routes;

use super::counters::{Counter, Counters};
use super::delivery::Delivery;
use super::upload::{Upload, Uploads};

tokio::task_local! {
    /// Whether the call that this task serves may last for ever.
    static ENDLESS: Cell<bool>;
}

/// Paths that start so stay open.
const STAYING: [&str; 2] = ["/grpc.health.v1.Health/Watch", "/grpc.reflection."];

/// Where a message beyond the bound is told, by the name of its status.
const OUT_OF_RANGE: &str = "11";

/// The path of nearly all calls.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// An answer on its way, as generated services give it.
type Routed = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// Answers a call of [`SHOULD_RATE_LIMIT`].
pub(super) type Direct = Arc<dyn Fn(Request<Upload>) -> Delivery<Routed> + Send + Sync>;

/// What answers the calls of a connection.
#[derive(Clone)]
pub(super) struct Calls {
    /// The one method that is worth a way past the router.
    pub(super) direct: Direct,
    pub(super) routes: Routes,
    pub(super) uploads: Arc<Uploads>,
    pub(super) counters: Arc<Counters>,
}

impl Service<Request<Incoming>> for Calls {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Call;

    fn call(&self, request: Request<Incoming>) -> Call {
        let path = request.uri().path();
        let uploads = Arc::clone(&self.uploads);
        let way = if path == SHOULD_RATE_LIMIT {
            Way::Direct((self.direct)(request.map(|body| Upload::passing(body, uploads))))
        } else {
            let endless = STAYING.iter().any(|start| path.starts_with(start));
            let upload = if endless { Upload::staying } else { Upload::passing };
            let request = request.map(|body| upload(body, uploads));
            let mut routes = self.routes.clone();
            Way::Routed(Box::pin(async move {
                if endless {
                    let _ = ENDLESS.try_with(|endless| endless.set(true));
                }
                routes.call(request).await
            }))
        };
        Call { way, counters: Arc::clone(&self.counters) }
    }
}

/// A call that is being answered.
pub(super) struct Call {
    way: Way,
    counters: Arc<Counters>,
}

enum Way {
    Direct(Delivery<Routed>),
    Routed(Routed),
}

impl Future for Call {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answered = match &mut self.way {
            Way::Direct(answer) => Pin::new(answer).poll(context),
            Way::Routed(answer) => answer.as_mut().poll(context),
        };
        if let Poll::Ready(Ok(response)) = &answered
            && response.headers().get("grpc-status").is_some_and(|code| code == OUT_OF_RANGE)
        {
            self.counters.message_too_large.add();
        }
        answered
    }
}

/// Runs the calls of one connection as tasks of its core.
#[derive(Clone)]
pub(super) struct Tasks {
    /// From the first byte of a call to the last of its answer.
    pub(super) timeout: Duration,
    pub(super) counters: Arc<Counters>,
    /// Calls of this connection so far, and those that are open.
    pub(super) seen: Arc<Seen>,
}

/// What a connection is used for.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) calls: Counter,
    pub(super) open: Counter,
}

impl<C: Future<Output = ()> + Send + 'static> Executor<C> for Tasks {
    fn execute(&self, call: C) {
        let Tasks { timeout, counters, seen } = self.clone();
        seen.calls.add();
        seen.open.add();
        tokio::spawn(ENDLESS.scope(Cell::new(false), async move {
            let _open = Open(seen);
            let mut call = pin!(call);
            // Most calls are complete when they start, and need no timer.
            let at_once = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
            if at_once.is_ready() {
                return;
            }
            if ENDLESS.with(Cell::get) {
                return call.await;
            }
            if tokio::time::timeout(timeout, call).await.is_err() {
                counters.call_timeout.add();
            }
        }));
    }
}

/// Counts an open call until it is dropped.
struct Open(Arc<Seen>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.subtract();
    }
}
