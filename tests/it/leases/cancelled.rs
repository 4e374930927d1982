//! Calls that are reset before their response is written: their hits return at once.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use prost::Message;
use tokio::net::TcpStream;

use crate::support::rls::{Client, RateLimitRequest, costing, descriptor, request};
use crate::support::wait::TIMEOUT;
use crate::support::weir::Weir;

/// Slots and reservations last for hours, so what is free was released.
const RULES: &str = "
domain: d
descriptors:
  - key: slots
    rate_limit: { algorithm: concurrency, max: 10, hold: 24h }
  - key: tokens
    rate_limit: { algorithm: token_bucket, requests: 100, window: 24h, reserve: { hold: 24h } }
";

/// Takes one slot and 7 tokens.
fn taking() -> RateLimitRequest {
    request("d", vec![descriptor(&[("slots", "")]), costing(7, descriptor(&[("tokens", "")]))])
}

/// Free slots, and remaining tokens.
fn remaining(client: &Client) -> [u32; 2] {
    let look = ["slots", "tokens"].map(|key| costing(0, descriptor(&[(key, "")])));
    let answer = client.check(request("d", look.to_vec()));
    [0, 1].map(|index| answer.statuses[index].limit_remaining)
}

/// A connection whose flow-control window lets `window` bytes of a response through.
async fn connect(to: SocketAddr, window: u32) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(to).await.expect("weir listens");
    let client = h2::client::Builder::new().initial_window_size(window).handshake(stream);
    let (client, connection) = client.await.expect("weir speaks HTTP/2");
    tokio::spawn(connection);
    client.ready().await.expect("the connection is open")
}

/// One call, up to the head of its response: the decision was made.
async fn call(
    client: &mut SendRequest<Bytes>,
    to: SocketAddr,
) -> (h2::SendStream<Bytes>, h2::RecvStream) {
    let path = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let head = http::Request::post(format!("http://{to}/{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("a valid request");
    let (answer, mut body) = client.send_request(head, false).expect("the connection is open");
    body.reserve_capacity(1024);
    let room = poll_fn(|context| body.poll_capacity(context)).await;
    room.expect("the stream is open").expect("a window of 64 KiB");
    let message = taking().encode_to_vec();
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    let frame = [&[0][..], &length, &message].concat();
    body.send_data(frame.into(), true).expect("the stream is open");
    let answer = answer.await.expect("weir answers");
    assert_eq!(answer.status(), 200);
    (body, answer.into_body())
}

/// A call whose response was read keeps its hits, even if it is reset afterwards and its connection
/// closed. Nine more take all other slots and are reset before their responses are read. Their hits
/// return.
#[test]
fn a_cancelled_call_returns_its_slots_at_once() {
    let weir = Weir::start(RULES);
    let looks = weir.client();
    looks.block_on(async {
        let mut client = connect(weir.grpc, 65_535).await;
        let (mut body, mut answer) = call(&mut client, weir.grpc).await;
        while let Some(data) = answer.data().await {
            let length = data.expect("the answer is whole").len();
            answer.flow_control().release_capacity(length).expect("it was received");
        }
        answer.trailers().await.expect("the answer is whole").expect("gRPC has trailers");
        body.send_reset(h2::Reason::CANCEL);
    });
    assert_eq!(remaining(&looks), [9, 93], "a delivered lease stays taken");

    let calls = looks.block_on(async {
        let mut client = connect(weir.grpc, 0).await;
        let mut calls = Vec::new();
        for _ in 0..9 {
            calls.push(call(&mut client, weir.grpc).await);
        }
        calls
    });
    assert_eq!(remaining(&looks), [0, 30], "taken by calls in flight");
    looks.block_on(async {
        for (mut body, answer) in calls {
            body.send_reset(h2::Reason::CANCEL);
            drop(answer);
        }
    });
    // The arrival of a reset causes no event, so poll for its effect. The pause runs on the runtime
    // of the connection, which sends the resets.
    let deadline = Instant::now() + TIMEOUT;
    while remaining(&looks) != [9, 93] {
        assert!(Instant::now() < deadline, "{:?} remain", remaining(&looks));
        looks.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
    }
}
