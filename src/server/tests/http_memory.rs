//! Clients of the HTTP/1 listeners that make the server hold memory: large bodies that do not end,
//! and pages that are not read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::http_connections::connect_from;
use super::support::{
    HttpResponse, Served, http, in_time, read_response, serve, serve_metrics, settings, wait_until,
};
use crate::descriptor::Request;
use crate::server::ServerMetrics;
use crate::server::tests::test_handlers::{ByDomain, observing};

const OK: &str = r#"{"domain": "ok", "descriptors": [{"entries": [{"key": "k"}]}]}"#;

/// Large bodies of one address that may be in memory at the same time.
const LARGE_MAX: usize = 16;

/// A connection that has sent the first `sent` of 100 000 bytes of a body.
async fn half_sent(to: SocketAddr, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let head = "POST /json HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that refuses the body may close before it has read all of it.
    let _ = stream.write_all(&vec![b' '; sent]).await;
    stream
}

#[tokio::test]
async fn unfinished_bodies_are_bounded_in_sum() {
    let mut settings = settings();
    settings.http.request_timeout = Duration::from_secs(120);
    let server = serve(ByDomain, settings);
    let metrics = Arc::clone(&server.metrics);
    let port = server.addresses.http;
    let mut open = Vec::new();
    for _ in 0..LARGE_MAX + 8 {
        open.push(half_sent(port, 50_000).await);
    }
    wait_until("the refusals", || metrics.http_busy.get() == 8).await;
    // Small bodies need no permit, also those that do not end.
    let _small: [TcpStream; 2] = [half_sent(port, 10).await, half_sent(port, 8000).await];
    assert_eq!(http(port, "POST", "/json", OK).await.status, 200);
    for path in ["/healthcheck", "/livez", "/readyz"] {
        assert_eq!(http(port, "GET", path, "").await.status, 200, "{path}");
    }
    let large = format!("{OK}{}", " ".repeat(50_000));
    let refused = http(port, "POST", "/json", &large).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(post_from(2, port, &large).await.status, 200, "another address");
    drop(open);
    wait_until("the end of the connections", || metrics.http.open.get() <= 2).await;
    assert_eq!(http(port, "POST", "/json", &large).await.status, 200);
    server.stop().await;
}

/// The response to `body`, sent from the address 127.0.0.`host`.
async fn post_from(host: u8, port: SocketAddr, body: &str) -> HttpResponse {
    let mut stream = connect_from(host, port).await;
    let length = body.len();
    let head = "POST /json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let request = format!("{head}content-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    read_response(&mut stream).await
}

/// A request whose response may be large is refused before it is counted, or gets its response.
#[tokio::test]
async fn a_counted_request_gets_its_response() {
    let decided = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&decided);
    let count = move |_: &Request<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let server = serve(observing(count), settings());
    let metrics = Arc::clone(&server.metrics);
    let port = server.addresses.http;
    let descriptor = r#"{"entries": [{"key": "k"}]}"#;
    let body = |number: usize| {
        let descriptors = vec![descriptor; number].join(",");
        format!(r#"{{"domain": "ok", "descriptors": [{descriptors}]}}"#)
    };
    let mut open = Vec::new();
    for _ in 0..=LARGE_MAX {
        open.push(half_sent(port, 50_000).await);
    }
    wait_until("the refusal", || metrics.http_busy.get() == 1).await;
    assert_eq!(http(port, "POST", "/json", &body(17)).await.status, 503);
    assert_eq!(decided.load(Ordering::Relaxed), 0, "it was not counted");
    assert_eq!(http(port, "POST", "/json", &body(16)).await.status, 200);
    assert_eq!(decided.load(Ordering::Relaxed), 1);
    drop(open);
    server.stop().await;
}

/// A server with room for one page of metrics in memory. The page does not fit into the buffers of
/// the kernel.
fn serve_one_page(request_timeout: Duration) -> (Served, Arc<ServerMetrics>) {
    let mut settings = settings();
    settings.admin.max_connections = 2;
    settings.http.request_timeout = request_timeout;
    let served = serve_metrics(ByDomain, settings, "x".repeat(32 << 20));
    let metrics = Arc::clone(&served.metrics);
    (served, metrics)
}

/// Requests the metrics, and reads the first byte of the response.
async fn begin_page(host: u8, admin: SocketAddr) -> TcpStream {
    let mut stream = connect_from(host, admin).await;
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(in_time("the response", stream.read(&mut [0; 1])).await.unwrap(), 1);
    stream
}

/// Requests the metrics, and reads the response, whose status lacks its first letter.
async fn read_page(host: u8, admin: SocketAddr) -> HttpResponse {
    let mut stream = begin_page(host, admin).await;
    in_time("the rest of the response", read_response(&mut stream)).await
}

#[tokio::test]
async fn pages_over_their_maximum_are_refused() {
    let (server, metrics) = serve_one_page(Duration::from_secs(120));
    let admin = server.addresses.admin;
    let unread = begin_page(1, admin).await;
    let refused = read_page(2, admin).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(metrics.http_busy.get(), 1);
    for path in ["/healthcheck", "/livez", "/readyz"] {
        assert_eq!(http(server.addresses.http, "GET", path, "").await.status, 200, "{path}");
    }
    drop(unread);
    wait_until("the end of the connections", || metrics.admin.open.get() == 0).await;
    let page = read_page(2, admin).await;
    assert_eq!((page.status, page.body.len()), (200, 32 << 20));
    server.stop().await;
}

#[tokio::test]
async fn an_unread_page_is_closed_and_frees_its_place() {
    let (server, metrics) = serve_one_page(Duration::from_secs(3));
    let admin = server.addresses.admin;
    let _unread = begin_page(1, admin).await;
    wait_until("the timeout", || metrics.http_timeout.get() == 1).await;
    wait_until("the end of the connection", || metrics.admin.open.get() == 0).await;
    assert_eq!(read_page(2, admin).await.status, 200);
    server.stop().await;
}
