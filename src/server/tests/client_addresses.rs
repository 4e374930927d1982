//! One client address floods a resource that all clients share. A client of another address is
//! answered as before.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::{Semaphore, mpsc};

use super::kept_input::incomplete_headers;
use super::memory_budget::{call_with_unknown_field, serving, serving_with, stop_empty, watch};
use super::raw::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, Raw, call,
    call_headers, frame, streams,
};
use super::support::wait_until;
use crate::decision::Verdict;
use crate::descriptor::Request;
use crate::server::Decide;
use crate::server::tests::test_handlers::{Blocking, ByDomain};

/// The hosts of the loopback network from which the clients connect.
const FLOOD: u8 = 1;
const HONEST: u8 = 2;

/// Whether the call on `stream` gets a message, not a status alone, a reset or the end of the
/// connection.
async fn gets_message(raw: &mut Raw, stream: u32) -> bool {
    while let Some(reply) = raw.next().await {
        match reply.kind {
            _ if reply.stream != stream => {}
            DATA => return true,
            HEADERS if reply.flags & END_STREAM != 0 => return false,
            RST_STREAM => return false,
            _ => {}
        }
    }
    false
}

/// Waits until the server has opened the connection.
async fn is_open(raw: &mut Raw) {
    assert!(raw.send(&frame(PING, 0, 0, &[7; 8])).await);
    while raw.next().await.expect("the connection stays").kind != PING {}
}

async fn slots_are_left_for_other_addresses(fast_path: bool) {
    let (server, metrics) =
        serving_with(ByDomain, fast_path, |settings| settings.grpc.max_connections = 8);
    let mut flood = Vec::new();
    for _ in 0..8 {
        let mut raw = Raw::connect_from(FLOOD, server.addresses.grpc).await;
        is_open(&mut raw).await;
        flood.push(raw);
    }
    assert!(flood[0].send(&call(1, "ok")).await && gets_message(&mut flood[0], 1).await);

    let mut honest = Raw::connect_from(HONEST, server.addresses.grpc).await;
    assert!(honest.send(&call(1, "ok")).await && gets_message(&mut honest, 1).await);
    assert_eq!(flood[1].goaway_reason().await, Some(0), "the first has had a call");
    assert!(flood[0].send(&call(3, "ok")).await && gets_message(&mut flood[0], 3).await);
    wait_until("the close", || metrics.grpc.open.get() == 8).await;

    Raw::connect_from(FLOOD, server.addresses.grpc).await.closed().await;
    assert!(honest.send(&call(3, "ok")).await && gets_message(&mut honest, 3).await);
    assert_eq!((metrics.grpc.evicted.get(), metrics.grpc.refused_total.get()), (1, 1));
    drop((flood, honest));
    stop_empty(server, &metrics).await;
}

/// The honest connection is the largest one: 64 KiB of incomplete headers. Each one of the flood has
/// 32 KiB, and all may have 256 KiB.
async fn buffers_are_left_for_other_addresses(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let buffers = &metrics.client_memory.buffers.held;
    let mut honest = Raw::connect_from(HONEST, server.addresses.grpc).await;
    assert!(honest.send(&incomplete_headers(3)).await);
    wait_until("the headers to count", || buffers.get() >= 64 << 10).await;
    let mut flood = Vec::new();
    while metrics.memory_evicted.get() == 0 {
        assert!(flood.len() < 64, "the flood fills the part");
        let before = buffers.get();
        let mut raw = Raw::connect_from(FLOOD, server.addresses.grpc).await;
        // It may be evicted before it has sent all.
        raw.send(&incomplete_headers(2)).await;
        flood.push(raw);
        let is_counted =
            || buffers.get() >= before + (32 << 10) || metrics.memory_evicted.get() > 0;
        wait_until("the headers of the flood to count", is_counted).await;
    }
    let rest = frame(CONTINUATION, END_HEADERS, 1, &[]);
    assert!(honest.send(&[rest, call(3, "ok")].concat()).await);
    assert!(gets_message(&mut honest, 3).await);
    drop((flood, honest));
    stop_empty(server, &metrics).await;
}

