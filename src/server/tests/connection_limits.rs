//! Time limits and connection limits: the server closes slow and silent clients, and serves others.
//!
//! The time limits are short. The tests wait for events of the server and do not assert durations.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};

use super::support::{http, in_time, read_response, request, serve, settings_over, wait_until};
use crate::server::ServerConfig;
use crate::server::tests::test_handlers::{Blocking, ByDomain};

const SHORT: Duration = Duration::from_millis(50);

/// Settings with short time limits.
fn short_timeouts(fast_path: bool) -> ServerConfig {
    let mut settings = settings_over(fast_path);
    settings.grpc.handshake_timeout = SHORT;
    settings.http.head_timeout = SHORT;
    settings.http.request_timeout = SHORT;
    settings
}

/// Waits until the server has closed `stream`.
async fn wait_until_closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    let _ = in_time("the close", stream.read_to_end(&mut rest)).await;
}

async fn silent_connections_are_closed_on_every_port(fast_path: bool) {
    let server = serve(ByDomain, short_timeouts(fast_path));
    for port in [server.addresses.grpc, server.addresses.http] {
        wait_until_closed(TcpStream::connect(port).await.unwrap()).await;
        let mut half = TcpStream::connect(port).await.unwrap();
        half.write_all(b"PRI * HT").await.unwrap();
        wait_until_closed(half).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn missing_body_times_out() {
    let server = serve(ByDomain, short_timeouts(true));
    let mut stream = TcpStream::connect(server.addresses.http).await.unwrap();
    let head = b"POST /json HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(head).await.unwrap();
    assert_eq!(read_response(&mut stream).await.status, 408);
    server.stop().await;
}

/// At the maximum, a new connection replaces one that waits for its client, and is refused beside
/// one that is in use.
async fn a_connection_over_the_maximum_is_closed(fast_path: bool) {
    let body = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "k"}]}]}"#;
    let length = body.len();
    let head = format!("POST /json HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n");
    let undecided = [head, body.to_owned()].concat();
    let mut settings = settings_over(fast_path);
    settings.grpc.max_connections = 1;
    settings.http.max_connections = 1;
    let (arrived, _arrivals) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let server = serve(Blocking { arrived, go: Arc::clone(&go) }, settings);
    let metrics = Arc::clone(&server.metrics);
    let (grpc, http_port) = (server.addresses.grpc, server.addresses.http);
    for (address, port, begins) in
        [(grpc, &metrics.grpc, PREFACE), (http_port, &metrics.http, undecided.as_bytes())]
    {
        let silent = TcpStream::connect(address).await.unwrap();
        let mut used = TcpStream::connect(address).await.unwrap();
        wait_until_closed(silent).await;
        used.write_all(begins).await.unwrap();
        let in_use = || port.open.get() == 1 && port.waiting.get() == 0;
        wait_until("the connection to be in use", in_use).await;
        wait_until_closed(TcpStream::connect(address).await.unwrap()).await;
        drop(used);
        // The server detects a close only when it reads from the connection, so the count may lag.
        wait_until("the close to be counted", || port.open.get() == 0).await;
    }
    assert_eq!(http(http_port, "GET", "/livez", "").await.status, 200);
    go.add_permits(1);
    server.try_call().await.unwrap();
    server.stop().await;
    for port in [&metrics.grpc, &metrics.http] {
        assert_eq!((port.evicted.get(), port.refused_total.get()), (1, 1));
    }
}

async fn a_message_over_the_maximum_is_refused(fast_path: bool) {
    let mut small = settings_over(fast_path);
    small.grpc.max_message_bytes = 1000;
    let server = serve(ByDomain, small);
    let metrics = Arc::clone(&server.metrics);
    let mut client = server.client().await;
    let mut large = request("ok");
    large.descriptors[0].entries[0].value = "v".repeat(1000);
    let status = client.should_rate_limit(large).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::OutOfRange);
    client.should_rate_limit(request("ok")).await.unwrap();
    server.stop().await;
    assert_eq!(metrics.message_too_large.get(), 1);
}

/// The preface of an HTTP/2 connection, with an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const GOAWAY: u8 = 7;

async fn an_old_connection_gets_goaway(fast_path: bool) {
    let mut short_lived = settings_over(fast_path);
    // Longer than SHORT: even on a busy machine, the preface must arrive before the age is reached.
    short_lived.grpc.max_connection_age = Some(10 * SHORT);
    let server = serve(ByDomain, short_lived);
    let metrics = Arc::clone(&server.metrics);
    let mut stream = TcpStream::connect(server.addresses.grpc).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    let mut reply = Vec::new();
    while !frame_types(&reply).contains(&GOAWAY) {
        assert_ne!(stream.read_buf(&mut reply).await.unwrap(), 0, "closed without GOAWAY");
    }
    drop(stream);
    server.stop().await;
    assert_eq!(metrics.aged.get(), 1);
}

async fn an_old_connection_is_closed_after_its_grace(fast_path: bool) {
    let mut short_lived = settings_over(fast_path);
    // Longer than SHORT: the age must end an open connection, not one without a preface.
    short_lived.grpc.max_connection_age = Some(10 * SHORT);
    short_lived.grpc.max_connection_age_grace = SHORT;
    let server = serve(ByDomain, short_lived);
    let metrics = Arc::clone(&server.metrics);
    let mut stream = TcpStream::connect(server.addresses.grpc).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    wait_until_closed(stream).await;
    server.stop().await;
    assert_eq!(metrics.grace_expired.get(), 1);
}

async fn drain_ends_at_its_timeout(fast_path: bool) {
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let mut settings = settings_over(fast_path);
    settings.drain.timeout = SHORT;
    let server = serve(Blocking { arrived, go: Arc::new(Semaphore::new(0)) }, settings);
    let mut client = server.client().await;
    let call = tokio::spawn(async move { client.should_rate_limit(request("d")).await });
    arrivals.recv().await.unwrap();
    server.stop().await;
    call.await.unwrap().unwrap_err();
}

/// The type of each HTTP/2 frame in `bytes`.
fn frame_types(mut bytes: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    while let [a, b, c, kind, ..] = *bytes {
        types.push(kind);
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        bytes = bytes.get(9 + length..).unwrap_or_default();
    }
    types
}

over_both_paths! {
    silent_connections_are_closed_on_every_port,
    a_connection_over_the_maximum_is_closed,
    a_message_over_the_maximum_is_refused,
    an_old_connection_gets_goaway,
    an_old_connection_is_closed_after_its_grace,
    drain_ends_at_its_timeout,
}
