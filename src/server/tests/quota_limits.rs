//! What a stream of quotas (RLQS) may cost: time, number and memory.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::quota_client::{QuotaClient, report};
use super::scripted_quotas::{OK, RESOURCE_EXHAUSTED, next, serving};
use super::support::{in_time, wait_until};

const SHORT: Duration = Duration::from_millis(50);

/// The call timeout passes several times. A call without a message shows that it did.
async fn a_silent_stream_stays_open(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |config| config.grpc.call_timeout = SHORT);
    let mut client = QuotaClient::connect(&server).await;
    let mut call = client.open(None);
    call.send(&report("shop", 1), false);
    let mut stream = next("stream", &mut streams).await;
    next("report", &mut stream.reports).await;
    for _ in 0..3 {
        let mut late = client.open(None);
        late.send(&[], false);
        assert!(in_time("a reset", late.answer()).await.is_err());
    }
    call.send(&report("shop", 1), false);
    next("report", &mut stream.reports).await;
    stream.assign.send("more".into()).unwrap();
    assert_eq!(call.message().await, "more");
    assert_eq!(server.metrics.call_timeout.get(), 3);
    server.stop().await;
}

async fn late_reports_are_reset(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |config| config.grpc.call_timeout = SHORT);
    let mut client = QuotaClient::connect(&server).await;
    for before in [vec![], report("shop", 1)] {
        let mut call = client.open(None);
        call.send(&before, false);
        call.send(&report("shop", 1)[..8], false);
        in_time("the reset", call.until_reset()).await;
        let mut stream = next("stream", &mut streams).await;
        let reports = usize::from(!before.is_empty());
        for _ in 0..reports {
            next("report", &mut stream.reports).await;
        }
        assert!(in_time("the end of the stream", stream.reports.recv()).await.is_none());
    }
    assert_eq!(server.metrics.call_timeout.get(), 2);
    server.stop().await;
}

/// An assignment that waited for the window would be old when it arrives, so none is taken.
async fn nothing_is_taken_while_the_window_is_closed(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |config| config.grpc.call_timeout = SHORT);
    let mut client = QuotaClient::connect_with_window(&server, 0).await;
    let mut call = client.open(None);
    call.send(&report("shop", 1), false);
    let mut stream = next("stream", &mut streams).await;
    next("report", &mut stream.reports).await;
    stream.assign.send("old".into()).unwrap();
    // The server reads on, and the call timeout does not apply.
    let mut late = client.open(None);
    late.send(&[], false);
    assert!(in_time("a reset", late.answer()).await.is_err());
    call.send(&report("shop", 1), false);
    next("report", &mut stream.reports).await;
    assert_eq!(server.metrics.call_timeout.get(), 1, "that of the late call");
    assert_eq!(stream.taken.load(Ordering::Relaxed), 0);
    server.stop().await;
}

async fn a_response_that_is_read_too_slowly_is_reset(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |config| config.grpc.call_timeout = SHORT);
    let mut client = QuotaClient::connect_with_window(&server, 1).await;
    let mut call = client.open(None);
    call.send(&report("shop", 1), false);
    let mut stream = next("stream", &mut streams).await;
    next("report", &mut stream.reports).await;
    stream.assign.send("more than a byte".into()).unwrap();
    in_time("the reset", call.until_reset()).await;
    assert!(in_time("the end of the stream", stream.reports.recv()).await.is_none());
    assert_eq!(server.metrics.call_timeout.get(), 1);
    server.stop().await;
}

