//! The layer of crates/weir-tower around an axum router, with a real weir, without one, and with a server that
//! never responds.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderMap, Request, StatusCode};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tower_service::Service;
use weir_tower::{Descriptor, FailureMode, RateLimitLayer};

use crate::support::weir::Weir;
use crate::support::window_edge::within_a_minute;

/// An application that limits requests by their header `x-user`.
struct App {
    runtime: Runtime,
    router: Router,
    /// The reasons why requests had no decision.
    failures: Arc<Mutex<Vec<Code>>>,
}

impl App {
    /// Asks the weir at `address`, and connects with the first request.
    fn new(address: SocketAddr, deadline: Duration, mode: FailureMode) -> App {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a valid address");
        let channel = {
            let _inside = runtime.enter();
            endpoint.connect_lazy()
        };
        let failures = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&failures);
        let by_user = |request: &Request<Body>| match request.headers().get("x-user") {
            Some(user) => vec![Descriptor::new("user", user.to_str().expect("a text"))],
            None => Vec::new(),
        };
        let limit = RateLimitLayer::new(channel, "demo", by_user).deadline(deadline).on_failure(
            move |status: &Status| {
                seen.lock().expect("no test panics").push(status.code());
                mode
            },
        );
        let router = Router::new().route("/", get(|| async { "served" })).layer(limit);
        App { runtime, router, failures }
    }

    /// The status and the headers of the response to a request.
    fn get(&self, user: Option<&str>) -> (StatusCode, HeaderMap) {
        let mut request = Request::builder().uri("/");
        if let Some(user) = user {
            request = request.header("x-user", user);
        }
        let request: Request<Body> = request.body(Body::empty()).expect("a request");
        let mut router = self.router.clone();
        let call = Service::<Request<Body>>::call(&mut router, request);
        let response = self.runtime.block_on(call).expect("infallible");
        (response.status(), response.headers().clone())
    }

    fn failures(&self) -> Vec<Code> {
        self.failures.lock().expect("no test panics").clone()
    }
}

/// A deadline that no call reaches.
const UNHURRIED: Duration = Duration::from_secs(30);

#[test]
fn the_tower_layer_asks_weir() {
    within_a_minute(|| {
        let weir = Weir::example().env("WEIR__RESPONSE__HEADERS", "ietf").start();
        let app = App::new(weir.grpc, UNHURRIED, FailureMode::Stop);
        for (status, remaining) in [(200_u16, "2"), (200, "1"), (200, "0"), (429, "0")] {
            let (got, headers) = app.get(Some("tower"));
            assert_eq!(got, status, "{headers:?}");
            let limit = headers["ratelimit"].to_str().expect("a text");
            assert!(limit.contains(&format!(";r={remaining}")), "{headers:?}");
            assert_eq!(headers.contains_key("retry-after"), status == 429, "{headers:?}");
        }
        let (status, headers) = app.get(None);
        assert_eq!(status, 200, "a request without descriptors");
        assert!(!headers.contains_key("ratelimit"), "{headers:?}");
        assert!(app.failures().is_empty(), "{:?}", app.failures());
        let accepted = weir.metric("weir_connections_accepted_total", &["listener=\"grpc\""]);
        assert_eq!(accepted, 1, "clones of a channel share its connection");
    });
}

/// Without headers of weir, the layer adds `retry-after`.
#[test]
fn a_denial_of_the_tower_layer_has_retry_after() {
    within_a_minute(|| {
        let weir = Weir::example().start();
        let app = App::new(weir.grpc, UNHURRIED, FailureMode::Stop);
        for status in [200_u16, 200, 200, 429] {
            let (got, headers) = app.get(Some("tower"));
            assert_eq!(got, status, "{headers:?}");
            let wait = headers.get("retry-after").map(|wait| wait.to_str().expect("a text"));
            let wait: Option<u64> = wait.map(|wait| wait.parse().expect("seconds"));
            assert_eq!(wait.is_some(), status == 429);
            assert!(wait.is_none_or(|wait| (1..=60).contains(&wait)), "{wait:?}");
        }
        assert!(app.failures().is_empty(), "{:?}", app.failures());
    });
}

#[test]
fn the_tower_layer_passes_or_stops_without_weir() {
    // No process listens on port 1 of loopback.
    let gone = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    for (mode, status) in [(FailureMode::Pass, 200_u16), (FailureMode::Stop, 503)] {
        let app = App::new(gone, UNHURRIED, mode);
        for _ in 0..2 {
            assert_eq!(app.get(Some("tower")).0, status);
        }
        assert_eq!(app.failures(), [Code::Unavailable; 2]);
    }
}

#[test]
fn the_tower_layer_passes_at_the_deadline() {
    const DEADLINE: Duration = Duration::from_millis(100);
    // The kernel accepts connections, and nothing responds.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = silent.local_addr().expect("a bound socket");
    let app = App::new(address, DEADLINE, FailureMode::Pass);
    let start = Instant::now();
    for _ in 0..2 {
        assert_eq!(app.get(Some("tower")).0, 200);
    }
    assert!(start.elapsed() >= 2 * DEADLINE, "{:?}", start.elapsed());
    assert_eq!(app.failures(), [Code::DeadlineExceeded; 2]);
}
