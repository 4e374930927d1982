//! The end of the drain, whatever clients do.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::support::{in_time, serve, settings, wait_until};
use crate::server::tests::test_handlers::ByDomain;

/// Longer than a test waits for the stop.
const LONG: Duration = Duration::from_secs(120);

/// Clients that send half of a head or of a body, on each HTTP/1 listener.
#[tokio::test]
async fn slow_http_clients_do_not_outlast_the_drain() {
    let mut settings = settings();
    settings.metrics_listener.listen = Some(([127, 0, 0, 1], 0).into());
    settings.http.head_timeout = LONG;
    settings.http.request_timeout = LONG;
    settings.drain.timeout = Duration::from_millis(50);
    let server = serve(ByDomain, settings);
    let metrics = Arc::clone(&server.metrics);
    let at = server.addresses;
    let half_body = |path: &str| {
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{{")
    };
    let half_head = || "GET / HTTP/1.1\r\nhost: loc".to_owned();
    let mut slow = Vec::new();
    for (address, bytes) in [
        (at.http, half_head()),
        (at.http, half_body("/json")),
        (at.admin, half_head()),
        (at.admin, half_body("/explain")),
        (at.metrics.unwrap(), half_head()),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    // A connection waits until its request is complete.
    for (listener, open) in [(&metrics.http, 2), (&metrics.admin, 2), (&metrics.metrics, 1)] {
        let arrived = || listener.open.get() == open && listener.waiting.get() == open;
        wait_until("the clients to arrive", arrived).await;
    }
    in_time("the end of the drain", server.stop()).await;
    drop(slow);
}
