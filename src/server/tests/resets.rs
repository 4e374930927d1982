//! Calls that are reset or closed at any point: the decision is dropped or rolled back, and other
//! calls are unaffected.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, mpsc};

use super::raw::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, Raw, call, call_headers, frame,
    streams,
};
use super::support::{Served, serve, serve_one_worker, settings_over};
use crate::decision::Verdict;
use crate::descriptor::Request;
use crate::lease_rollback::LeaseRollback;
use crate::server::grpc::should_rate_limit::PATH;
use crate::server::tests::test_handlers::ByDomain;
use crate::server::{Decide, ServerConfig};

/// An event of a decision.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Begun,
    Dropped,
    Decided,
    RolledBack,
}

/// A decider that waits for a permit, takes a lease, and reports each event.
struct ReportsEvents {
    events: mpsc::UnboundedSender<Event>,
    go: Arc<Semaphore>,
}

/// A guard that reports a decision that was dropped before it was made.
struct Dropped(Option<mpsc::UnboundedSender<Event>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.take().map(|events| events.send(Event::Dropped));
    }
}

impl Decide for ReportsEvents {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        let events = self.events.clone();
        let _ = events.send(Event::Begun);
        let mut dropped = Dropped(Some(events.clone()));
        let _pass = self.go.acquire().await;
        dropped.0 = None;
        let _ = events.send(Event::Decided);
        let action = Box::new(move || drop(events.send(Event::RolledBack)));
        Verdict {
            rollback: Some(LeaseRollback::new(vec![action])),
            ..ByDomain.decide(request).await
        }
    }
}

