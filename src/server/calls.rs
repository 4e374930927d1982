//! Calls: the streams of one connection, each to what answers it, with an end to those that take too
//! long.
//!
//! Calls that have arrived whole and need no store elsewhere are answered where they are found, all
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

use super::counters::{Counter, Counters};
use super::decide::Decide;
use super::incoming::Incoming;
use super::outgoing;
use super::rls::{self, Rls};
use super::upload::{Upload, Uploads};

/// Paths that start so stay open.
const STAYING: [&str; 2] = ["/grpc.health.v1.Health/Watch", "/grpc.reflection."];

/// Where a message beyond the bound is told, by the name of its status.
const OUT_OF_RANGE: &str = "11";

/// Calls of one read that a connection keeps room for. A burst is followed by others, or by an hour
/// of silence.
const ARRIVED: usize = 256;

/// What answers the calls of a core's connections.
pub(super) struct Calls<D> {
    pub(super) rls: Arc<Rls<D>>,
    /// All other methods.
    pub(super) routes: Routes,
    pub(super) uploads: Arc<Uploads>,
    pub(super) counters: Arc<Counters>,
    /// From the first byte of a call to the last of its answer.
    pub(super) timeout: Duration,
}

/// What a connection is used for.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Calls so far.
    pub(super) calls: Counter,
    /// Those that have become tasks and are still open.
    pub(super) open: Counter,
}

impl<D: Decide> Calls<D> {
    /// Answers the calls of `connection` until it ends, each time that it is polled.
    pub(super) fn answer<'c, S: AsyncRead + AsyncWrite + Unpin>(
        &'c self,
        connection: &'c mut Connection<S, Bytes>,
        seen: &'c Arc<Seen>,
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
                            seen.calls.add();
                            if request.uri().path() != rls::PATH {
                                self.route(request, respond, seen);
                                continue;
                            }
                            let call = Arc::clone(&self.rls).call(request, respond);
                            let mut call = place(&mut spare, call);
                            let poll = || call.as_mut().poll(context);
                            match catch_unwind(AssertUnwindSafe(poll)) {
                                Ok(Poll::Ready(())) => spare = Some(call),
                                Ok(Poll::Pending) => self.go_on(call, seen),
                                // As in a task of its own: the call is reset, and no other.
                                Err(_) => {}
                            }
                        }
                        arrived.shrink_to(ARRIVED);
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
        seen: &Arc<Seen>,
    ) {
        let stays = STAYING.iter().any(|start| request.uri().path().starts_with(start));
        let upload = if stays { Upload::staying } else { Upload::passing };
        let uploads = Arc::clone(&self.uploads);
        let request = request.map(|body| upload(Incoming::new(body), uploads));
        let (mut routes, counters) = (self.routes.clone(), Arc::clone(&self.counters));
        let call = async move {
            let routed = rls::unless_reset(&mut respond, routes.call(request)).await;
            let Some(Ok(response)) = routed else { return };
            if response.headers().get("grpc-status").is_some_and(|code| code == OUT_OF_RANGE) {
                counters.message_too_large.add();
            }
            // An error has no one to be told to: the client has gone.
            let _ = outgoing::send(&mut respond, response).await;
        };
        if stays {
            let open = Open::new(seen);
            tokio::spawn(async move {
                call.await;
                drop(open);
            });
        } else {
            self.go_on(call, seen);
        }
    }

    /// Lets a call go on in a task of its own, until it takes too long.
    fn go_on(&self, call: impl Future<Output = ()> + Send + 'static, seen: &Arc<Seen>) {
        let (counters, open) = (Arc::clone(&self.counters), Open::new(seen));
        let call = tokio::time::timeout(self.timeout, call);
        tokio::spawn(async move {
            if call.await.is_err() {
                counters.call_timeout.add();
            }
            drop(open);
        });
    }
}

/// Puts `call` to the place of one that has ended, or to one of its own.
fn place<C>(spare: &mut Option<Pin<Box<C>>>, call: C) -> Pin<Box<C>> {
    let Some(mut place) = spare.take() else { return Box::pin(call) };
    place.set(call);
    place
}

/// Counts an open call until it is dropped.
struct Open(Arc<Seen>);

impl Open {
    fn new(seen: &Arc<Seen>) -> Open {
        seen.open.add();
        Open(Arc::clone(seen))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.subtract();
    }
}
