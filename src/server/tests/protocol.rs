//! gRPC over HTTP/2: which calls are valid, and the status of every malformed one.

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Method};
use prost::Message;
use tokio::net::TcpStream;
use tonic::Code::{self, Internal, InvalidArgument, OutOfRange, Unimplemented};

use super::raw::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Raw, call_headers, frame, stored_gzip,
};
use super::support::{Served, request, serve, settings_over};
use crate::proto::{self, RateLimitResponse};
use crate::server::grpc::should_rate_limit::PATH;
use crate::server::tests::test_handlers::ByDomain;

const PRIORITY: u8 = 2;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 32;

/// A message with its gRPC prefix.
fn framed(compressed: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[compressed], &length[..], message].concat()
}

fn good() -> Vec<u8> {
    framed(0, &request("ok").encode_to_vec())
}

async fn client(server: &Served) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(server.addresses.grpc).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The `grpc-status` of a call with these headers and a body in these pieces.
async fn call_status(
    client: &mut SendRequest<Bytes>,
    call: http::request::Builder,
    pieces: &[Vec<u8>],
    trailers: bool,
) -> Code {
    let call = call.header("content-type", "application/grpc").body(()).unwrap();
    let mut client = client.clone().ready().await.unwrap();
    let (answer, mut body) = client.send_request(call, pieces.is_empty() && !trailers).unwrap();
    for (index, piece) in pieces.iter().enumerate() {
        let last = index + 1 == pieces.len() && !trailers;
        body.send_data(Bytes::from(piece.clone()), last).unwrap();
    }
    if trailers {
        body.send_trailers(HeaderMap::new()).unwrap();
    }
    let (head, mut body) = answer.await.unwrap().into_parts();
    assert_eq!(head.headers["content-type"], "application/grpc");
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        bytes.extend(piece.unwrap());
    }
    let status = body.trailers().await.unwrap().unwrap_or(head.headers);
    let code = Code::from_bytes(status["grpc-status"].as_bytes());
    assert_eq!(bytes.is_empty(), code != Code::Ok, "a message only with OK");
    code
}

async fn each_malformed_call_has_its_status(fast_path: bool) {
    let server = serve(ByDomain, settings_over(fast_path));
    let mut client = client(&server).await;
    let uri = |path: &str| format!("http://{}{path}", server.addresses.grpc);
    let to = |path: &str| http::Request::builder().method(Method::POST).uri(uri(path));
    let call = || to(PATH);
    let gzip = || call().header("grpc-encoding", "gzip");
    let deflate = || call().header("grpc-encoding", "deflate");
    let identity = || call().header("grpc-encoding", "identity");
    let message = request("ok").encode_to_vec();
    let (half, rest) = (good()[..9].to_vec(), good()[9..].to_vec());
    let two = [good(), good()].concat();
    let empty = Vec::new;
    let table = [
        ("whole", call(), vec![good()], false, Code::Ok),
        ("in pieces", call(), vec![empty(), half.clone(), empty(), rest, empty()], false, Code::Ok),
        ("with trailers", call(), vec![good()], true, Code::Ok),
        ("as it is", identity(), vec![good()], false, Code::Ok),
        (
            "with a long timeout",
            call().header("grpc-timeout", "99999999H"),
            vec![good()],
            false,
            Code::Ok,
        ),
        (
            "with an invalid timeout",
            call().header("grpc-timeout", "soon"),
            vec![good()],
            false,
            Code::Ok,
        ),
        ("gzip", gzip(), vec![framed(1, &stored_gzip(&message))], false, Code::Ok),
        ("gzip without compression", gzip(), vec![good()], false, Code::Ok),
        ("no gzip", gzip(), vec![framed(1, &message)], false, Internal),
        ("deflate", deflate(), vec![framed(1, &message)], false, Unimplemented),
        ("deflate without compression", deflate(), vec![good()], false, Unimplemented),
        ("unknown flag", call(), vec![framed(2, &message)], false, Internal),
        ("flag 1 without an encoding", call(), vec![framed(1, &message)], false, Internal),
        ("flag 1 with identity", identity(), vec![framed(1, &message)], false, Internal),
        ("no message", call(), vec![], false, Unimplemented),
        ("trailers alone", call(), vec![], true, Unimplemented),
        ("two messages", call(), vec![two], false, Unimplemented),
        ("one after the other", call(), vec![good(), good()], false, Unimplemented),
        ("half a message", call(), vec![half], false, Internal),
        ("no request", call(), vec![framed(0, &[255; 3])], false, InvalidArgument),
        ("too large", call(), vec![vec![0, 127, 0, 0, 0]], false, OutOfRange),
        (
            "another method",
            to("/envoy.service.ratelimit.v3.RateLimitService/No"),
            vec![good()],
            false,
            Unimplemented,
        ),
        ("another service", to("/a.B/C"), vec![good()], false, Unimplemented),
    ];
    for (what, call, pieces, trailers, expected) in table {
        assert_eq!(call_status(&mut client, call, &pieces, trailers).await, expected, "{what}");
    }
    server.stop().await;
}

