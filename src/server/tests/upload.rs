//! Messages that are never sent whole: what they may hold, and that others are answered meanwhile.

use std::sync::Arc;

use tonic::Code;

use super::raw::{DATA, END_HEADERS, HEADERS, Raw, call_headers, frame, headers_to, streams};
use super::support::{Served, request, serve, settings};
use crate::server::Counters;
use crate::server::fake::Obedient;

const MAX: usize = 64 << 10;
const PIECE: usize = 16 << 10;

fn serving() -> (Served, Arc<Counters>) {
    let mut settings = settings();
    settings.cores = Some(1);
    settings.grpc.max_upload_bytes = MAX;
    let counters = Arc::clone(&settings.counters);
    (serve(Obedient, settings), counters)
}

/// The beginning of a call whose message would have a million bytes.
fn beginning(stream: u32, headers: &[u8]) -> Vec<u8> {
    let mut piece = vec![b'x'; PIECE];
    piece[..5].copy_from_slice(&[0, 0, 0x0f, 0x42, 0x40]);
    [frame(HEADERS, END_HEADERS, stream, headers), frame(DATA, 0, stream, &piece)].concat()
}

/// What becomes of a whole message that is more than free.
async fn large(server: &Served) -> Code {
    let large = request(&"x".repeat(PIECE));
    let answer = server.client().await.should_rate_limit(large).await;
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn halves_of_messages_hold_no_more_than_they_may_and_give_it_back() {
    let (server, counters) = serving();
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    for stream in streams().take(8) {
        assert!(hostile.send(&beginning(stream, &call_headers())).await);
    }
    // Four pieces fit, beside what is free: the fifth call is the first to be refused.
    loop {
        let said = hostile.next().await.expect("the connection stays");
        if said.kind == HEADERS {
            assert_eq!(said.stream, 9);
            break;
        }
    }
    server.try_call().await.unwrap();
    assert_eq!(large(&server).await, Code::ResourceExhausted);
    drop(hostile);
    while large(&server).await == Code::ResourceExhausted {}
    assert_eq!(large(&server).await, Code::Ok);
    server.stop().await;
    assert!(counters.upload_refused.get() >= 5);
}

#[tokio::test]
async fn calls_that_stay_open_are_sent_no_large_message() {
    let (server, counters) = serving();
    let mut hostile = Raw::connect(server.addresses.grpc, &[]).await;
    let watch = headers_to("/grpc.health.v1.Health/Watch");
    assert!(hostile.send(&beginning(1, &watch)).await);
    loop {
        let said = hostile.next().await.expect("the connection stays");
        if said.kind == HEADERS && said.stream == 1 {
            break;
        }
    }
    drop(hostile);
    server.stop().await;
    assert_eq!(counters.upload_refused.get(), 1);
}
