//! Hostile clients: their connections or calls end, and other clients are served meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::raw::{
    CONTINUATION, DATA, END_HEADERS, ENHANCE_YOUR_CALM, HEADERS, PING, REFUSED_STREAM, RST_STREAM,
    Raw, SETTINGS, call, call_headers, frame, streams,
};
use super::support::{Served, in_time, read_response, request, serve_one_worker, wait_until};
use crate::atomic_count::AtomicCount;
use crate::server::tests::test_handlers::{ByDomain, observing};
use crate::server::{ServerConfig, ServerMetrics};

const SHORT: Duration = Duration::from_millis(50);

/// A server with one worker, and its metrics.
fn serving(fast_path: bool, tune: impl FnOnce(&mut ServerConfig)) -> (Served, Arc<ServerMetrics>) {
    serve_one_worker(ByDomain, fast_path, tune)
}

/// Waits until `counter` is one. The server may count after it has responded.
async fn counted(counter: &AtomicCount) {
    wait_until("the count", || counter.get() > 0).await;
    assert_eq!(counter.get(), 1);
}

/// Sends frames of `flood` until the server closes the connection. Another client is served before
/// and after. Returns the code of the GOAWAY and the number of frames sent.
async fn flood(server: &Served, flood: impl Fn(u32) -> Vec<u8>) -> (Option<u32>, usize) {
    server.try_call().await.unwrap();
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    let mut sent = 0;
    for stream in streams().take(1_000_000) {
        if !hostile.send(&flood(stream)).await {
            break;
        }
        sent += 1;
        // Read the responses, or the server would stop reading until its writes succeed.
        let mut answers = [0; 4096];
        if hostile.stream.try_read(&mut answers).is_ok_and(|bytes| bytes == 0) {
            break;
        }
    }
    server.try_call().await.unwrap();
    (hostile.goaway_reason().await, sent)
}

