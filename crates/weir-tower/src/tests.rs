//! Requests through the layer, with a fake channel.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use prost::Message;
use prost::bytes::Bytes;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::messages::{
    DescriptorStatus, RateLimitRequest, RateLimitResponse, ResetDuration, ResponseHeader,
};
use crate::{DEFAULT_DEADLINE, Descriptor, FailureMode, RateLimitLayer};

const OK: i32 = 1;
const OVER_LIMIT: i32 = 2;

/// What a call gets.
#[derive(Clone)]
enum Answer {
    Decision(RateLimitResponse),
    Failure(Code),
    Nothing,
}

/// A channel, and what it has received: the header `grpc-timeout` and the message of each call.
#[derive(Clone)]
struct FakeWeir {
    answer: Answer,
    calls: Arc<Mutex<Vec<(HeaderValue, RateLimitRequest)>>>,
}

impl FakeWeir {
    fn new(answer: Answer) -> FakeWeir {
        FakeWeir { answer, calls: Arc::default() }
    }

    fn calls(&self) -> Vec<(HeaderValue, RateLimitRequest)> {
        self.calls.lock().expect("no test panics").clone()
    }
}

impl Service<Request<Body>> for FakeWeir {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (answer, calls) = (self.answer.clone(), Arc::clone(&self.calls));
        Box::pin(async move {
            let timeout = request.headers()["grpc-timeout"].clone();
            let bytes = request.into_body().collect().await.expect("a body").to_bytes();
            // A flag and the length are before the message.
            let message = RateLimitRequest::decode(&bytes[5..]).expect("a request");
            calls.lock().expect("no test panics").push((timeout, message));
            match answer {
                Answer::Decision(response) => Ok(success(&response)),
                Answer::Failure(code) => {
                    let mut response = Response::new(Body::empty());
                    response.headers_mut().insert("grpc-status", (code as i32).into());
                    Ok(response)
                }
                Answer::Nothing => std::future::pending().await,
            }
        })
    }
}

/// A response of gRPC with one message.
fn success(message: &RateLimitResponse) -> Response<Body> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).expect("a short message");
    let mut frame = vec![0];
    frame.extend(length.to_be_bytes());
    frame.extend(message);
    let trailers = async {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Some(Ok(trailers))
    };
    Response::new(Body::new(Full::new(Bytes::from(frame)).with_trailers(trailers)))
}

/// A function that maps requests to descriptors.
type ByUser = fn(&Request<String>) -> Vec<Descriptor>;

fn by_user(request: &Request<String>) -> Vec<Descriptor> {
    match request.body().as_str() {
        "" => Vec::new(),
        user => vec![Descriptor::new("user", user)],
    }
}

fn limit(weir: &FakeWeir) -> RateLimitLayer<ByUser, FakeWeir> {
    RateLimitLayer::new(weir.clone(), "demo", by_user as ByUser)
}

/// The response to a request of `user`, by a service that answers "served". It has the header `x-own`.
async fn send(layer: &RateLimitLayer<ByUser, FakeWeir>, user: &str) -> Response<String> {
    let served = service_fn(|_: Request<String>| async {
        let mut response = Response::new("served".to_owned());
        response.headers_mut().insert("x-own", HeaderValue::from_static("1"));
        Ok::<_, Infallible>(response)
    });
    let response = layer.layer(served).oneshot(Request::new(user.to_owned())).await;
    let response = response.expect("infallible");
    let is_served = response.body() == "served" && response.headers().contains_key("x-own");
    assert_eq!(is_served, response.status() == StatusCode::OK, "{response:?}");
    response
}

fn header(key: &str, value: &str) -> ResponseHeader {
    ResponseHeader { key: key.to_owned(), value: value.to_owned(), ..Default::default() }
}