/// The status, the message and the body of the response to a request without a body.
async fn refusal(
    client: &mut SendRequest<Bytes>,
    request: http::request::Builder,
) -> (http::response::Parts, bool) {
    let mut client = client.clone().ready().await.unwrap();
    let (answer, _) = client.send_request(request.body(()).unwrap(), true).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    (head, body.data().await.is_some())
}

async fn requests_that_are_no_calls_are_refused(fast_path: bool) {
    let server = serve(ByDomain, settings_over(fast_path));
    let mut client = client(&server).await;
    let uri = |path: &str| format!("http://{}{path}", server.addresses.grpc);
    let to = |method, path: &str| http::Request::builder().method(method).uri(uri(path));
    let grpc = "application/grpc";
    for (request, status) in [
        (to(Method::GET, "/"), 405),
        (to(Method::GET, PATH).header("content-type", grpc), 405),
        (to(Method::POST, PATH), 415),
        (to(Method::POST, PATH).header("content-type", "application/json"), 415),
        (to(Method::POST, "/a.B/C").header("content-type", "text/plain"), 415),
    ] {
        let (head, has_body) = refusal(&mut client, request).await;
        assert_eq!((head.status.as_u16(), has_body), (status, false));
        assert_eq!(head.headers.contains_key("allow"), status == 405);
    }
    let unknown = to(Method::POST, "/a.B/C").header("content-type", grpc);
    let (head, has_body) = refusal(&mut client, unknown).await;
    assert_eq!((head.status.as_u16(), has_body), (200, false));
    assert_eq!(head.headers["grpc-status"], "12");
    assert_eq!(head.headers["grpc-message"], "unknown method /a.B/C");
    let long = to(Method::POST, &"/x".repeat(5000)).header("content-type", grpc);
    let (head, _) = refusal(&mut client, long).await;
    assert!(head.headers["grpc-message"].len() < 300);
    server.stop().await;
}

async fn frames_may_be_split_and_padded(fast_path: bool) {
    let server = serve(ByDomain, settings_over(fast_path));
    let headers = call_headers();
    let (first, rest) = headers.split_at(9);
    let padded = |bytes: &[u8]| [&[7], bytes, &[0; 7]].concat();
    let prior = |bytes: &[u8]| [&[0, 0, 0, 0, 16], bytes].concat();
    let ways = [
        [frame(HEADERS, 0, 1, first), frame(CONTINUATION, END_HEADERS, 1, rest)].concat(),
        frame(HEADERS, END_HEADERS | PADDED, 1, &padded(&headers)),
        frame(HEADERS, END_HEADERS | WITH_PRIORITY, 1, &prior(&headers)),
        [
            frame(PRIORITY, 0, 1, &prior(&[])),
            frame(HEADERS, END_HEADERS, 1, &headers),
            frame(PRIORITY, 0, 1, &prior(&[])),
        ]
        .concat(),
    ];
    for head in ways {
        let mut raw = Raw::connect(server.addresses.grpc, &[]).await;
        let body = frame(DATA, END_STREAM | PADDED, 1, &padded(&good()));
        assert!(raw.send(&[&head[..], &body].concat()).await);
        let mut answer = Vec::new();
        loop {
            let reply = raw.next().await.expect("the connection stays");
            if reply.kind == DATA {
                answer.extend(&reply.payload);
            }
            if reply.stream == 1 && reply.flags & END_STREAM != 0 {
                break;
            }
        }
        let answer = RateLimitResponse::decode(&answer[5..]).unwrap();
        assert_eq!(answer.overall_code(), proto::Code::Ok);
    }
    server.stop().await;
}

over_both_paths! {
    each_malformed_call_has_its_status,
    requests_that_are_no_calls_are_refused,
    frames_may_be_split_and_padded,
}
