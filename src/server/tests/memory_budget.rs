//! The memory budget: what clients make the process hold stays within it, other clients are served,
//! and nothing is held when they are gone.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::raw::{
    DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frame, HEADERS, PING, RST_STREAM, Raw, call,
    call_headers, frame, headers_to, streams,
};
use super::support::{Served, in_time, request, serve_one_worker, wait_until};
use crate::server::tests::test_handlers::{Blocking, ByDomain};
use crate::server::{Decide, PartMemory, ServerConfig, ServerMetrics};

/// The budget. It has room for 8 connections, and for 128 KiB of waiting and of undecided calls, of
/// which one address may have half.
const MAX: usize = 1 << 20;
const PIECE: usize = 16 << 10;
const SHORT: Duration = Duration::from_millis(50);
const INITIAL_WINDOW_SIZE: u16 = 4;

/// A server with one worker and a budget of [`MAX`] bytes, and its metrics.
pub(super) fn serving(decider: impl Decide, fast_path: bool) -> (Served, Arc<ServerMetrics>) {
    serving_with(decider, fast_path, |_| {})
}

pub(super) fn serving_with(
    decider: impl Decide,
    fast_path: bool,
    tune: impl FnOnce(&mut ServerConfig),
) -> (Served, Arc<ServerMetrics>) {
    serve_one_worker(decider, fast_path, |settings| {
        settings.grpc.max_client_memory = MAX;
        tune(settings);
    })
}

fn is_within(part: &PartMemory) -> bool {
    part.held.get() <= part.max.get()
}

/// Waits until clients that are gone hold nothing, and stops the server.
pub(super) async fn stop_empty(server: Served, metrics: &ServerMetrics) {
    let memory = &metrics.client_memory;
    let parts = [&memory.connections, &memory.buffers, &memory.waiting, &memory.deciding];
    wait_until("all memory to come back", || parts.iter().all(|part| part.held.get() == 0)).await;
    server.stop().await;
}

/// The next HEADERS frame of a call.
async fn next_headers(raw: &mut Raw) -> Frame {
    loop {
        let reply = raw.next().await.expect("the connection stays");
        if reply.kind == HEADERS {
            return reply;
        }
    }
}

/// The first bytes of a call whose message would have a million bytes.
fn incomplete_call(stream: u32, headers: &[u8]) -> Vec<u8> {
    let mut piece = vec![b'x'; PIECE];
    piece[..5].copy_from_slice(&[0, 0, 0x0f, 0x42, 0x40]);
    [frame(HEADERS, END_HEADERS, stream, headers), frame(DATA, 0, stream, &piece)].concat()
}

/// A call that has sent its headers alone: 400 with names of two letters and without values.
fn call_of_headers(stream: u32) -> Vec<u8> {
    // Without the name `te`, which has one valid value.
    let names = (b'a'..=b's').flat_map(|a| (b'a'..=b'z').map(move |b| [0, 2, a, b, 0]));
    let headers = call_headers().into_iter().chain(names.take(400).flatten());
    let headers: Vec<u8> = headers.collect();
    frame(HEADERS, END_HEADERS, stream, &headers)
}

async fn incomplete_messages_stay_within_the_budget(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    for stream in streams().take(8) {
        assert!(hostile.send(&incomplete_call(stream, &call_headers())).await);
    }
    // Half of 128 KiB and the allowance of the connection are room for three calls of 22 KiB.
    assert_eq!(next_headers(&mut hostile).await.stream, 7);
    assert!(is_within(&metrics.client_memory.waiting));
    server.try_call().await.unwrap();
    drop(hostile);
    assert!(metrics.memory_full.get() >= 1);
    stop_empty(server, &metrics).await;
}

async fn calls_of_headers_stay_within_the_budget(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut hostile = Vec::new();
    for _ in 0..5 {
        let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
        for stream in streams().take(50) {
            assert!(raw.send(&call_of_headers(stream)).await);
        }
        hostile.push(raw);
    }
    for raw in &mut hostile {
        let refused = next_headers(raw).await;
        let text = String::from_utf8_lossy(&refused.payload).into_owned();
        assert!(refused.flags & END_STREAM != 0, "{text}");
    }
    assert!(is_within(&metrics.client_memory.waiting));
    server.try_call().await.unwrap();
    drop(hostile);
    stop_empty(server, &metrics).await;
}