async fn rapid_resets_close_the_connection(fast_path: bool) {
    let (server, metrics) = serving(fast_path, |settings| settings.grpc.max_pending_resets = 64);
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    let reset = |stream| {
        let headers = frame(HEADERS, END_HEADERS, stream, &call_headers());
        [headers, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    // One write: the server reads each call together with its reset.
    let burst: Vec<u8> = streams().take(2000).flat_map(reset).collect();
    let _ = hostile.send(&burst).await;
    assert_eq!(hostile.goaway_reason().await, Some(ENHANCE_YOUR_CALM));
    server.try_call().await.unwrap();
    server.stop().await;
    assert_eq!(metrics.flood.get(), 1);
}

async fn control_frame_floods_close_the_connection(fast_path: bool) {
    /// The name of a flood, and its frame for a stream number.
    type Flood<'a> = (&'a str, &'a dyn Fn(u32) -> Vec<u8>);
    let floods: [Flood<'_>; 4] = [
        ("pings", &|_| frame(PING, 0, 0, &[0; 8])),
        ("settings", &|_| frame(SETTINGS, 0, 0, &[])),
        ("priorities", &|stream| frame(2, 0, stream, &[0, 0, 0, 0, 1])),
        ("unknown", &|_| frame(99, 0, 0, b"?")),
    ];
    for (what, bytes) in floods {
        let (server, metrics) =
            serving(fast_path, |settings| settings.grpc.max_control_frames = 500);
        let (_, sent) = flood(&server, bytes).await;
        assert!(sent < 1_000_000, "{what}: {sent} passed");
        server.stop().await;
        assert_eq!(metrics.flood.get(), 1, "{what}");
    }
}

async fn a_client_that_makes_calls_may_ping_and_reset(fast_path: bool) {
    let (server, metrics) = serving(fast_path, |settings| settings.grpc.max_control_frames = 10);
    let mut client = Raw::connect(server.addresses.grpc, &[]).await;
    for stream in streams().take(500) {
        assert!(client.send(&call(stream, "ok")).await);
        assert!(client.send(&frame(PING, 0, 0, &[7; 8])).await);
        loop {
            let reply = client.next().await.expect("the connection stays");
            if reply.kind == PING && reply.payload == [7; 8] {
                break;
            }
        }
    }
    assert_eq!(metrics.flood.get(), 0);
    drop(client);
    server.stop().await;
}

async fn endless_headers_close_the_connection(fast_path: bool) {
    let (server, metrics) = serving(fast_path, |_| {});
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    assert!(hostile.send(&frame(HEADERS, 0, 1, &call_headers())).await);
    let more = frame(CONTINUATION, 0, 1, &[0; 0]);
    let mut sent = 0;
    while hostile.send(&more.repeat(1000)).await {
        sent += 1000;
        assert!(sent < 10_000_000, "the connection is never closed");
    }
    server.try_call().await.unwrap();
    server.stop().await;
    assert_eq!(metrics.flood.get() + metrics.protocol_error.get(), 1);
}

async fn headers_over_the_maximum_are_refused(fast_path: bool) {
    let (server, _) = serving(fast_path, |settings| settings.grpc.max_header_bytes = 1024);
    let mut client = Raw::connect(server.addresses.grpc, &[]).await;
    let long = [&call_headers()[..], &[0x00, 1, b'x', 126], &[b'y'; 126]].concat();
    let many = [long, [&[0x00, 1, b'z', 126][..], &[b'y'; 126]].concat().repeat(10)].concat();
    assert!(client.send(&frame(HEADERS, END_HEADERS, 1, &many)).await);
    loop {
        let reply = client.next().await.expect("an answer");
        if reply.stream == 1 {
            // HPACK may encode the status 431 as an index or as a literal.
            let text = String::from_utf8_lossy(&reply.payload).into_owned();
            assert!(reply.kind == HEADERS || reply.kind == RST_STREAM, "{reply:?} {text}");
            break;
        }
    }
    server.try_call().await.unwrap();
    drop(client);
    server.stop().await;
}

async fn calls_without_window_are_reset(fast_path: bool) {
    let (server, metrics) = serving(fast_path, |settings| settings.grpc.call_timeout = SHORT);
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let mut hostile = Raw::connect(server.addresses.grpc, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    for stream in streams().take(100) {
        assert!(hostile.send(&call(stream, "full")).await);
    }
    let mut reset = 0;
    while reset < 100 {
        let reply = hostile.next().await.expect("the connection stays");
        reset += usize::from(reply.kind == RST_STREAM);
    }
    server.try_call().await.unwrap();
    drop(hostile);
    server.stop().await;
    assert_eq!(metrics.call_timeout.get(), 100);
}

async fn calls_over_max_concurrent_streams_are_refused(fast_path: bool) {
    const MAX_CONCURRENT_STREAMS: [u8; 2] = [0, 3];
    let (server, _) = serving(fast_path, |settings| settings.grpc.max_concurrent_streams = 3);
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    for stream in streams().take(5) {
        let begun = frame(HEADERS, END_HEADERS, stream, &call_headers());
        assert!(hostile.send(&begun).await);
    }
    assert!(hostile.send(&frame(PING, 0, 0, &[7; 8])).await);
    let (mut announced, mut refused) = (Vec::new(), Vec::new());
    loop {
        let reply = hostile.next().await.expect("the connection stays");
        match reply.kind {
            SETTINGS => announced.extend(reply.payload.chunks(6).map(<[u8]>::to_vec)),
            RST_STREAM => refused.push((reply.stream, reply.payload)),
            // The PING's reply means that all earlier frames have been processed.
            PING if reply.payload == [7; 8] => break,
            _ => {}
        }
    }
    assert!(
        announced.contains(&[&MAX_CONCURRENT_STREAMS[..], &[0, 0, 0, 3]].concat()),
        "{announced:?}"
    );
    let reason = REFUSED_STREAM.to_be_bytes().to_vec();
    assert_eq!(refused, [(7, reason.clone()), (9, reason)]);
    server.try_call().await.unwrap();
    drop(hostile);
    server.stop().await;
}

async fn an_incomplete_call_is_reset(fast_path: bool) {
    let (server, metrics) = serving(fast_path, |settings| settings.grpc.call_timeout = SHORT);
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    assert!(hostile.send(&frame(HEADERS, END_HEADERS, 1, &call_headers())).await);
    assert!(hostile.send(&frame(DATA, 0, 1, &[0, 0, 0, 9])).await);
    loop {
        let reply = hostile.next().await.expect("the connection stays");
        if reply.kind == RST_STREAM && reply.stream == 1 {
            break;
        }
    }
    assert!(hostile.send(&call(3, "ok")).await, "the connection stays open");
    drop(hostile);
    server.stop().await;
    assert_eq!(metrics.call_timeout.get(), 1);
}

async fn a_client_that_does_not_read_is_closed(fast_path: bool) {
    let (server, metrics) = serving(fast_path, |settings| {
        settings.grpc.write_timeout = SHORT;
        settings.grpc.keepalive_interval = None;
    });
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(server.addresses.grpc).await.unwrap();
    // The largest window, so that only the socket's buffer stops the responses.
    let mut hostile = Raw::over(stream, &[(4, (1 << 31) - 1)]).await;
    let room = ((1_u32 << 31) - 1 - 65_535).to_be_bytes();
    assert!(hostile.send(&frame(8, 0, 0, &room)).await);
    let mut sent = 0;
    for stream in streams() {
        if !hostile.send(&call(stream, "full")).await {
            break;
        }
        sent += 1;
        assert!(sent < 1_000_000, "the server buffers every response");
    }
    server.try_call().await.unwrap();
    server.stop().await;
    assert_eq!(metrics.write_timeout.get(), 1);
}

async fn a_client_that_answers_no_ping_is_closed(fast_path: bool) {
    let (server, metrics) = serving(fast_path, |settings| {
        settings.grpc.keepalive_interval = Some(SHORT);
        settings.grpc.keepalive_timeout = SHORT;
    });
    let mut dead = Raw::connect(server.addresses.grpc, &[]).await;
    dead.closed().await;
    server.stop().await;
    assert_eq!(metrics.keepalive_timeout.get(), 1);
}

async fn an_idle_connection_gets_goaway(fast_path: bool) {
    let (server, metrics) =
        serving(fast_path, |settings| settings.grpc.max_connection_idle = Some(10 * SHORT));
    let mut idle = Raw::connect(server.addresses.grpc, &[]).await;
    let reply = idle.goaway_reason().await;
    assert_eq!(reply, Some(0), "without an error");
    assert_eq!(metrics.idle.get(), 1);
    drop(idle);
    server.stop().await;
}

async fn connections_per_address_are_limited(fast_path: bool) {
    let (server, metrics) =
        serving(fast_path, |settings| settings.grpc.max_connections_per_peer = Some(2));
    let connect = || Raw::connect(server.addresses.grpc, &[]);
    let (first, second) = (connect().await, connect().await);
    let both_open = || metrics.grpc.open.get() == 2 && metrics.grpc.waiting.get() == 0;
    wait_until("both connections to be open", both_open).await;
    let mut third = TcpStream::connect(server.addresses.grpc).await.unwrap();
    assert_eq!(third.read(&mut [0; 9]).await.unwrap_or(0), 0, "closed at once");
    assert_eq!(metrics.grpc.refused_peer.get(), 1);
    drop(first);
    while server.try_call().await.is_err() {}
    drop(second);
    server.stop().await;
}

/// The limit is the same for a head that arrives at once and for one that arrives in pieces.
#[tokio::test]
async fn the_limit_of_http_heads_is_exact() {
    const MAX: usize = 8192;
    let (server, metrics) = serving(true, |settings| settings.http.max_head_bytes = MAX);
    for (bytes, status) in [(MAX, 200), (MAX + 1, 431), (MAX + 5000, 431)] {
        for piece in [bytes, 1000] {
            let start = "GET /livez HTTP/1.1\r\nhost: t\r\nconnection: close\r\nx: ";
            let head = format!("{start}{}\r\n\r\n", "y".repeat(bytes - start.len() - 4));
            let mut stream = TcpStream::connect(server.addresses.http).await.unwrap();
            for piece in head.as_bytes().chunks(piece) {
                // The server may respond before the end.
                let _ = stream.write_all(piece).await;
            }
            let answer = read_response(&mut stream).await;
            assert_eq!(answer.status, status, "{bytes} bytes in pieces of {piece}");
        }
    }
    wait_until("the counts", || metrics.http_too_large.get() == 4).await;
    server.stop().await;
}

#[tokio::test]
async fn a_slow_http_head_is_closed_in_time() {
    let (server, metrics) = serving(true, |settings| settings.http.head_timeout = SHORT);
    let mut stream = TcpStream::connect(server.addresses.http).await.unwrap();
    let mut drops = "GET /livez HTTP/1.1\r\n".bytes().chain(std::iter::repeat(b'x'));
    // The timeout applies to the whole head, so single bytes do not extend it.
    let drip = async {
        while stream.write_all(&[drops.next().unwrap()]).await.is_ok() {
            let mut answer = [0; 64];
            if stream.try_read(&mut answer).is_ok_and(|bytes| bytes == 0) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    in_time("the close", drip).await;
    counted(&metrics.http_timeout).await;
    server.stop().await;
}

/// One connection sends calls as fast as it can. Another on the same worker sends one call at a
/// time. The worker reads at most 16 KiB of the first per turn, which is less than 200 calls, and
/// the second waits a few turns.
async fn a_flooding_connection_does_not_starve_others(fast_path: bool) {
    let served = Arc::new(AtomicUsize::new(0));
    let flooded = Arc::clone(&served);
    let decider = observing(move |request| {
        if request.domain == "flood" {
            flooded.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (server, _) = serve_one_worker(decider, fast_path, |_| {});
    let stream = std::net::TcpStream::connect(server.addresses.grpc).unwrap();
    let reader = stream.try_clone().unwrap();
    let hostile = std::thread::spawn(move || {
        use std::io::Write;
        let mut stream = stream;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let room = [&4_u16.to_be_bytes()[..], &((1_u32 << 31) - 1).to_be_bytes()].concat();
        stream.write_all(&frame(SETTINGS, 0, 0, &room)).unwrap();
        let room = ((1_u32 << 31) - 1 - 65_535).to_be_bytes();
        stream.write_all(&frame(8, 0, 0, &room)).unwrap();
        let mut streams = streams();
        // The loop runs until the test closes the connection.
        while streams.by_ref().next().is_some_and(|id| stream.write_all(&call(id, "flood")).is_ok())
        {
        }
    });
    let drain = std::thread::spawn({
        let reader = reader.try_clone().unwrap();
        move || std::io::copy(&mut &reader, &mut std::io::sink())
    });
    wait_until("a call of the flood", || served.load(Ordering::Relaxed) > 0).await;
    let mut client = server.client().await;
    client.should_rate_limit(request("ok")).await.unwrap();
    let before = served.load(Ordering::Relaxed);
    const CALLS: usize = 50;
    for _ in 0..CALLS {
        client.should_rate_limit(request("ok")).await.unwrap();
    }
    let meanwhile = served.load(Ordering::Relaxed) - before;
    reader.shutdown(std::net::Shutdown::Both).unwrap();
    hostile.join().unwrap();
    let _ = drain.join().unwrap();
    assert!(meanwhile > 0, "no call of the flood was decided");
    // tokio looks at the sockets after 61 polls at most, each of which reads 16 KiB.
    assert!(meanwhile / CALLS < 8000, "{meanwhile} calls of the flood during {CALLS} others");
    server.stop().await;
}

over_both_paths! {
    rapid_resets_close_the_connection,
    control_frame_floods_close_the_connection,
    a_client_that_makes_calls_may_ping_and_reset,
    endless_headers_close_the_connection,
    headers_over_the_maximum_are_refused,
    calls_without_window_are_reset,
    calls_over_max_concurrent_streams_are_refused,
    an_incomplete_call_is_reset,
    a_client_that_does_not_read_is_closed,
    a_client_that_answers_no_ping_is_closed,
    an_idle_connection_gets_goaway,
    connections_per_address_are_limited,
    a_flooding_connection_does_not_starve_others,
}
