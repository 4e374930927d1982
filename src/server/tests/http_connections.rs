//! Connection limits of the HTTP/1 listeners, in total and per address.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::support::{Served, read_response, serve, settings};
use crate::server::tests::test_handlers::ByDomain;
use crate::server::{ListenerMetrics, ServerConfig, ServerMetrics};

/// A listener's address, a path that it serves, and its metrics.
type Listener = (SocketAddr, &'static str, fn(&ServerMetrics) -> &ListenerMetrics);

/// A server with its three HTTP/1 listeners, and its metrics.
fn serve_all_listeners(
    tune: impl FnOnce(&mut ServerConfig),
) -> (Served, [Listener; 3], Arc<ServerMetrics>) {
    let mut settings = settings();
    settings.metrics.listen = Some(([127, 0, 0, 1], 0).into());
    tune(&mut settings);
    let metrics = Arc::clone(&settings.server_metrics);
    let server = serve(ByDomain, settings);
    let at = server.addresses;
    let listeners: [Listener; 3] = [
        (at.http, "/healthcheck", |metrics| &metrics.http),
        (at.admin, "/metrics", |metrics| &metrics.admin),
        (at.metrics.unwrap(), "/metrics", |metrics| &metrics.metrics),
    ];
    (server, listeners, metrics)
}

/// Opens `number` silent connections to `port`.
async fn silent(port: SocketAddr, number: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for _ in 0..number {
        open.push(TcpStream::connect(port).await.unwrap());
    }
    open
}

/// Connects, and waits until the server has closed the connection.
async fn assert_refused(port: SocketAddr) {
    let mut stream = TcpStream::connect(port).await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0, "closed without a response");
}

/// The HTTP status of `path`, requested on an open connection. Closes the connection.
async fn status(mut stream: TcpStream, path: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    read_response(&mut stream).await.status
}

#[tokio::test]
async fn the_limit_of_an_address_affects_no_other() {
    let (server, listeners, metrics) = serve_all_listeners(|settings| {
        settings.http.max_connections_per_peer = Some(4);
    });
    for (port, path, _) in listeners {
        let mut open = silent(port, 4).await;
        assert_refused(port).await;
        let other = TcpSocket::new_v4().unwrap();
        other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        assert_eq!(status(other.connect(port).await.unwrap(), path).await, 200, "{port} {path}");
        assert_eq!(status(open.remove(0), path).await, 200, "its open connections are served");
    }
    server.stop().await;
    for (_, path, port) in listeners {
        let port = port(&metrics);
        let counts = (port.accepted.get(), port.refused_peer.get(), port.refused_total.get());
        assert_eq!(counts, (6, 1, 0), "{path}");
    }
}

#[tokio::test]
async fn metrics_listeners_accept_64_connections() {
    let (server, listeners, metrics) = serve_all_listeners(|_| {});
    for (port, path, _) in &listeners[1..] {
        let mut open = silent(*port, 64).await;
        assert_refused(*port).await;
        assert_eq!(status(open.remove(0), path).await, 200, "open connections are served");
    }
    server.stop().await;
    for (_, _, port) in &listeners[1..] {
        let port = port(&metrics);
        assert_eq!(
            (port.accepted.get(), port.refused_total.get(), port.refused_peer.get()),
            (65, 1, 0)
        );
    }
}
