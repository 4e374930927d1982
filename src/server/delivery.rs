//! Delivery: what an answer grants becomes the caller's once the answer has been handed out whole.
//!
//! A caller that resets its call in the meantime (a proxy that timed out) makes the transport drop
//! the body, and with it the grant, which gives back what was taken.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;

use crate::decision::Grant;

/// A grant on its way from the handler to the body of its answer.
#[derive(Clone)]
pub(super) struct Undelivered(Arc<Mutex<Option<Grant>>>);

impl Undelivered {
    pub(super) fn new(grant: Grant) -> Undelivered {
        Undelivered(Arc::new(Mutex::new(Some(grant))))
    }

    fn take(&self) -> Option<Grant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A service whose answers carry their grants until they are delivered.
#[derive(Clone)]
pub(super) struct Delivering<S>(pub(super) S);

impl<S: NamedService> NamedService for Delivering<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Delivering<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Delivery<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Delivery(self.0.call(request))
    }
}

/// An answer on its way to its body. The generated service boxes its own; it needs no second box.
pub(super) struct Delivery<F>(F);

impl<F> Future for Delivery<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut self.0).poll(context).map_ok(|mut response| {
            let undelivered = response.extensions_mut().remove::<Undelivered>();
            match undelivered.and_then(|undelivered| undelivered.take()) {
                Some(grant) => response.map(|body| Body::new(Watched { body, grant: Some(grant) })),
                None => response,
            }
        })
    }
}

/// A body that knows whether it has been handed out whole.
struct Watched {
    body: Body,
    grant: Option<Grant>,
}

impl http_body::Body for Watched {
    type Data = <Body as http_body::Body>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let last = match &frame {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        if let Some(grant) = self.grant.take_if(|_| last) {
            grant.delivered();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
