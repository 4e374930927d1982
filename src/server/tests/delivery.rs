//! Answers that grant something, delivered or not.

use std::future::poll_fn;

use http::Request;
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::support::{request, serve, settings};
use crate::decision::{Grant, Verdict};
use crate::server::Decide;
use crate::server::fake::Obedient;

/// Says yes, and tells when what it granted is given back.
struct Granting(mpsc::UnboundedSender<()>);

impl Decide for Granting {
    async fn decide(&self, request: &crate::descriptor::Request<'_>) -> Verdict {
        let returned = self.0.clone();
        let give_back = Box::new(move || {
            let _ = returned.send(());
        });
        Verdict { grant: Some(Grant::new(vec![give_back])), ..Obedient.decide(request).await }
    }
}

fn frame(message: &impl Message) -> bytes::Bytes {
    let body = message.encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    frame.extend(body);
    frame.into()
}

#[tokio::test]
async fn a_delivered_grant_is_the_callers() {
    let (returned, mut returns) = mpsc::unbounded_channel();
    let served = serve(Granting(returned), settings());
    served.client().await.should_rate_limit(request("ok")).await.unwrap();
    served.stop().await;
    // Every sender has gone with the server, and none has spoken.
    assert_eq!(returns.recv().await, None);
}

/// The caller lets no byte of an answer through, waits until the answer's head is there (so the
/// decision was made), and resets the call, as a proxy does that has timed out.
#[tokio::test]
async fn a_grant_whose_answer_is_reset_before_it_is_written_is_given_back() {
    let (returned, mut returns) = mpsc::unbounded_channel();
    let served = serve(Granting(returned), settings());
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
    assert!(returns.try_recv().is_err(), "still on its way");
    body.send_reset(h2::Reason::CANCEL);
    drop(answer);
    assert_eq!(returns.recv().await, Some(()));
    connection.abort();
    served.stop().await;
}
