//! Responses of the HTTP and admin ports.

use std::sync::{Mutex, mpsc as std_mpsc};

use tokio::sync::mpsc;

use super::support::{http, in_time, serve, settings};
use crate::server::tests::test_handlers::{ByDomain, observing};

const OK: &str = r#"{"domain": "ok", "descriptors": [{"entries": [{"key": "k"}]}]}"#;

#[tokio::test]
async fn json_accepts_any_method_and_sets_the_status() {
    let server = serve(ByDomain, settings());
    let port = server.addresses.http;
    for method in ["POST", "GET", "PUT", "PATCH", "DELETE"] {
        let answer = http(port, method, "/json", OK).await;
        assert_eq!(answer.status, 200, "{method}");
        assert_eq!(answer.body, r#"{"overallCode":"OK","statuses":[{"code":"OK"}]}"#);
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    }
    let over = http(port, "POST", "/json", &OK.replace("ok", "over")).await;
    assert_eq!(over.status, 429);
    assert!(over.body.starts_with(r#"{"overallCode":"OVER_LIMIT""#), "{}", over.body);
    server.stop().await;
}

#[tokio::test]
async fn json_refuses_invalid_requests_with_the_reason() {
    let mut small = settings();
    small.http.max_body_bytes = 200;
    let server = serve(ByDomain, small);
    let padding = " ".repeat(1000);
    let unit = r#"{"domain": "d", "descriptors": [{"limit": {"requestsPerUnit": 1}}]}"#;
    for (body, status, reason) in [
        ("", 400, "EOF"),
        ("{\"domian\": \"d\"}", 400, "domian"),
        ("{}", 400, "domain must not be empty"),
        (r#"{"domain": "d"}"#, 400, "descriptors must not be empty"),
        (unit, 400, "limit.unit 0 is not a unit"),
        (&OK.replace("ok", "panic"), 500, "internal error"),
        (&format!("{OK}{padding}"), 413, "raise http.max_body_bytes"),
    ] {
        let answer = http(server.addresses.http, "POST", "/json", body).await;
        assert_eq!(answer.status, status, "{body:.40}: {}", answer.body);
        assert!(answer.body.contains(reason), "{body:.40}: {}", answer.body);
        assert!(answer.head.contains("content-type: text/plain"), "{}", answer.head);
    }
    assert_eq!(http(server.addresses.http, "POST", "/json", OK).await.status, 200);
    assert_eq!(http(server.addresses.http, "GET", "/nothing", "").await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn admin_pages_have_the_content_of_the_api() {
    let server = serve(ByDomain, settings());
    for (path, content_type, body) in [
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8", "weir_up 1\n"),
        ("/rules", "application/json", r#"{"files":[]}"#),
        ("/rlconfig", "text/plain; charset=utf-8", "shop.k: unit=SECOND\n"),
        ("/settings", "application/json", r#"{"grpc":{}}"#),
    ] {
        let answer = http(server.addresses.admin, "GET", path, "").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, body));
        let header = format!("content-type: {content_type}\r\n");
        assert!(answer.head.contains(&header), "{}", answer.head);
        let index = http(server.addresses.admin, "GET", "/", "").await;
        assert!(index.body.contains(path), "the index lists {path}");
        assert_eq!(http(server.addresses.admin, "POST", path, "").await.status, 405);
        assert_eq!(http(server.addresses.http, "GET", path, "").await.status, 404);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_defect_of_an_admin_page_has_a_json_body() {
    let server = serve(ByDomain, settings());
    let answer = http(server.addresses.admin, "GET", "/limited", "").await;
    assert_eq!(answer.status, 500, "{}", answer.body);
    let body: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    assert!(body["error"].as_str().is_some_and(|error| error.contains("panicked")), "{body}");
    server.stop().await;
}

/// A request of `/json` keeps its thread busy, and every other path responds meanwhile.
#[tokio::test]
async fn a_busy_json_request_delays_no_other_path() {
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let (go, gate) = std_mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let server = serve(
        observing(move |_| {
            let _ = arrived.send(());
            let _ = gate.lock().unwrap().recv();
        }),
        settings(),
    );
    let at = server.addresses;
    let busy = tokio::spawn(async move { http(at.http, "POST", "/json", OK).await });
    in_time("the request", arrivals.recv()).await.unwrap();
    for (port, path) in [(at.http, "/livez"), (at.http, "/readyz"), (at.admin, "/metrics")] {
        let answer = in_time(path, http(port, "GET", path, "")).await;
        assert_eq!(answer.status, 200, "{path}");
    }
    drop(go);
    assert_eq!(busy.await.unwrap().status, 200);
    server.stop().await;
}