async fn waiting_memory_is_left_for_other_addresses(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut flood = Vec::new();
    for _ in 0..5 {
        let mut raw = Raw::connect_from(FLOOD, server.addresses.grpc).await;
        for stream in streams().take(30) {
            assert!(raw.send(&frame(HEADERS, END_HEADERS, stream, &call_headers())).await);
        }
        assert!(!gets_message(&mut raw, 59).await, "the last one is refused");
        flood.push(raw);
    }
    // A call of 22 KiB that arrives in two pieces. 16 KiB are the allowance of its connection.
    let whole = call_with_unknown_field(1);
    let (head, body) = whole.split_at(9 + call_headers().len());
    let (first, rest) = body[9..].split_at(body.len() - 100);
    let state = || (metrics.client_memory.waiting.held.get(), metrics.memory_full.get());
    let before = state();
    let mut honest = Raw::connect_from(HONEST, server.addresses.grpc).await;
    assert!(honest.send(&[head, &frame(DATA, 0, 1, first)].concat()).await);
    wait_until("the first piece to be read", || state() != before).await;
    assert!(honest.send(&frame(DATA, END_STREAM, 1, rest)).await);
    assert!(gets_message(&mut honest, 1).await);
    drop((flood, honest));
    stop_empty(server, &metrics).await;
}

/// Health watches stay open, so what they take does not come back.
async fn watches_are_left_for_other_addresses(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut flood = Vec::new();
    for _ in 0..3 {
        let mut raw = Raw::connect_from(FLOOD, server.addresses.grpc).await;
        for stream in streams().take(10) {
            assert!(raw.send(&watch(stream)).await);
        }
        assert!(!gets_message(&mut raw, 19).await, "the last one is refused");
        flood.push(raw);
    }
    let mut honest = Raw::connect_from(HONEST, server.addresses.grpc).await;
    assert!(honest.send(&watch(1)).await && gets_message(&mut honest, 1).await);
    drop((flood, honest));
    stop_empty(server, &metrics).await;
}

/// Each call takes 8 KiB, and all may have 128 KiB.
async fn deciding_memory_is_left_for_other_addresses(fast_path: bool) {
    const CALLS: usize = 20;
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let (server, metrics) = serving(Blocking { arrived, go: Arc::clone(&go) }, fast_path);
    let mut flood = Raw::connect_from(FLOOD, server.addresses.grpc).await;
    for stream in streams().take(CALLS) {
        assert!(flood.send(&call(stream, "ok")).await);
    }
    for _ in 0..CALLS {
        arrivals.recv().await.unwrap();
    }
    let mut honest = Raw::connect_from(HONEST, server.addresses.grpc).await;
    assert!(honest.send(&call(1, "ok")).await);
    arrivals.recv().await.unwrap();
    go.add_permits(1);
    assert!(gets_message(&mut honest, 1).await);
    assert!(metrics.memory_full.get() > 0, "the flood was refused");
    drop((flood, honest));
    stop_empty(server, &metrics).await;
}

/// A decider whose store never replies. It decides without the store when it must.
struct WithoutStore;

impl Decide for WithoutStore {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        poll_fn(|_| if request.must_decide() { Poll::Ready(()) } else { Poll::Pending }).await;
        ByDomain.decide(request).await
    }
}

/// Two calls of 24 KiB may wait. The others are decided and not refused.
async fn calls_that_may_not_wait_are_decided(fast_path: bool) {
    let (server, metrics) = serving(WithoutStore, fast_path);
    let mut raw = Raw::connect_from(HONEST, server.addresses.grpc).await;
    for stream in streams().take(8) {
        assert!(raw.send(&call_with_unknown_field(stream)).await);
    }
    for stream in streams().take(8).skip(2) {
        assert!(gets_message(&mut raw, stream).await);
    }
    assert_eq!(metrics.memory_full.get(), 0);
    drop(raw);
    stop_empty(server, &metrics).await;
}

over_both_paths! {
    slots_are_left_for_other_addresses,
    buffers_are_left_for_other_addresses,
    waiting_memory_is_left_for_other_addresses,
    deciding_memory_is_left_for_other_addresses,
    calls_that_may_not_wait_are_decided,
    watches_are_left_for_other_addresses,
}
