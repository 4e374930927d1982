//! The memory budget: incomplete and undecided messages stay within it, and other calls are served.

use std::sync::Arc;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use tokio::sync::{Semaphore, mpsc};
use tonic::Code;

use super::raw::{
    DATA, END_HEADERS, END_STREAM, HEADERS, Raw, call_headers, frame, headers_to, streams,
};
use super::support::{Served, request, serve_one_worker};
use crate::server::tests::test_handlers::{Blocking, ByDomain};
use crate::server::{Decide, ServerMetrics};

const MAX: usize = 64 << 10;
const PIECE: usize = 16 << 10;

/// A server with one worker and a budget of [`MAX`] bytes, and its metrics.
fn serving(decider: impl Decide, fast_path: bool) -> (Served, Arc<ServerMetrics>) {
    serve_one_worker(decider, fast_path, |settings| settings.grpc.max_buffered_bytes = MAX)
}

/// The first bytes of a call whose message would have a million bytes.
fn incomplete_call(stream: u32, headers: &[u8]) -> Vec<u8> {
    let mut piece = vec![b'x'; PIECE];
    piece[..5].copy_from_slice(&[0, 0, 0x0f, 0x42, 0x40]);
    [frame(HEADERS, END_HEADERS, stream, headers), frame(DATA, 0, stream, &piece)].concat()
}

/// The status of a complete message that is larger than the uncounted bytes.
async fn large_call(server: &Served) -> Code {
    let large = request(&"x".repeat(PIECE));
    let answer = server.client().await.should_rate_limit(large).await;
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

async fn incomplete_messages_stay_within_the_budget(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    for stream in streams().take(8) {
        assert!(hostile.send(&incomplete_call(stream, &call_headers())).await);
    }
    // Four pieces fit, in addition to the uncounted bytes. The fifth call is the first to be
    // rejected.
    loop {
        let reply = hostile.next().await.expect("the connection stays");
        if reply.kind == HEADERS {
            assert_eq!(reply.stream, 9);
            break;
        }
    }
    server.try_call().await.unwrap();
    assert_eq!(large_call(&server).await, Code::ResourceExhausted);
    drop(hostile);
    while large_call(&server).await == Code::ResourceExhausted {}
    assert_eq!(large_call(&server).await, Code::Ok);
    server.stop().await;
    assert!(metrics.buffer_full.get() >= 5);
}

async fn streaming_calls_accept_no_large_message(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    let watch = headers_to("/grpc.health.v1.Health/Watch");
    assert!(hostile.send(&incomplete_call(1, &watch)).await);
    loop {
        let reply = hostile.next().await.expect("the connection stays");
        if reply.kind == HEADERS && reply.stream == 1 {
            break;
        }
    }
    drop(hostile);
    server.stop().await;
    assert_eq!(metrics.buffer_full.get(), 1);
}

/// A call of a small request with a large unknown field.
fn call_with_unknown_field(stream: u32) -> Vec<u8> {
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
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let (server, metrics) = serving(Blocking { arrived, go: Arc::clone(&go) }, fast_path);
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    for stream in streams().take(5) {
        assert!(raw.send(&call_with_unknown_field(stream)).await);
    }
    // Four calls fit, and the fifth is rejected.
    loop {
        let reply = raw.next().await.expect("the connection stays");
        if reply.kind == HEADERS {
            assert_eq!(reply.stream, 9);
            break;
        }
    }
    for _ in 0..4 {
        arrivals.recv().await.unwrap();
    }
    go.add_permits(1);
    let mut answered = 0;
    while answered < 4 {
        let reply = raw.next().await.expect("the connection stays");
        answered += usize::from(reply.kind == HEADERS && reply.flags & END_STREAM != 0);
    }
    // Calls that have got their response hold no bytes any more.
    assert!(raw.send(&call_with_unknown_field(11)).await);
    arrivals.recv().await.unwrap();
    drop(raw);
    server.stop().await;
    assert_eq!(metrics.buffer_full.get(), 1);
}

over_both_paths! {
    incomplete_messages_stay_within_the_budget,
    streaming_calls_accept_no_large_message,
    messages_being_decided_count_in_the_budget,
}
