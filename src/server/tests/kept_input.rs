//! Input that h2 keeps for a connection: buffers of stored headers, slots of frames, and headers that
//! are incomplete. It counts in the memory budget or ends in time.

use std::time::Duration;

use super::memory_budget::{serving, stop_empty};
use super::raw::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, Raw, call_headers,
    frame, headers_to, streams,
};
use super::support::{in_time, request, serve_one_worker, wait_until};
use crate::server::grpc::should_rate_limit::PATH as SHOULD_RATE_LIMIT;
use crate::server::tests::test_handlers::ByDomain;

/// The buffers of all connections may have 256 KiB. Each stored path counts a read buffer of 8 KiB.
async fn stored_paths_count_as_buffers(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    let stores_path = [0x83, 0x86, 0x44, 2, b'/', b'x'];
    let call = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &stores_path);
    let calls: Vec<u8> = streams().take(60).flat_map(call).collect();
    assert!(hostile.send(&calls).await);
    let reason = in_time("GOAWAY", hostile.goaway_reason()).await;
    assert_eq!(reason, Some(ENHANCE_YOUR_CALM));
    assert_eq!(metrics.memory_evicted.get(), 1);
    server.try_call().await.unwrap();
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

/// h2 would read the rest of a field without a name again, as a stored path.
async fn a_header_without_a_name_closes_its_connection(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let nameless = [0x00, 0x00, 0x83, 0x44, 1, b'/'];
    let flags = [END_STREAM, END_STREAM | END_HEADERS];
    for (flags, closed) in flags.into_iter().zip(1..) {
        let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
        let begun = frame(HEADERS, flags, 1, &nameless);
        let rest = frame(CONTINUATION, END_HEADERS, 1, &[0x86]);
        hostile.send(&[begun, rest].concat()).await;
        in_time("the end of the connection", hostile.closed()).await;
        assert_eq!(metrics.flood.get(), closed);
    }
    stop_empty(server, &metrics).await;
}

/// A thousand frames of one byte take 320 KiB.
async fn slots_of_frames_count_as_buffers(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    let head = frame(HEADERS, END_HEADERS, 1, &call_headers());
    let prefix = frame(DATA, 0, 1, &[0, 0, 0x0f, 0x42, 0x40]);
    assert!(hostile.send(&[head, prefix].concat()).await);
    let pieces = frame(DATA, 0, 1, b"x").repeat(1500);
    assert!(hostile.send(&pieces).await);
    in_time("the end of the connection", hostile.closed()).await;
    assert_eq!(metrics.memory_evicted.get(), 1);
    server.try_call().await.unwrap();
    stop_empty(server, &metrics).await;
}

/// A stored header makes each further HEADERS frame of 14 bytes too large. Their 400 streams take
/// 768 KiB, and their frames alone would have room.
async fn streams_that_h2_refuses_count(fast_path: bool) {
    let (server, metrics) = serving(ByDomain, fast_path);
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    let stored = [&[0x40, 1, b'x', 0x7f, 0x97, 0x1e][..], &[b'v'; 3990]].concat();
    let begun = frame(HEADERS, END_HEADERS | END_STREAM, 1, &stored);
    let large = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0xbe; 5]);
    let refused = streams().skip(1).take(400).flat_map(large);
    assert!(hostile.send(&begun.into_iter().chain(refused).collect::<Vec<u8>>()).await);
    in_time("the end of the connection", hostile.closed()).await;
    assert_eq!(metrics.memory_evicted.get(), 1);
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
async fn honest_headers_count_little(fast_path: bool) {
    let (server, metrics) = serve_one_worker(ByDomain, fast_path, |_| {});
    let mut client = server.client().await;
    for call in 0..1000 {
        let mut request = tonic::Request::new(request("ok"));
        let (trace, id) = (format!("00-{call:032x}-{call:016x}-01"), format!("{call:036x}"));
        request.metadata_mut().insert("traceparent", trace.parse().unwrap());
        request.metadata_mut().insert("x-request-id", id.parse().unwrap());
        client.should_rate_limit(request).await.unwrap();
    }
    let held = metrics.client_memory.buffers.held.get();
    assert!(held <= 32 * 1024, "{held} bytes");
    drop(client);
    stop_empty(server, &metrics).await;
}

over_both_paths! {
    stored_paths_count_as_buffers,
    headers_of_waiting_calls_count,
    a_header_without_a_name_closes_its_connection,
    slots_of_frames_count_as_buffers,
    streams_that_h2_refuses_count,
    incomplete_headers_end_in_time,
    honest_headers_count_little,
}
