//! Leases are kept once the response was delivered, and given back otherwise.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::raw::{DATA, END_STREAM, RST_STREAM, Raw, call, frame as http2, streams};
use super::support::{request, serve, settings_over};
use crate::decision::Verdict;
use crate::lease_rollback::LeaseRollback;
use crate::proto::RateLimitResponse;
use crate::server::Decide;
use crate::server::tests::test_handlers::ByDomain;

/// Decides by domain, and reports when its lease is given back.
struct ReportsReturnedLeases(mpsc::UnboundedSender<()>);

impl Decide for ReportsReturnedLeases {
    async fn decide(&self, request: &crate::descriptor::Request<'_>) -> Verdict {
        let returned = self.0.clone();
        let action = Box::new(move || {
            let _ = returned.send(());
        });
        Verdict {
            rollback: Some(LeaseRollback::new(vec![action])),
            ..ByDomain.decide(request).await
        }
    }
}

fn frame(message: &impl Message) -> bytes::Bytes {
    let body = message.encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    frame.extend(body);
    frame.into()
}

async fn a_delivered_lease_is_kept(fast_path: bool) {
    let (returned, mut returns) = mpsc::unbounded_channel();
    let served = serve(ReportsReturnedLeases(returned), settings_over(fast_path));
    served.client().await.should_rate_limit(request("ok")).await.unwrap();
    served.stop().await;
    // The server has dropped every sender, and none has reported a returned lease.
    assert_eq!(returns.recv().await, None);
}

/// The client's window is 0, so no byte of the message can be sent. The client waits for the
/// response headers, which means that the decision was made. It then resets the call, as a proxy
/// does after its timeout.
async fn a_lease_reset_before_delivery_is_given_back(fast_path: bool) {
    let (returned, mut returns) = mpsc::unbounded_channel();
    let served = serve(ReportsReturnedLeases(returned), settings_over(fast_path));
    let stream = TcpStream::connect(served.addresses.grpc).await.unwrap();
    let (client, connection) = h2::client::Builder::new()
        .initial_window_size(0)
        .handshake::<_, bytes::Bytes>(stream)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let call = Request::post(format!(
        "http://{}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        served.addresses.grpc
    ))
    .header("content-type", "application/grpc")
    .header("te", "trailers")
    .body(())
    .unwrap();
    let (answer, mut body) = client.send_request(call, false).unwrap();
    body.reserve_capacity(1024);
    poll_fn(|context| body.poll_capacity(context)).await.unwrap().unwrap();
    body.send_data(frame(&request("ok")), true).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(returns.try_recv().is_err(), "the response is not delivered yet");
    body.send_reset(h2::Reason::CANCEL);
    drop(answer);
    assert_eq!(returns.recv().await, Some(()));
    connection.abort();
    served.stop().await;
}

/// A SETTINGS entry: an initial window of one byte per response.
const ONE_BYTE: (u16, u32) = (4, 1);

async fn a_lease_reset_during_delivery_is_given_back(fast_path: bool) {
    let (returned, mut returns) = mpsc::unbounded_channel();
    let served = serve(ReportsReturnedLeases(returned), settings_over(fast_path));
    let mut raw = Raw::connect(served.addresses.grpc, &[ONE_BYTE]).await;
    assert!(raw.send(&call(1, "ok")).await);
    while raw.next().await.expect("the connection stays").kind != DATA {}
    assert!(raw.send(&http2(RST_STREAM, 0, 1, &8_u32.to_be_bytes())).await);
    assert_eq!(returns.recv().await, Some(()));
    drop(raw);
    served.stop().await;
}

async fn a_response_read_byte_by_byte_arrives(fast_path: bool) {
    const WINDOW_UPDATE: u8 = 8;
    let served = serve(ByDomain, settings_over(fast_path));
    let mut raw = Raw::connect(served.addresses.grpc, &[ONE_BYTE]).await;
    assert!(raw.send(&call(1, "full")).await);
    let mut answer = Vec::new();
    loop {
        let reply = raw.next().await.expect("the connection stays");
        if reply.kind == DATA {
            assert_eq!(reply.payload.len(), 1);
            answer.extend(reply.payload);
            assert!(raw.send(&http2(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes())).await);
        } else if reply.stream == 1 && reply.flags & END_STREAM != 0 {
            break;
        }
    }
    assert_eq!(RateLimitResponse::decode(&answer[5..]).unwrap().statuses.len(), 2);
    drop(raw);
    served.stop().await;
}

async fn calls_whose_responses_stay_unread_are_reset(fast_path: bool) {
    let mut settings = settings_over(fast_path);
    settings.grpc.call_timeout = Duration::from_millis(50);
    let served = serve(ByDomain, settings);
    let metrics = Arc::clone(&served.metrics);
    let mut raw = Raw::connect(served.addresses.grpc, &[ONE_BYTE]).await;
    for stream in streams().take(10) {
        assert!(raw.send(&call(stream, "full")).await);
    }
    let mut resets = 0;
    while resets < 10 {
        let reply = raw.next().await.expect("the connection stays");
        resets += usize::from(reply.kind == RST_STREAM);
    }
    drop(raw);
    served.stop().await;
    assert_eq!(metrics.call_timeout.get(), 10);
}

over_both_paths! {
    a_delivered_lease_is_kept,
    a_lease_reset_before_delivery_is_given_back,
    a_lease_reset_during_delivery_is_given_back,
    a_response_read_byte_by_byte_arrives,
    calls_whose_responses_stay_unread_are_reset,
}