#[tokio::test]
async fn decisions_become_responses() {
    let reset = Some(ResetDuration { seconds: 9, nanos: 1 });
    let over = DescriptorStatus { code: OVER_LIMIT, duration_until_reset: reset };
    let limit_header = || header("x-ratelimit-limit", "3");
    // The code, headers of the answer, statuses; then the status, `retry-after` and the limit.
    let table = [
        (OK, vec![], vec![], 200_u16, None, None),
        (OK, vec![limit_header()], vec![], 200, None, Some("3")),
        (OVER_LIMIT, vec![limit_header()], vec![], 429, Some("1"), Some("3")),
        (OVER_LIMIT, vec![], vec![over.clone()], 429, Some("10"), None),
        (OVER_LIMIT, vec![header("retry-after", "7")], vec![over], 429, Some("7"), None),
    ];
    for (overall_code, response_headers_to_add, statuses, status, retry, shown_limit) in table {
        let answer = RateLimitResponse { overall_code, statuses, response_headers_to_add };
        let weir = FakeWeir::new(Answer::Decision(answer));
        let response = send(&limit(&weir), "alice").await;
        assert_eq!(response.status(), status);
        let values = |name: &str| {
            let values = response.headers().get_all(name).iter();
            values.map(|value| value.to_str().expect("a text")).collect::<Vec<&str>>()
        };
        assert_eq!(values("retry-after"), Vec::from_iter(retry));
        assert_eq!(values("x-ratelimit-limit"), Vec::from_iter(shown_limit));
    }
}

#[tokio::test]
async fn calls_have_the_descriptors_and_the_deadline() {
    let answer = Answer::Decision(RateLimitResponse { overall_code: OK, ..Default::default() });
    let table = [
        // Microseconds.
        (Duration::from_secs(2), "2000000u"),
        // gRPC has no longer timeouts.
        (Duration::MAX, "99999999H"),
    ];
    for (deadline, timeout) in table {
        let weir = FakeWeir::new(answer.clone());
        let layer = limit(&weir).deadline(deadline);
        send(&layer, "").await;
        assert!(weir.calls().is_empty(), "a request without descriptors passes without a call");
        send(&layer, "alice").await;
        let request = RateLimitRequest {
            domain: "demo".to_owned(),
            descriptors: vec![Descriptor::new("user", "alice").0],
        };
        assert_eq!(weir.calls(), [(HeaderValue::from_static(timeout), request)]);
    }
}

/// A layer that stops or passes requests without a decision, and the codes of the failures.
fn watched(
    weir: &FakeWeir,
    mode: FailureMode,
) -> (RateLimitLayer<ByUser, FakeWeir>, Arc<Mutex<Vec<Code>>>) {
    let codes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&codes);
    let layer = limit(weir).on_failure(move |status: &Status| {
        seen.lock().expect("no test panics").push(status.code());
        mode
    });
    (layer, codes)
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_decision_pass_or_stop() {
    let table = [
        (Answer::Failure(Code::Unavailable), Code::Unavailable),
        (Answer::Failure(Code::InvalidArgument), Code::InvalidArgument),
        (Answer::Nothing, Code::DeadlineExceeded),
    ];
    for (answer, code) in table {
        let weir = FakeWeir::new(answer);
        assert_eq!(send(&limit(&weir), "alice").await.status(), 200, "without a function");
        for (mode, status) in [(FailureMode::Pass, 200_u16), (FailureMode::Stop, 503)] {
            let (layer, codes) = watched(&weir, mode);
            assert_eq!(send(&layer, "alice").await.status(), status);
            assert_eq!(*codes.lock().expect("no test panics"), [code]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline() {
    let weir = FakeWeir::new(Answer::Nothing);
    for deadline in [DEFAULT_DEADLINE, Duration::from_millis(200)] {
        let start = Instant::now();
        let response = send(&limit(&weir).deadline(deadline), "alice").await;
        assert_eq!(response.status(), 200);
        // Timers have a resolution of 1 ms.
        let took = start.elapsed();
        assert!(took >= deadline && took <= deadline + Duration::from_millis(2), "{took:?}");
    }
}
