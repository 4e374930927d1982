//! One call of `ShouldRateLimit`, within a deadline.

use std::error::Error;
use std::time::Duration;

use http::uri::PathAndQuery;
use http_body::Body as HttpBody;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::messages::{RateLimitRequest, RateLimitResponse};

/// The error of a body or a channel.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The path of the method.
const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The answer of the service. The deadline includes the time of a new connection.
pub(crate) async fn ask<C>(
    channel: C,
    request: RateLimitRequest,
    deadline: Duration,
) -> Result<RateLimitResponse, Status>
where
    C: GrpcService<Body>,
    C::Error: Into<BoxError>,
    C::ResponseBody: Send + 'static,
    <C::ResponseBody as HttpBody>::Error: Into<BoxError>,
{
    // The service gets the deadline, too, which also starts a timeout in tonic. That one would have another
    // status, so this one is polled first.
    tokio::select! {
        biased;
        () = tokio::time::sleep(deadline) => {
            Err(Status::deadline_exceeded("no response within the deadline"))
        }
        answer = send(channel, request, deadline) => answer,
    }
}

async fn send<C>(
    channel: C,
    request: RateLimitRequest,
    deadline: Duration,
) -> Result<RateLimitResponse, Status>
where
    C: GrpcService<Body>,
    C::Error: Into<BoxError>,
    C::ResponseBody: Send + 'static,
    <C::ResponseBody as HttpBody>::Error: Into<BoxError>,
{
    let mut client = Grpc::new(channel);
    if let Err(error) = client.ready().await {
        let error: BoxError = error.into();
        return Err(Status::unavailable(error.to_string()));
    }
    let mut request = Request::new(request);
    request.set_timeout(deadline);
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    let answer = client.unary(request, PathAndQuery::from_static(METHOD), codec).await;
    answer.map(Response::into_inner)
}
