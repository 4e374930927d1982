//! Attacks on HTTP/2: each is a flood of frames that costs the client little. Most end the
//! connection. During each, other clients are served, and the memory of clients is bounded. After it,
//! nothing is held.

use std::sync::Arc;

use super::raw::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, Raw, SETTINGS, call,
    call_headers, frame, headers_to,
};
use super::support::{Served, in_time, serve_one_worker, wait_until};
use crate::server::tests::test_handlers::ByDomain;
use crate::server::{PartMemory, ServerConfig, ServerMetrics};

const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 32;

/// An attack: its name, and what it sends after the preface by the index of the send.
type Attack = (&'static str, fn(u32) -> Vec<u8>);

fn stream(index: u32) -> u32 {
    2 * index + 1
}

/// The headers of a call on the stream of `index`.
fn head(index: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream(index), &call_headers())
}

fn reset(index: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream(index), &8_u32.to_be_bytes())
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// The headers of a call, with a field more.
fn head_with(index: u32, name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let headers = [call_headers(), vec![0], text(name), text(value)].concat();
    frame(HEADERS, END_HEADERS, stream(index), &headers)
}

/// `first` at index 0, and `then` at all others.
fn after(index: u32, first: Vec<u8>, then: Vec<u8>) -> Vec<u8> {
    if index == 0 { first } else { then }
}

/// Attacks that end the connection.
const ENDING: &[Attack] = &[
    ("empty CONTINUATION", |index| {
        let begun = frame(HEADERS, 0, 1, &call_headers());
        after(index, begun, frame(CONTINUATION, 0, 1, &[]))
    }),
    ("CONTINUATION with headers", |index| {
        let begun = frame(HEADERS, 0, 1, &call_headers());
        after(index, begun, frame(CONTINUATION, 0, 1, &[0, 1, b'x', 1, b'y'].repeat(100)))
    }),
    ("reset headers", |index| [head(index), reset(index)].concat()),
    ("reset calls", |index| [call(stream(index), "ok"), reset(index)].concat()),
    ("reset pieces of calls", |index| {
        [head(index), frame(DATA, 0, stream(index), &[0, 0, 0]), reset(index)].concat()
    }),
    ("window updates of 0", |index| [head(index), window_update(stream(index), 0)].concat()),
    ("windows over the maximum", |index| {
        [head(index), window_update(stream(index), (1 << 31) - 1)].concat()
    }),
    ("headers after the end", |index| {
        let whole = frame(HEADERS, END_HEADERS | END_STREAM, stream(index), &call_headers());
        [whole.clone(), whole].concat()
    }),
    ("trailers that are not the end", |index| [head(index), head(index)].concat()),
    ("streams that depend on themselves", |index| {
        let depends = [&stream(index).to_be_bytes()[..], &[16], &call_headers()].concat();
        frame(HEADERS, END_HEADERS | WITH_PRIORITY, stream(index), &depends)
    }),
    ("bodies over their content-length", |index| {
        let head = head_with(index, "content-length", "1");
        [head, frame(DATA, END_STREAM, stream(index), &[0; 5])].concat()
    }),
    ("pings", |_| frame(PING, 0, 0, &[0; 8])),
    ("replies to pings", |_| frame(PING, ACK, 0, &[0; 8])),
    ("settings", |_| frame(SETTINGS, 0, 0, &[])),
    ("settings that change", |index| {
        let window = [&[0, 4][..], &(index % 1000).to_be_bytes()].concat();
        frame(SETTINGS, 0, 0, &window)
    }),
    ("acknowledged settings", |_| frame(SETTINGS, ACK, 0, &[])),
    ("pushes", |index| frame(PUSH_PROMISE, END_HEADERS, stream(index), &[0, 0, 0, 2])),
    ("priorities", |index| frame(PRIORITY, 0, stream(index), &[0, 0, 0, 0, 1])),
    ("window updates", |_| window_update(0, 1)),
    ("unknown frames", |_| frame(99, 0, 0, b"?")),
    ("alternative services", |_| frame(10, 0, 0, &[0, 0])),
    ("empty DATA", |index| after(index, head(0), frame(DATA, 0, 1, &[]))),
    ("padded empty DATA", |index| {
        after(index, head(0), frame(DATA, PADDED, 1, &[&[200][..], &[0; 200]].concat()))
    }),
    ("DATA of streams that were reset", |index| {
        let data = frame(DATA, 0, stream(index.saturating_sub(1)), b"x");
        [head(index), reset(index), data].concat()
    }),
    ("DATA of a stream that the server has reset", |index| {
        let too_large = [head(0), frame(DATA, 0, 1, &[0, 255, 255, 255, 255])].concat();
        after(index, too_large, frame(DATA, 0, 1, &[0; 16_000]))
    }),
    ("HPACK bomb", |index| {
        // One field of 2000 bytes is stored, and then repeated 1000 times.
        let length = [0x7f, 0xd1, 0x0e];
        let stored = [&[0x40, 1, b'x'][..], &length, &[b'y'; 2000]].concat();
        let bomb = [call_headers(), stored, vec![0xbe; 1000]].concat();
        frame(HEADERS, END_HEADERS, stream(index), &bomb)
    }),
    ("streams over the limit", head),
];

