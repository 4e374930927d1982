//! The service that asks for a decision before it calls another one.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body::Body as HttpBody;
use tonic::body::Body;
use tonic::client::GrpcService;
use tower_service::Service;

use crate::call::{BoxError, ask};
use crate::messages::{RateLimitRequest, RateLimitResponse};
use crate::{Descriptor, FailureMode, RateLimitLayer};

/// The service that [`RateLimitLayer`] makes of another one.
#[derive(Clone)]
pub struct RateLimit<S, D, C> {
    pub(crate) inner: S,
    pub(crate) layer: RateLimitLayer<D, C>,
}

impl<S, D, C, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S, D, C>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: 'static,
    D: Fn(&Request<ReqBody>) -> Vec<Descriptor>,
    C: GrpcService<Body> + Clone + Send + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError> + Send,
    C::ResponseBody: Send + 'static,
    <C::ResponseBody as HttpBody>::Error: Into<BoxError>,
    ReqBody: Send + 'static,
    ResBody: Default + 'static,
{
    type Response = Response<ResBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResBody>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        // This service is ready, and its clone may not be.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let descriptors = (self.layer.descriptors)(&request);
        if descriptors.is_empty() {
            return Box::pin(inner.call(request));
        }
        let asked = RateLimitRequest {
            domain: self.layer.domain.to_string(),
            descriptors: descriptors.into_iter().map(|descriptor| descriptor.0).collect(),
        };
        let answer = ask(self.layer.channel.clone(), asked, self.layer.deadline);
        let on_failure = Arc::clone(&self.layer.on_failure);
        Box::pin(async move {
            match answer.await {
                Ok(answer) if answer.is_denial() => Ok(denial(&answer)),
                Ok(answer) => {
                    let mut response = inner.call(request).await?;
                    answer.add_headers(response.headers_mut());
                    Ok(response)
                }
                Err(status) => match on_failure(&status) {
                    FailureMode::Pass => inner.call(request).await,
                    FailureMode::Stop => Ok(empty(StatusCode::SERVICE_UNAVAILABLE)),
                },
            }
        })
    }
}

/// Status 429 with the headers of the answer, and `retry-after` in any case.
fn denial<B: Default>(answer: &RateLimitResponse) -> Response<B> {
    let mut response = empty(StatusCode::TOO_MANY_REQUESTS);
    let headers = response.headers_mut();
    answer.add_headers(headers);
    if !headers.contains_key(RETRY_AFTER) {
        headers.insert(RETRY_AFTER, HeaderValue::from(answer.retry_after()));
    }
    response
}

fn empty<B: Default>(status: StatusCode) -> Response<B> {
    let mut response = Response::new(B::default());
    *response.status_mut() = status;
    response
}
