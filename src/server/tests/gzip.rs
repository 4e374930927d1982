//! Compressed calls: tonic serves them, with `grpc.fast_path` on or off.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tonic::Code;
use tonic::codec::CompressionEncoding::Gzip;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::raw::stored_gzip;
use super::support::{Served, request, serve, settings_over};
use super::test_handlers::{Blocking, ByDomain};
use crate::proto::{self, RateLimitRequest, RateLimitResponse};
use crate::server::grpc::should_rate_limit::PATH;

/// A request whose only value has `bytes` equal bytes. gzip makes it about 100 times smaller.
fn large(bytes: usize) -> RateLimitRequest {
    let mut large = request("ok");
    large.descriptors[0].entries[0].value = "v".repeat(bytes);
    large
}

/// The status code of a call by a client that compresses.
async fn compressed(server: &Served, request: RateLimitRequest) -> Code {
    let mut client = server.client().await.send_compressed(Gzip).accept_compressed(Gzip);
    client.should_rate_limit(request).await.map_or_else(|status| status.code(), |_| Code::Ok)
}

async fn a_client_that_compresses_is_answered(fast_path: bool) {
    let server = serve(ByDomain, settings_over(fast_path));
    let mut client = server.client().await.send_compressed(Gzip).accept_compressed(Gzip);
    let answer = client.should_rate_limit(request("full")).await.unwrap().into_inner();
    assert_eq!(answer.overall_code(), proto::Code::OverLimit);
    let status = client.should_rate_limit(request("")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("domain must not be empty"));
    let mut health = HealthClient::new(server.channel().await).send_compressed(Gzip);
    health.check(HealthCheckRequest { service: String::new() }).await.unwrap();
    server.stop().await;
}

/// The `grpc-encoding` of the response to a call with `headers` and `body`, and its message's flag.
async fn response_encoding(server: &Served, headers: &[(&str, &str)], body: &[u8]) -> (String, u8) {
    let stream = TcpStream::connect(server.addresses.grpc).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{}{PATH}", server.addresses.grpc);
    let mut call = http::Request::post(uri).header("content-type", "application/grpc");
    for (name, value) in headers {
        call = call.header(*name, *value);
    }
    let mut client = client.ready().await.unwrap();
    let (answer, mut sending) = client.send_request(call.body(()).unwrap(), false).unwrap();
    let mut framed = vec![u8::from(headers.contains(&("grpc-encoding", "gzip")))];
    framed.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    framed.extend(body);
    sending.send_data(Bytes::from(framed), true).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        bytes.extend(piece.unwrap());
    }
    if bytes[0] == 0 {
        RateLimitResponse::decode(&bytes[5..]).unwrap();
    }
    let encoding = head.headers.get("grpc-encoding").map(|value| value.to_str().unwrap());
    (encoding.unwrap_or("none").to_owned(), bytes[0])
}

/// Responses are compressed as by grpc-go's servers: an uncompressed call gets an uncompressed
/// response, even if the client accepts gzip.
async fn an_answer_is_compressed_if_its_request_was(fast_path: bool) {
    let server = serve(ByDomain, settings_over(fast_path));
    let plain = request("full").encode_to_vec();
    let gzip = stored_gzip(&plain);
    let (sends, accepts) = (("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity,gzip"));
    let none = ("none".to_owned(), 0);
    assert_eq!(response_encoding(&server, &[sends, accepts], &gzip).await, ("gzip".to_owned(), 1));
    assert_eq!(response_encoding(&server, &[sends], &gzip).await, none);
    assert_eq!(response_encoding(&server, &[accepts], &plain).await, none);
    assert_eq!(response_encoding(&server, &[], &plain).await, none);
    server.stop().await;
}

/// The maximum applies to the inflated message too, not only to the bytes that were sent.
async fn a_message_inflated_over_the_maximum_is_refused(fast_path: bool) {
    let mut settings = settings_over(fast_path);
    settings.grpc.max_message_bytes = 1000;
    let server = serve(ByDomain, settings);
    assert_eq!(compressed(&server, large(500)).await, Code::Ok);
    assert_eq!(compressed(&server, large(2000)).await, Code::ResourceExhausted);
    server.stop().await;
}

async fn inflated_bytes_count_in_the_budget(fast_path: bool) {
    let (arrived, _arrivals) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let mut settings = settings_over(fast_path);
    // An eighth of it is for calls that wait for their decision.
    settings.grpc.max_client_memory = 1 << 20;
    let server = serve(Blocking { arrived, go: Arc::clone(&go) }, settings);
    let metrics = Arc::clone(&server.metrics);
    let mut four = large(60_000);
    four.descriptors = vec![four.descriptors.remove(0); 4];
    let refused = compressed(&server, four).await;
    assert_eq!((refused, metrics.memory_full.get()), (Code::ResourceExhausted, 1));
    go.add_permits(1);
    // This decision does not wait.
    assert_eq!(compressed(&server, large(60_000)).await, Code::Ok);
    assert_eq!(metrics.client_memory.deciding.held.get(), 0);
    server.stop().await;
}

over_both_paths! {
    a_client_that_compresses_is_answered,
    an_answer_is_compressed_if_its_request_was,
    a_message_inflated_over_the_maximum_is_refused,
    inflated_bytes_count_in_the_budget,
}