/// A budget that these attacks fill: one address gets 256 KiB of waiting calls, which is room for 42.
const SMALL_BUDGET: usize = 4 << 20;

/// Attacks that need not end the connection. What they hold is bounded.
const BOUNDED: &[Attack] = &[
    ("one byte at a time", |index| {
        let prefix = frame(DATA, 0, 1, &[0, 0, 0x0f, 0x42, 0x40]);
        after(index, [head(0), prefix].concat(), frame(DATA, 0, 1, b"x"))
    }),
    ("HPACK table sizes", |index| {
        let headers = [vec![0x20; 4000], call_headers()].concat();
        frame(HEADERS, END_HEADERS | END_STREAM, stream(index), &headers)
    }),
    ("many headers", |index| {
        let headers = [call_headers(), [0, 2, b'x', b'y', 0].repeat(400)].concat();
        frame(HEADERS, END_HEADERS, stream(index), &headers)
    }),
    ("long headers", |index| head_with(index, "x", &"y".repeat(120))),
    ("health watches", |index| {
        let headers = headers_to("/grpc.health.v1.Health/Watch");
        frame(HEADERS, END_HEADERS, stream(index), &headers)
    }),
    ("calls without a window", |index| {
        let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        after(index, no_window, call(stream(index), "full"))
    }),
];

/// Sends `attack` until the connection is closed, `sends` times at most. Returns the connection if it
/// is open after that. Meanwhile another client is served, and the held memory stays within its
/// maximum.
async fn sent(
    server: &Served,
    metrics: &ServerMetrics,
    (name, attack): Attack,
    sends: u32,
) -> Option<Raw> {
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    for index in 0..sends {
        if index == 50 {
            another_client_is_served(server, name).await;
        }
        if index % 50 == 0 {
            memory_is_bounded(metrics, name).await;
        }
        let mut replies = [0; 4096];
        // Replies are read, or the server would stop reading until its writes succeed.
        let is_closed = hostile.stream.try_read(&mut replies).is_ok_and(|bytes| bytes == 0);
        if is_closed || !hostile.send(&attack(index)).await {
            return None;
        }
    }
    Some(hostile)
}

/// A server with the settings that `tune` changes, and its metrics.
fn serving(fast_path: bool, tune: impl FnOnce(&mut ServerConfig)) -> (Served, Arc<ServerMetrics>) {
    serve_one_worker(ByDomain, fast_path, |settings| {
        settings.grpc.max_control_frames = 500;
        settings.grpc.max_pending_resets = 200;
        tune(settings);
    })
}

async fn floods_of_frames_end_the_connection(fast_path: bool) {
    let (server, metrics) = serving(fast_path, |_| {});
    let closed = || metrics.flood.get() + metrics.protocol_error.get();
    for &attack in ENDING {
        let (name, before) = (attack.0, closed());
        // The buffers of the sockets have room for all sends, if the server gets no processor time
        // meanwhile.
        if let Some(mut hostile) = sent(&server, &metrics, attack, 100_000).await {
            in_time(&format!("the end of {name}"), hostile.closed()).await;
        }
        wait_until(&format!("the count of {name}"), || closed() > before).await;
        assert_eq!(closed(), before + 1, "{name}");
        another_client_is_served(&server, name).await;
        nothing_is_held(&metrics, name).await;
    }
    server.stop().await;
}

async fn other_floods_are_bounded(fast_path: bool) {
    let (server, metrics) =
        serving(fast_path, |settings| settings.grpc.max_client_memory = SMALL_BUDGET);
    for &attack in BOUNDED {
        let (name, _) = attack;
        // The attack may end the connection, or go on until all is sent.
        drop(sent(&server, &metrics, attack, 3000).await);
        another_client_is_served(&server, name).await;
        nothing_is_held(&metrics, name).await;
    }
    let refused = metrics.memory_full.get() + metrics.memory_evicted.get();
    assert!(refused > 0, "no attack has filled the memory");
    server.stop().await;
}

async fn another_client_is_served(server: &Served, attack: &str) {
    if let Err(error) = server.try_call().await {
        panic!("{attack}: {error}");
    }
}

/// Waits until no part of the memory exceeds its maximum. A call that is refused counts for an
/// instant, and a connection that is evicted until it has closed.
async fn memory_is_bounded(metrics: &ServerMetrics, attack: &str) {
    let is_bounded = |part: &&PartMemory| part.held.get() <= part.max.get();
    let what = format!("{attack}: memory within its maximum");
    wait_until(&what, || parts(metrics).iter().all(is_bounded)).await;
}

/// Waits until all memory of clients that are gone was returned.
async fn nothing_is_held(metrics: &ServerMetrics, attack: &str) {
    let what = format!("{attack}: all memory to come back");
    wait_until(&what, || parts(metrics).iter().all(|part| part.held.get() == 0)).await;
}

fn parts(metrics: &ServerMetrics) -> [&PartMemory; 4] {
    let memory = &metrics.client_memory;
    [&memory.connections, &memory.buffers, &memory.waiting, &memory.deciding]
}

over_both_paths! {
    floods_of_frames_end_the_connection,
    other_floods_are_bounded,
}
