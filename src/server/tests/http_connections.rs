//! Connection limits of the HTTP/1 listeners, in total and per address.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::support::{Served, in_time, read_response, serve, settings};
use crate::server::tests::test_handlers::ByDomain;
use crate::server::{ListenerMetrics, ServerConfig, ServerMetrics};

/// A listener's address, a path that it serves, and its metrics.
type Listener = (SocketAddr, &'static str, fn(&ServerMetrics) -> &ListenerMetrics);

/// A server with its three HTTP/1 listeners, and its metrics.
fn serve_all_listeners(
    tune: impl FnOnce(&mut ServerConfig),
) -> (Served, [Listener; 3], Arc<ServerMetrics>) {
    let mut settings = settings();
    settings.metrics_listener.listen = Some(([127, 0, 0, 1], 0).into());
    tune(&mut settings);
    let server = serve(ByDomain, settings);
    let metrics = Arc::clone(&server.metrics);
    let at = server.addresses;
    let listeners: [Listener; 3] = [
        (at.http, "/healthcheck", |metrics| &metrics.http),
        (at.admin, "/metrics", |metrics| &metrics.admin),
        (at.metrics.unwrap(), "/metrics", |metrics| &metrics.metrics),
    ];
    (server, listeners, metrics)
}

/// Opens a connection to `port` from the address 127.0.0.`host`.
pub(super) async fn connect_from(host: u8, port: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, host], 0).into()).unwrap();
    socket.connect(port).await.unwrap()
}

/// Opens `number` silent connections to `port` from the address 127.0.0.`host`.
async fn silent(host: u8, port: SocketAddr, number: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for _ in 0..number {
        open.push(connect_from(host, port).await);
    }
    open
}

/// Waits until the server has closed a connection without a response.
async fn assert_closed(mut stream: TcpStream) {
    let read = in_time("the close", stream.read(&mut [0; 1])).await;
    assert_eq!(read.unwrap_or(0), 0);
}

/// The HTTP status of `path`, requested on an open connection. Closes the connection.
async fn status(mut stream: TcpStream, path: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    read_response(&mut stream).await.status
}

/// The connections that a listener accepted, evicted and refused.
fn counts(listener: &ListenerMetrics) -> [u64; 4] {
    let ListenerMetrics { accepted, evicted, refused_total, refused_peer, .. } = listener;
    [accepted, evicted, refused_total, refused_peer].map(|metric| metric.get())
}

#[tokio::test]
async fn an_address_at_its_limit_affects_no_other() {
    let (server, listeners, metrics) = serve_all_listeners(|settings| {
        settings.http.max_connections_per_peer = Some(4);
    });
    for (port, path, _) in listeners {
        let other = connect_from(2, port).await;
        let mut open = silent(1, port, 8).await;
        for newest in open.split_off(4) {
            assert_eq!(status(newest, path).await, 200, "{port} {path}");
        }
        for oldest in open {
            assert_closed(oldest).await;
        }
        assert_eq!(status(other, path).await, 200, "{port} {path}");
    }
    server.stop().await;
    for (_, path, listener) in listeners {
        assert_eq!(counts(listener(&metrics)), [9, 4, 0, 0], "{path}");
    }
}

/// An address gets a quarter of the 64 connections.
#[tokio::test]
async fn metrics_listeners_accept_64_connections() {
    let (server, listeners, metrics) = serve_all_listeners(|_| {});
    for (port, path, _) in &listeners[1..] {
        let mut first = silent(1, *port, 17).await;
        assert_closed(first.remove(0)).await;
        let mut others = Vec::new();
        for host in 2..=4 {
            others.extend(silent(host, *port, 16).await);
        }
        let fifth = connect_from(5, *port).await;
        // Each of the four has as many, and one of them gives way.
        assert_closed(others.remove(32)).await;
        for open in [fifth, first.remove(0), others.remove(0)] {
            assert_eq!(status(open, path).await, 200, "{port} {path}");
        }
    }
    server.stop().await;
    for (_, path, listener) in &listeners[1..] {
        assert_eq!(counts(listener(&metrics)), [66, 2, 0, 0], "{path}");
    }
}
