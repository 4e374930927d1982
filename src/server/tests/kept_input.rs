//! Input that a connection keeps: stored headers, incomplete headers, and frames that calls have not read.
//! It is little, or counts in the memory budget.

use std::time::Duration;

use super::memory_budget::{serving, stop_empty};
use super::raw::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, PING, RST_STREAM, Raw,
    call_headers, frame, headers_to, streams,
};
use super::support::{in_time, request, serve_one_worker, wait_until};
use crate::server::grpc::should_rate_limit::PATH as SHOULD_RATE_LIMIT;
use crate::server::tests::test_handlers::ByDomain;

/// A call whose headers have `frames` frames of nearly 16 KiB and are incomplete.
pub(super) fn incomplete_headers(frames: usize) -> Vec<u8> {
    let field = [&[0, 1, b'x', 0x7f, 0x81, 0x7e][..], &[b'y'; 16_256]].concat();
    let begun = frame(HEADERS, 0, 1, &call_headers());
    [begun, frame(CONTINUATION, 0, 1, &field).repeat(frames)].concat()
}

/// Waits until the server has received all frames sent so far. Returns the responses before that: their
/// kind and their payload.
async fn replies(raw: &mut Raw) -> Vec<(u8, Vec<u8>)> {
    assert!(raw.send(&frame(PING, 0, 0, &[7; 8])).await);
    let mut replies = Vec::new();
    loop {
        let reply = in_time("a reply", raw.next()).await.expect("the connection stays");
        if reply.kind == PING && reply.payload == [7; 8] {
            return replies;
        }
        replies.push((reply.kind, reply.payload));
    }
}

/// Each header that the client stores takes its bytes, and not those of the read in which it came.
async fn stored_headers_take_their_bytes(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    let stores_path = [0x83, 0x86, 0x44, 2, b'/', b'x'];
    let call = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &stores_path);
    let calls: Vec<u8> = streams().take(200).flat_map(call).collect();
    assert!(raw.send(&calls).await);
    let mut refused = 0;
    while refused < 200 {
        let reply = in_time("a reply", raw.next()).await.expect("the connection stays");
        refused += usize::from(reply.kind == HEADERS);
    }
    assert_eq!(metrics.client_memory.buffers.held.get(), 0);
    drop(raw);
    stop_empty(server, &metrics).await;
}

/// A connection may hold 16 KiB without counting. A call takes 6 KiB of them.
async fn headers_of_waiting_calls_count(fast_path: bool) {
    let long = [&[0x00, 13][..], b"grpc-encoding", &[0x7f, 0xe1, 0x5c], &[b'x'; 12_000]].concat();
    for path in [SHOULD_RATE_LIMIT, "/grpc.health.v1.Health/Check"] {
        let (server, metrics) = serving(ByDomain, fast_path);
        let mut waiting = Raw::connect(server.addresses.grpc, &[]).await;
        let headers = [headers_to(path), long.clone()].concat();
        assert!(waiting.send(&frame(HEADERS, END_HEADERS, 1, &headers)).await);
        let held = || metrics.client_memory.waiting.held.get() > 1000;
        wait_until("the headers to count", held).await;
        drop(waiting);
        stop_empty(server, &metrics).await;
    }
}

/// A message in frames of one byte takes its bytes.
async fn frames_of_one_byte_take_their_bytes(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    let head = frame(HEADERS, END_HEADERS, 1, &call_headers());
    let prefix = frame(DATA, 0, 1, &[0, 0, 0x0f, 0x42, 0x40]);
    assert!(raw.send(&[head, prefix].concat()).await);
    assert!(raw.send(&frame(DATA, 0, 1, b"x").repeat(1500)).await);
    replies(&mut raw).await;
    assert_eq!(metrics.client_memory.buffers.held.get(), 0);
    drop(raw);
    stop_empty(server, &metrics).await;
}