/// A call of a small request with a large unknown field.
pub(super) fn call_with_unknown_field(stream: u32) -> Vec<u8> {
    let mut message = request("ok").encode_to_vec();
    encode_key(100, WireType::LengthDelimited, &mut message);
    encode_varint(PIECE as u64 - 100, &mut message);
    message.resize(message.len() + PIECE - 100, b'x');
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = [&[0], &length[..], &message].concat();
    let head = frame(HEADERS, END_HEADERS, stream, &call_headers());
    [head, frame(DATA, END_STREAM, stream, &body)].concat()
}

async fn messages_being_decided_count_in_the_budget(fast_path: bool) {
    const CALLS: usize = 8;
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let (server, metrics) = serving(Blocking { arrived, go: Arc::clone(&go) }, fast_path);
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    for stream in streams().take(CALLS) {
        assert!(raw.send(&call_with_unknown_field(stream)).await);
    }
    for _ in 0..CALLS {
        arrivals.recv().await.unwrap();
    }
    // Half of 128 KiB is room for less than three calls of 24 KiB.
    wait_until("a refusal", || metrics.memory_full.get() >= 2).await;
    assert!(is_within(&metrics.client_memory.deciding));
    go.add_permits(1);
    let mut answered = 0;
    while answered < CALLS {
        answered += usize::from(next_headers(&mut raw).await.flags & END_STREAM != 0);
    }
    assert!(metrics.memory_full.get() < CALLS as u64, "some were decided");
    drop(raw);
    stop_empty(server, &metrics).await;
}

async fn unread_responses_count_in_the_budget(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut hostile = Raw::connect(server.addresses.grpc, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    for stream in streams().take(100) {
        assert!(hostile.send(&call(stream, "full")).await);
    }
    let reset = loop {
        let reply = hostile.next().await.expect("the connection stays");
        if reply.kind == RST_STREAM {
            break reply;
        }
    };
    assert_eq!(reset.payload, ENHANCE_YOUR_CALM.to_be_bytes());
    assert!(is_within(&metrics.client_memory.waiting));
    server.try_call().await.unwrap();
    drop(hostile);
    stop_empty(server, &metrics).await;
}

async fn connections_over_the_budget_are_refused(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut open = Vec::new();
    for _ in 0..8 {
        let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
        assert!(raw.send(&frame(PING, 0, 0, &[7; 8])).await);
        while raw.next().await.expect("the connection stays").kind != PING {}
        open.push(raw);
    }
    let mut over = TcpStream::connect(server.addresses.grpc).await.unwrap();
    let closed = in_time("the close", over.read(&mut [0; 9])).await;
    assert_eq!(closed.unwrap_or(0), 0, "closed at once");
    assert_eq!(metrics.grpc.refused_total.get(), 1);
    open.pop();
    while server.try_call().await.is_err() {}
    drop(open);
    stop_empty(server, &metrics).await;
}

/// Each of five clients sends calls and does not read. The responses to one read wait for each, and nothing
/// more is read.
async fn connections_that_do_not_read_hold_little(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut clients = Vec::new();
    for _ in 0..5 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let stream = socket.connect(server.addresses.grpc).await.unwrap();
        let window = (1 << 31) - 1;
        let mut raw = Raw::over(stream, &[(INITIAL_WINDOW_SIZE, window)]).await;
        let room = (window - 65_535).to_be_bytes();
        assert!(raw.send(&frame(8, 0, 0, &room)).await);
        clients.push(tokio::spawn(async move {
            let mut streams = streams();
            let mut send =
                async || raw.send(&call(streams.next().expect("a number"), "full")).await;
            // The sockets are full when a send waits.
            while timeout(SHORT, send()).await.is_ok() {}
            raw
        }));
    }
    let mut open = Vec::new();
    for client in clients {
        open.push(in_time("full sockets", client).await.unwrap());
    }
    server.try_call().await.unwrap();
    assert!(is_within(&metrics.client_memory.buffers));
    assert_eq!(metrics.memory_evicted.get(), 0);
    drop(open);
    stop_empty(server, &metrics).await;
}

