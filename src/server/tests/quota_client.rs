//! A client of quota streams that may send any bytes.

use std::future::poll_fn;

use bytes::{Buf, Bytes, BytesMut};
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use prost::Message;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::support::{Served, in_time};
use crate::proto::{BucketId, BucketQuotaUsage, RateLimitQuotaUsageReports};

const PATH: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/// The first window of a response, unless a test sets another one.
const WINDOW: u32 = 65_535;

/// A framed report with `buckets`.
pub(super) fn report(domain: &str, buckets: usize) -> Vec<u8> {
    let usage = |number: usize| BucketQuotaUsage {
        bucket_id: Some(BucketId { bucket: [("number".into(), number.to_string())].into() }),
        num_requests_allowed: 1,
        ..BucketQuotaUsage::default()
    };
    let bucket_quota_usages = (0..buckets).map(usage).collect();
    let report = RateLimitQuotaUsageReports { domain: domain.into(), bucket_quota_usages };
    framed(&report.encode_to_vec())
}

/// `message` with its prefix.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// A framed report with another flag.
pub(super) fn invalid_flag(flag: u8) -> Vec<u8> {
    let mut bytes = report("shop", 1);
    bytes[0] = flag;
    bytes
}

/// A connection. Dropping it closes it.
pub(super) struct QuotaClient {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<()>,
    to: String,
}

/// A stream.
pub(super) struct QuotaStreamCall {
    sent: SendStream<Bytes>,
    answer: Option<ResponseFuture>,
    response: Option<Response<RecvStream>>,
    received: BytesMut,
}

/// How a stream ended.
#[derive(Debug)]
pub(super) struct CallEnd {
    pub(super) code: u16,
    pub(super) message: String,
    pub(super) is_trailers_only: bool,
    /// `grpc-accept-encoding`.
    pub(super) accepts: String,
}

impl QuotaClient {
    pub(super) async fn connect(server: &Served) -> QuotaClient {
        QuotaClient::connect_with_window(server, WINDOW).await
    }

    /// Connects. A response may have `window` bytes before the client has read any.
    pub(super) async fn connect_with_window(server: &Served, window: u32) -> QuotaClient {
        let to = server.addresses.grpc;
        let stream = TcpStream::connect(to).await.unwrap();
        let (requests, connection) =
            Builder::new().initial_window_size(window).handshake(stream).await.unwrap();
        let connection = tokio::spawn(async move {
            let _ = connection.await;
        });
        QuotaClient { requests, connection, to: to.to_string() }
    }

    /// Opens a stream.
    pub(super) fn open(&mut self, name: Option<&str>) -> QuotaStreamCall {
        let mut request = Request::post(format!("http://{}{PATH}", self.to))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(name) = name {
            request = request.header("x-weir-instance", name);
        }
        let request = request.body(()).unwrap();
        let (answer, sent) = self.requests.send_request(request, false).unwrap();
        let received = BytesMut::new();
        QuotaStreamCall { sent, answer: Some(answer), response: None, received }
    }
}

impl Drop for QuotaClient {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl QuotaStreamCall {
    /// Sends `bytes`, and ends the client's half of the stream if `ends`.
    pub(super) fn send(&mut self, bytes: &[u8], ends: bool) {
        self.sent.send_data(Bytes::copy_from_slice(bytes), ends).unwrap();
    }

    /// Sends `bytes` again and again as the window allows, at most `max` in all. Returns what was sent
    /// when the window stays closed.
    pub(super) async fn flood(&mut self, bytes: &[u8], max: usize) -> usize {
        let mut sent = 0;
        while sent < max {
            let at = sent % bytes.len();
            self.sent.reserve_capacity(bytes.len() - at);
            let capacity = poll_fn(|context| self.sent.poll_capacity(context));
            // The server is idle for this time.
            let room = tokio::time::timeout(std::time::Duration::from_millis(200), capacity).await;
            let Ok(room) = room else { break };
            let room = room.unwrap().unwrap().min(bytes.len() - at);
            self.sent.send_data(Bytes::copy_from_slice(&bytes[at..at + room]), false).unwrap();
            sent += room;
        }
        sent
    }

    /// The response, or the error of a stream that was reset before it.
    pub(super) async fn answer(&mut self) -> Result<(), h2::Error> {
        if let Some(answer) = self.answer.take() {
            self.response = Some(answer.await?);
        }
        Ok(())
    }

    /// Waits for the headers of the response.
    pub(super) async fn opened(&mut self) {
        in_time("the headers", self.answer()).await.unwrap();
    }

    /// Waits until the server has reset the stream.
    pub(super) async fn until_reset(&mut self) {
        if self.answer().await.is_err() {
            return;
        }
        let body = self.response.as_mut().unwrap().body_mut();
        while let Some(Ok(_)) = body.data().await {}
        assert!(!body.is_end_stream(), "the stream has ended in order");
    }

    /// The next data of the response. The window stays as it is.
    pub(super) async fn some_data(&mut self) -> Bytes {
        self.opened().await;
        self.response.as_mut().unwrap().body_mut().data().await.unwrap().unwrap()
    }

    /// The next message.
    pub(super) async fn message(&mut self) -> Bytes {
        self.opened().await;
        let body = self.response.as_mut().unwrap().body_mut();
        loop {
            if let Some((head, rest)) = self.received.split_first_chunk::<5>() {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if rest.len() >= length {
                    assert_eq!(head[0], 0, "no compression");
                    self.received.advance(5);
                    return self.received.split_to(length).freeze();
                }
            }
            let data = in_time("a message", body.data()).await.expect("no end").unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            self.received.extend_from_slice(&data);
        }
    }

    /// Reads the rest of the response, which must have no message, and returns how it ends.
    pub(super) async fn status(&mut self) -> CallEnd {
        self.opened().await;
        let (head, mut body) = self.response.take().unwrap().into_parts();
        let text = |headers: &HeaderMap, name: &str| {
            headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        let accepts = text(&head.headers, "grpc-accept-encoding");
        let is_trailers_only = head.headers.contains_key("grpc-status");
        let trailers = if is_trailers_only {
            head.headers
        } else {
            let data = in_time("the end", body.data()).await;
            assert!(data.is_none(), "{data:?}");
            in_time("the trailers", body.trailers()).await.unwrap().expect("a status")
        };
        let code = text(&trailers, "grpc-status").parse().unwrap();
        CallEnd { code, message: text(&trailers, "grpc-message"), is_trailers_only, accepts }
    }
}