/// A stored header makes each further HEADERS frame of 14 bytes too large. Their streams are freed.
async fn refused_streams_take_no_memory(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    let stored = [&[0x40, 1, b'x', 0x7f, 0x97, 0x1e][..], &[b'v'; 3990]].concat();
    let begun = frame(HEADERS, END_HEADERS | END_STREAM, 1, &stored);
    let large = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0xbe; 5]);
    let refused = streams().skip(1).take(400).flat_map(large);
    assert!(raw.send(&begun.into_iter().chain(refused).collect::<Vec<u8>>()).await);
    let is_refused =
        |(kind, payload): &(u8, Vec<u8>)| *kind == HEADERS && payload.ends_with(b"431");
    assert_eq!(replies(&mut raw).await.iter().filter(|reply| is_refused(reply)).count(), 400);
    assert_eq!(metrics.client_memory.buffers.held.get(), 0);
    drop(raw);
    stop_empty(server, &metrics).await;
}

async fn a_header_without_a_name_resets_its_call(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    let nameless = [0x00, 0x00, 0x83, 0x44, 1, b'/'];
    let begun = frame(HEADERS, END_STREAM, 1, &nameless);
    let rest = frame(CONTINUATION, END_HEADERS, 1, &[0x86]);
    assert!(raw.send(&[begun, rest].concat()).await);
    let sent = replies(&mut raw).await;
    assert!(sent.contains(&(RST_STREAM, 1_u32.to_be_bytes().into())), "{sent:?}");
    drop(raw);
    stop_empty(server, &metrics).await;
}

/// The buffers of all connections may have 256 KiB. Incomplete headers take up to 48 KiB each, and the
/// frame that continues them 16 KiB.
async fn incomplete_headers_count_as_buffers(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let sent = [incomplete_headers(2), frame(CONTINUATION, 0, 1, &[b'x'; 16_000])].concat();
    let sent = &sent[..sent.len() - 1];
    let mut hostile = Vec::new();
    while metrics.memory_evicted.get() == 0 {
        let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
        raw.send(sent).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        hostile.push(raw);
        assert!(hostile.len() < 8, "no connection is evicted");
    }
    let mut reasons = Vec::new();
    for mut raw in hostile {
        // The others are still open.
        let reason = tokio::time::timeout(Duration::from_millis(100), raw.goaway_reason()).await;
        reasons.extend(reason.ok().flatten());
    }
    assert!(reasons.contains(&ENHANCE_YOUR_CALM), "{reasons:?}");
    server.try_call().await.unwrap();
    stop_empty(server, &metrics).await;
}

async fn incomplete_headers_end_in_time(fast_path: bool) {
    let (server, metrics) = serve_one_worker(ByDomain, fast_path, |settings| {
        settings.grpc.call_timeout = Duration::from_millis(50);
    });
    let begun = frame(HEADERS, 0, 1, &call_headers());
    let rest = frame(CONTINUATION, END_HEADERS, 1, &[0, 1, b'x', 1, b'y']);
    let cut = rest.len() - 1;
    for (sent, ended) in [begun.clone(), [&begun[..], &rest[..cut]].concat()].iter().zip(1..) {
        let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
        assert!(hostile.send(sent).await);
        in_time("the end of the connection", hostile.closed()).await;
        assert_eq!(metrics.headers_timeout.get(), ended);
    }
    stop_empty(server, &metrics).await;
}

/// A client of h2, with headers that change with each call.
async fn honest_headers_count_nothing(fast_path: bool) {
    let (server, metrics) = serve_one_worker(ByDomain, fast_path, |_| {});
    let mut client = server.client().await;
    for call in 0..1000 {
        let mut request = tonic::Request::new(request("ok"));
        let (trace, id) = (format!("00-{call:032x}-{call:016x}-01"), format!("{call:036x}"));
        request.metadata_mut().insert("traceparent", trace.parse().unwrap());
        request.metadata_mut().insert("x-request-id", id.parse().unwrap());
        client.should_rate_limit(request).await.unwrap();
    }
    assert_eq!(metrics.client_memory.buffers.held.get(), 0);
    drop(client);
    stop_empty(server, &metrics).await;
}

over_both_paths! {
    stored_headers_take_their_bytes,
    headers_of_waiting_calls_count,
    frames_of_one_byte_take_their_bytes,
    refused_streams_take_no_memory,
    a_header_without_a_name_resets_its_call,
    incomplete_headers_count_as_buffers,
    incomplete_headers_end_in_time,
    honest_headers_count_nothing,
}