/// While a response waits, reports wait too. The windows then close, so the server holds no more than
/// a report and a window.
async fn a_client_that_does_not_read_is_held_up(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |_| {});
    let mut client = QuotaClient::connect_with_window(&server, 1).await;
    let mut call = client.open(None);
    call.send(&report("shop", 1), false);
    let mut stream = next("stream", &mut streams).await;
    next("report", &mut stream.reports).await;
    stream.assign.send("more than a byte".into()).unwrap();
    assert_eq!(in_time("the first byte", call.some_data()).await.len(), 1);
    let sent = call.flood(&report("shop", 50), 8 << 20).await;
    assert!(sent <= (1 << 20) + report("shop", 50).len(), "{sent} bytes passed");
    assert!(stream.reports.try_recv().is_err(), "no report is read");
    let waiting = &server.metrics.client_memory.waiting.held;
    assert!(waiting.get() < 4 << 20, "{} bytes", waiting.get());
    server.try_call().await.unwrap();
    drop((client, call));
    assert!(in_time("the end of the stream", stream.reports.recv()).await.is_none());
    wait_until("no memory", || waiting.get() == 0).await;
    server.stop().await;
}

async fn a_connection_has_a_bounded_number_of_streams(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |_| {});
    let mut client = QuotaClient::connect(&server).await;
    let mut calls = Vec::new();
    for _ in 0..128 {
        let mut call = client.open(None);
        call.send(&report("shop", 1), false);
        calls.push((call, next("stream", &mut streams).await));
    }
    let refused = client.open(None).status().await;
    assert_eq!(refused.code, RESOURCE_EXHAUSTED);
    assert!(refused.message.contains("128 quota streams"), "{}", refused.message);
    let mut other = QuotaClient::connect(&server).await;
    let _more = other.open(None);
    next("stream of another connection", &mut streams).await;
    let (mut call, _stream) = calls.pop().unwrap();
    call.send(&[], true);
    assert_eq!(call.status().await.code, OK);
    let mut again = client.open(None);
    again.send(&report("shop", 1), false);
    next("stream", &mut streams).await;
    let refused = client.open(Some("too-many")).status().await;
    assert_eq!(refused.code, RESOURCE_EXHAUSTED, "128 again");
    assert_eq!(server.metrics.streaming_refused.get(), 2);
    let full = other.open(Some("too-many")).status().await;
    assert_eq!(full.code, RESOURCE_EXHAUSTED);
    assert!(full.message.contains("rlqs.max_streams"), "{}", full.message);
    assert_eq!(server.metrics.streaming_refused.get(), 3);
    server.stop().await;
}

/// What a stream keeps counts, and comes back.
async fn streams_hold_memory_within_the_budget(fast_path: bool) {
    let (server, mut streams) = serving(fast_path, |config| {
        config.grpc.max_client_memory = 64 << 20;
    });
    let waiting = &server.metrics.client_memory.waiting.held;
    let mut client = QuotaClient::connect(&server).await;
    let mut call = client.open(None);
    call.send(&report("shop", 1), false);
    let mut stream = next("stream", &mut streams).await;
    next("report", &mut stream.reports).await;
    // The connection holds the first 16 KiB of its calls in any case.
    stream.bytes.store(2 << 20, Ordering::Relaxed);
    call.send(&report("shop", 1), false);
    next("report", &mut stream.reports).await;
    wait_until("a MiB", || waiting.get() >= 1 << 20).await;
    stream.bytes.store(1 << 30, Ordering::Relaxed);
    call.send(&report("shop", 1), false);
    let status = call.status().await;
    assert_eq!(status.code, RESOURCE_EXHAUSTED);
    assert!(status.message.contains("grpc.max_client_memory"), "{}", status.message);
    assert_eq!(server.metrics.memory_full.get(), 1);
    drop(client);
    wait_until("no memory", || waiting.get() == 0).await;
    server.stop().await;
}

over_both_paths! {
    a_silent_stream_stays_open,
    late_reports_are_reset,
    nothing_is_taken_while_the_window_is_closed,
    a_response_that_is_read_too_slowly_is_reset,
    a_client_that_does_not_read_is_held_up,
    a_connection_has_a_bounded_number_of_streams,
    streams_hold_memory_within_the_budget,
}