async fn a_large_request_of_a_streaming_call_is_refused(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    let watch = headers_to("/grpc.health.v1.Health/Watch");
    assert!(hostile.send(&incomplete_call(1, &watch)).await);
    assert_eq!(next_headers(&mut hostile).await.stream, 1);
    assert_eq!(metrics.streaming_refused.get(), 1);
    drop(hostile);
    stop_empty(server, &metrics).await;
}

/// The paths of the streaming calls.
const STREAMING_PATHS: [&str; 3] = [
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

async fn a_streaming_call_must_send_its_message_in_time(fast_path: bool) {
    let (server, metrics) =
        serving_with(ByDomain, fast_path, |settings| settings.grpc.call_timeout = SHORT);
    for (path, timeouts) in STREAMING_PATHS.into_iter().zip(1..) {
        let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
        assert!(raw.send(&frame(HEADERS, END_HEADERS, 1, &headers_to(path))).await);
        while raw.next().await.expect("the connection stays").kind != RST_STREAM {}
        assert_eq!(metrics.call_timeout.get(), timeouts, "{path}");
    }
    stop_empty(server, &metrics).await;
}

/// A complete request to watch the health of the server: an empty message.
pub(super) fn watch(stream: u32) -> Vec<u8> {
    let headers = headers_to(STREAMING_PATHS[0]);
    let head = frame(HEADERS, END_HEADERS, stream, &headers);
    [head, frame(DATA, END_STREAM, stream, &[0; 5])].concat()
}

async fn a_watch_must_be_read_in_time(fast_path: bool) {
    let (server, metrics) =
        serving_with(ByDomain, fast_path, |settings| settings.grpc.call_timeout = SHORT);
    let mut raw = Raw::connect(server.addresses.grpc, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    assert!(raw.send(&watch(1)).await);
    while raw.next().await.expect("the connection stays").kind != RST_STREAM {}
    assert_eq!(metrics.call_timeout.get(), 1);
    drop(raw);
    stop_empty(server, &metrics).await;
}

async fn a_watch_that_is_read_may_stay(fast_path: bool) {
    let (server, metrics) =
        serving_with(ByDomain, fast_path, |settings| settings.grpc.call_timeout = SHORT);
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    assert!(raw.send(&watch(1)).await);
    while raw.next().await.expect("the connection stays").kind != DATA {}
    // The other call ends at the timeout, and was sent later.
    assert!(raw.send(&frame(HEADERS, END_HEADERS, 3, &headers_to(STREAMING_PATHS[0]))).await);
    loop {
        let reply = raw.next().await.expect("the connection stays");
        if reply.kind == RST_STREAM {
            assert_eq!(reply.stream, 3);
            break;
        }
    }
    assert!(metrics.client_memory.waiting.held.get() > 0, "the watch counts");
    drop(raw);
    stop_empty(server, &metrics).await;
}

async fn streaming_calls_of_a_connection_are_limited(fast_path: bool) {
    let (server, metrics) = serving_with(ByDomain, fast_path, |settings| {
        settings.grpc.max_client_memory = 64 * MAX;
    });
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    for stream in streams().take(17) {
        assert!(raw.send(&watch(stream)).await);
    }
    let refused = loop {
        let reply = next_headers(&mut raw).await;
        if reply.flags & END_STREAM != 0 {
            break reply;
        }
    };
    assert_eq!((refused.stream, metrics.streaming_refused.get()), (33, 1));
    let mut other = Raw::connect(server.addresses.grpc, &[]).await;
    assert!(other.send(&watch(1)).await);
    assert_eq!(next_headers(&mut other).await.flags & END_STREAM, 0, "another has room");
    drop((raw, other));
    stop_empty(server, &metrics).await;
}

over_both_paths! {
    incomplete_messages_stay_within_the_budget,
    calls_of_headers_stay_within_the_budget,
    messages_being_decided_count_in_the_budget,
    unread_responses_count_in_the_budget,
    a_large_request_of_a_streaming_call_is_refused,
    connections_over_the_budget_are_refused,
    connections_that_do_not_read_hold_little,
    a_streaming_call_must_send_its_message_in_time,
    a_watch_must_be_read_in_time,
    a_watch_that_is_read_may_stay,
    streaming_calls_of_a_connection_are_limited,
}