/// A server with one worker, the permits of its decisions, and its events.
fn serving(
    fast_path: bool,
    tune: impl FnOnce(&mut ServerConfig),
) -> (Served, Arc<Semaphore>, mpsc::UnboundedReceiver<Event>) {
    let (events, received) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let decider = ReportsEvents { events, go: Arc::clone(&go) };
    let (server, _) = serve_one_worker(decider, fast_path, tune);
    (server, go, received)
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// Waits until the server has processed all frames sent so far.
async fn processed(raw: &mut Raw) {
    assert!(raw.send(&frame(PING, 0, 0, &[7; 8])).await);
    while raw.next().await.expect("the connection stays").kind != PING {}
}

async fn a_call_reset_before_it_is_whole_is_not_decided(fast_path: bool) {
    let (server, go, mut received) = serving(fast_path, |_| {});
    go.add_permits(1);
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    let whole = call(1, "ok");
    let head = |stream| frame(HEADERS, END_HEADERS, stream, &call_headers());
    let body = |stream, flags| frame(DATA, flags, stream, &whole[whole.len() - 12..]);
    // Calls 1 and 3 arrive in one write with their reset, call 5 before its reset.
    assert!(raw.send(&[head(1), reset(1)].concat()).await);
    assert!(raw.send(&[head(3), body(3, 0), reset(3)].concat()).await);
    assert!(raw.send(&[head(5), body(5, 0)].concat()).await);
    processed(&mut raw).await;
    assert!(raw.send(&reset(5)).await);
    assert!(raw.send(&call(9, "ok")).await);
    loop {
        let reply = raw.next().await.expect("the connection stays");
        if reply.flags & END_STREAM != 0 && reply.stream == 9 {
            break;
        }
    }
    drop(raw);
    server.stop().await;
    assert_eq!(received.recv().await, Some(Event::Begun));
    assert_eq!(received.recv().await, Some(Event::Decided));
    assert_eq!(received.recv().await, None, "the other calls were not decided");
}

async fn a_call_sent_with_its_reset_is_not_decided(fast_path: bool) {
    let (server, go, mut received) = serving(fast_path, |_| {});
    go.add_permits(1);
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    assert!(raw.send(&[call(1, "ok"), reset(1), call(3, "ok")].concat()).await);
    for event in [Event::Begun, Event::Decided] {
        assert_eq!(received.recv().await, Some(event));
    }
    processed(&mut raw).await;
    drop(raw);
    server.stop().await;
    assert_eq!(received.recv().await, None, "the call that was reset was not decided");
}

async fn a_call_reset_while_decided_is_dropped_alone(fast_path: bool) {
    let (server, go, mut received) = serving(fast_path, |_| {});
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    assert!(raw.send(&[call(1, "ok"), call(3, "ok")].concat()).await);
    assert_eq!(received.recv().await, Some(Event::Begun));
    assert_eq!(received.recv().await, Some(Event::Begun));
    assert!(raw.send(&reset(1)).await);
    assert_eq!(received.recv().await, Some(Event::Dropped));
    go.add_permits(1);
    assert_eq!(received.recv().await, Some(Event::Decided));
    loop {
        let reply = raw.next().await.expect("the connection stays");
        assert_ne!(reply.stream, 1);
        if reply.flags & END_STREAM != 0 && reply.stream == 3 {
            break;
        }
    }
    drop(raw);
    server.stop().await;
    assert_eq!(received.recv().await, None, "nothing was given back");
}

async fn a_closed_connection_drops_its_calls(fast_path: bool) {
    let (server, go, mut received) = serving(fast_path, |_| {});
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    assert!(raw.send(&call(1, "ok")).await);
    assert_eq!(received.recv().await, Some(Event::Begun));
    drop(raw);
    assert_eq!(received.recv().await, Some(Event::Dropped));
    go.close();
    server.stop().await;
}

/// A connection ends once its client sends no more, so the call has no response.
async fn a_half_closed_connection_drops_its_calls(fast_path: bool) {
    let (server, go, mut received) = serving(fast_path, |_| {});
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    assert!(raw.send(&call(1, "ok")).await);
    assert_eq!(received.recv().await, Some(Event::Begun));
    raw.stream.shutdown().await.unwrap();
    assert_eq!(received.recv().await, Some(Event::Dropped));
    raw.closed().await;
    go.close();
    server.stop().await;
}

async fn a_call_over_its_timeout_is_dropped_and_reset(fast_path: bool) {
    let (server, _go, mut received) =
        serving(fast_path, |settings| settings.grpc.call_timeout = Duration::from_millis(50));
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    assert!(raw.send(&call(1, "ok")).await);
    assert_eq!(received.recv().await, Some(Event::Begun));
    assert_eq!(received.recv().await, Some(Event::Dropped));
    while raw.next().await.expect("the connection stays").kind != RST_STREAM {}
    drop(raw);
    server.stop().await;
}

async fn a_response_without_window_rolls_back_at_timeout(fast_path: bool) {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let (server, go, mut received) =
        serving(fast_path, |settings| settings.grpc.call_timeout = Duration::from_millis(50));
    go.add_permits(1);
    let mut raw = Raw::connect(server.addresses.grpc, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    assert!(raw.send(&call(1, "ok")).await);
    assert_eq!(received.recv().await, Some(Event::Begun));
    assert_eq!(received.recv().await, Some(Event::Decided));
    assert_eq!(received.recv().await, Some(Event::RolledBack));
    while raw.next().await.expect("the connection stays").kind != RST_STREAM {}
    drop(raw);
    server.stop().await;
}

async fn calls_in_flight_are_answered_after_goaway(fast_path: bool) {
    let (server, go, mut received) = serving(fast_path, |settings| {
        settings.grpc.max_connection_age = Some(Duration::from_millis(500))
    });
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    assert!(raw.send(&call(1, "ok")).await);
    assert_eq!(received.recv().await, Some(Event::Begun));
    assert_eq!(raw.goaway_reason().await, Some(0), "without an error");
    go.add_permits(1);
    let mut answered = false;
    while let Some(reply) = raw.next().await {
        if reply.kind == PING && reply.flags & 1 == 0 {
            assert!(raw.send(&frame(PING, 1, 0, &reply.payload)).await);
        }
        answered |= reply.stream == 1 && reply.flags & END_STREAM != 0;
    }
    assert!(answered, "the call in flight has no response");
    server.stop().await;
}

async fn a_client_that_answers_pings_may_be_silent(fast_path: bool) {
    let mut settings = settings_over(fast_path);
    settings.grpc.keepalive_interval = Some(Duration::from_millis(20));
    settings.grpc.keepalive_timeout = Duration::from_secs(20);
    let server = serve(ByDomain, settings);
    let metrics = Arc::clone(&server.metrics);
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    let mut pings = 0;
    while pings < 5 {
        let reply = raw.next().await.expect("the connection stays");
        if reply.kind == PING && reply.flags & 1 == 0 {
            assert!(raw.send(&frame(PING, 1, 0, &reply.payload)).await);
            pings += 1;
        }
    }
    assert!(raw.send(&call(1, "ok")).await);
    while raw.next().await.expect("the connection stays").flags & END_STREAM == 0 {}
    drop(raw);
    server.stop().await;
    assert_eq!(metrics.keepalive_timeout.get(), 0);
}

/// A decider that never decides, and panics when a request is rejected.
struct Defective(mpsc::UnboundedSender<Event>);

impl Decide for Defective {
    async fn decide(&self, _: &Request<'_>) -> Verdict {
        let _dropped = Dropped(Some(self.0.clone()));
        let _ = self.0.send(Event::Begun);
        std::future::pending().await
    }

    fn count_invalid(&self) {
        panic!("a test asked for it");
    }
}

async fn a_panic_outside_a_decision_resets_that_call_only(fast_path: bool) {
    let (events, mut received) = mpsc::unbounded_channel();
    let server = serve(Defective(events), settings_over(fast_path));
    let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
    assert!(raw.send(&call(1, "ok")).await);
    assert_eq!(received.recv().await, Some(Event::Begun));
    assert!(raw.send(&call(3, "")).await);
    loop {
        let reply = raw.next().await.expect("the connection stays");
        if reply.kind == RST_STREAM {
            assert_eq!(reply.stream, 3);
            break;
        }
    }
    processed(&mut raw).await;
    assert!(received.try_recv().is_err(), "the other call still waits");
    drop(raw);
    assert_eq!(received.recv().await, Some(Event::Dropped));
    server.stop().await;
}

/// Headers of a call that follow `indexed_first` in HPACK: five bytes.
const INDEXED: [u8; 5] = [0x83, 0x86, 0xc0, 0xbf, 0xbe];

/// The headers of a call, which store the path, the content type and `te` in the dynamic table.
fn indexed_first() -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let path = [vec![0x44], text(PATH)].concat();
    let content_type = [vec![0x5f], text("application/grpc")].concat();
    let te = [vec![0x40], text("te"), text("trailers")].concat();
    [vec![0x83, 0x86], path, content_type, te].concat()
}

/// After a stall of weir, a proxy has reset all calls that timed out meanwhile, and its newer calls
/// are behind them on the connection.
async fn calls_behind_resets_of_a_stall_are_answered(fast_path: bool) {
    let (server, metrics) = serve_one_worker(ByDomain, fast_path, |_| {});
    let mut proxy = Raw::connect(server.addresses.grpc, &[]).await;
    let mut streams = streams();
    let mut next = || streams.next().expect("a number");
    let mut sent = frame(HEADERS, END_HEADERS | END_STREAM, next(), &indexed_first());
    for _ in 0..1000 {
        let stream = next();
        sent.extend(frame(HEADERS, END_HEADERS, stream, &INDEXED));
        sent.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    let first = next();
    sent.extend(call(first, "ok"));
    for _ in 1..50 {
        sent.extend(call(next(), "ok"));
    }
    assert!(proxy.send(&sent).await);
    let mut answered = 0;
    while answered < 50 {
        let reply = proxy.next().await.expect("the connection stays");
        answered += usize::from(reply.stream >= first && reply.flags & END_STREAM != 0);
    }
    drop(proxy);
    server.stop().await;
    assert_eq!(metrics.flood.get(), 0);
}

over_both_paths! {
    a_call_reset_before_it_is_whole_is_not_decided,
    a_call_sent_with_its_reset_is_not_decided,
    a_call_reset_while_decided_is_dropped_alone,
    a_closed_connection_drops_its_calls,
    a_half_closed_connection_drops_its_calls,
    a_call_over_its_timeout_is_dropped_and_reset,
    a_response_without_window_rolls_back_at_timeout,
    calls_in_flight_are_answered_after_goaway,
    a_client_that_answers_pings_may_be_silent,
    a_panic_outside_a_decision_resets_that_call_only,
    calls_behind_resets_of_a_stall_are_answered,
}
