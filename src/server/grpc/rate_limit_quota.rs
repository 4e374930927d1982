//! Serves `RateLimitQuotaService/StreamRateLimitQuotas` (RLQS) directly on its HTTP/2 stream.
//!
//! Envoy opens one stream per domain, and keeps it open. It reports every 5 s, and gets an assignment
//! when its share changes. A stream that has reported may be silent without a limit; keepalive pings
//! find dead clients. It ends with OK when its connection drains, and Envoy then opens another one.
//!
//! One task serves a stream. Whatever it waits for, it also receives what the client sends, so that it
//! counts in the memory of the stream.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use weir_http2::{Error, Reason, RequestBody, Responder};

use super::connection_calls::{ConnectionCalls, CountedCall};
use super::framing::framed_bytes;
use super::memory::call::CallMemory;
use super::response::{self, Sent};
use super::status::{GrpcCode, GrpcStatus};
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::Decide;

mod message_buffer;
mod quota_response;
pub(in crate::server) mod quota_streams;
mod report_body;
mod slices;

use message_buffer::BadMessage;
use quota_response::QuotaResponse;
use quota_streams::{AnyQuotaStream, AnyQuotaStreams, QuotaStreamError, TooManyStreams};
use report_body::{NoReport, ReportBody};
use slices::{ReportSlice, ReportSlices, USAGES_MAX};

/// The request path of `StreamRateLimitQuotas`.
pub(super) const PATH: &str =
    "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/// The most quota streams of one connection. An Envoy has one per domain.
const STREAMS_MAX: u64 = 128;

/// Bytes of a quota stream in addition to those of every call and to what it has received: an estimate
/// of its state here and in the quotas, rounded up.
const STREAM_BYTES: usize = 8 * 1024;

/// Bytes of reports that cost as much time as a bucket.
const BYTES_PER_USAGE: usize = 256;

/// How long a client that ends its half of the stream before its first assignment waits for that.
const HALF_CLOSED_WAIT: Duration = Duration::from_secs(1);

/// The service of quota streams. Each worker has one.
#[derive(Clone)]
pub(super) struct QuotaService {
    pub(super) streams: Arc<dyn AnyQuotaStreams>,
    /// `rlqs.max_message_bytes`.
    pub(super) max_message_bytes: usize,
    /// `grpc.call_timeout`: the longest wait for the first report, for the rest of a report, and for
    /// the client to take a response.
    pub(super) limit: Duration,
}

/// An open stream.
struct QuotaCall<'c> {
    stream: Box<dyn AnyQuotaStream>,
    reports: ReportBody,
    response: QuotaResponse,
    memory: CallMemory<'c>,
    limit: Duration,
    /// What was read since other tasks had their turn, in buckets.
    spent: usize,
}

/// What happens on a stream.
enum QuotaEvent {
    /// A report has arrived.
    Report(Bytes),
    /// There is something to send.
    Assignments(Bytes),
    /// The client has ended its half of the stream.
    HalfClosed,
    /// The connection drains.
    Draining,
    /// A message is no report. The stream ends with this status.
    BadMessage(GrpcStatus),
    /// The stream must end.
    Over(Ended),
}

/// How a stream ends that does not end with OK.
enum Ended {
    /// With a status.
    Refused(GrpcStatus),
    /// The client was too slow.
    Late,
    /// The client has gone.
    Gone(Error),
}

impl QuotaService {
    /// Serves one stream of a connection. `name` is the client's `x-weir-instance`.
    pub(super) async fn serve<D: Decide>(
        self,
        calls: Arc<ConnectionCalls<D>>,
        name: Option<Box<str>>,
        body: RequestBody,
        mut respond: Responder,
    ) -> Sent {
        let metrics = &calls.service.metrics;
        let Some(_counted) = CountedCall::begin(&calls.counts.quota_streams, STREAMS_MAX) else {
            metrics.streaming_refused.add();
            let message = format!("a connection may have {STREAMS_MAX} quota streams at a time");
            let status = GrpcStatus::new(GrpcCode::ResourceExhausted, message);
            return response::send_status(&mut respond, status);
        };
        let memory = CallMemory::of(&calls.memory);
        if let Err(full) = memory.wait_for_client(STREAM_BYTES) {
            return response::send_status(&mut respond, full);
        }
        let stream = match self.streams.open_any(calls.memory.address(), name.as_deref()) {
            Ok(stream) => stream,
            Err(TooManyStreams) => {
                metrics.streaming_refused.add();
                let message = TooManyStreams.to_string();
                let status = GrpcStatus::new(GrpcCode::ResourceExhausted, message);
                return response::send_status(&mut respond, status);
            }
        };
        let mut call = QuotaCall {
            stream,
            reports: ReportBody::new(body, self.max_message_bytes, self.limit),
            response: QuotaResponse::new(respond),
            memory,
            limit: self.limit,
            spent: 0,
        };
        let draining = pin!(calls.drain.begun());
        match call.run(draining, metrics).await {
            Ok(()) => call.response.end(None),
            Err(Ended::Refused(status)) => call.response.end(Some(status)),
            Err(Ended::Late) => {
                metrics.call_timeout.add();
                Err(Reason::CANCEL.into())
            }
            Err(Ended::Gone(error)) => Err(error),
        }
    }
}

impl QuotaCall<'_> {
    /// Reads reports and sends assignments until the stream ends. OK means that it ends in order.
    async fn run(
        &mut self,
        mut draining: Pin<&mut impl Future<Output = ()>>,
        metrics: &ServerMetrics,
    ) -> Result<(), Ended> {
        let (mut has_reported, mut is_assigned) = (false, false);
        loop {
            match self.event(draining.as_mut()).await {
                QuotaEvent::Report(report) => {
                    self.read(report).await?;
                    self.response.begin()?;
                    has_reported = true;
                }
                QuotaEvent::Assignments(message) => {
                    self.send(&message).await?;
                    is_assigned = true;
                }
                QuotaEvent::HalfClosed => {
                    if has_reported {
                        let wait = if is_assigned { Duration::ZERO } else { HALF_CLOSED_WAIT };
                        if let Ok(message) = timeout(wait, self.stream.next_any()).await {
                            self.send(&message).await?;
                        }
                    }
                    return Ok(());
                }
                QuotaEvent::Draining => return Ok(()),
                QuotaEvent::BadMessage(status) => {
                    if status.code == GrpcCode::ResourceExhausted {
                        metrics.message_too_large.add();
                    }
                    return Err(Ended::Refused(status));
                }
                QuotaEvent::Over(ended) => return Err(ended),
            }
        }
    }

    /// Waits for what happens next. Reports come before assignments, which they may change. While the
    /// client's window is closed, no assignment is taken: it would be old when it arrives.
    async fn event(&mut self, mut draining: Pin<&mut impl Future<Output = ()>>) -> QuotaEvent {
        let kept = self.kept();
        let QuotaCall { stream, reports, response, memory, .. } = self;
        let mut next = stream.next_any();
        poll_fn(|context| {
            if draining.as_mut().poll(context).is_ready() {
                return Poll::Ready(QuotaEvent::Draining);
            }
            if let Poll::Ready(report) = reports.poll_report(context) {
                return Poll::Ready(match report {
                    Ok(report) => QuotaEvent::Report(report),
                    Err(NoReport::Ended) => QuotaEvent::HalfClosed,
                    Err(NoReport::Bad(BadMessage(status))) => QuotaEvent::BadMessage(status),
                    Err(NoReport::Late) => QuotaEvent::Over(Ended::Late),
                    Err(NoReport::Gone(error)) => QuotaEvent::Over(Ended::Gone(error)),
                });
            }
            if let Err(full) = memory.wait_for_client(kept + reports.bytes()) {
                return Poll::Ready(QuotaEvent::Over(Ended::Refused(full)));
            }
            match ready!(response.poll_writable(context)) {
                Ok(_) => next.as_mut().poll(context).map(QuotaEvent::Assignments),
                Err(error) => Poll::Ready(QuotaEvent::Over(Ended::Gone(error))),
            }
        })
        .await
    }

    /// Reads a report, and lets other tasks have their turn meanwhile.
    async fn read(&mut self, report: Bytes) -> Result<(), Ended> {
        let held = report.len();
        for ReportSlice { message, usages } in ReportSlices::of(report) {
            self.stream.report_any(&message)?;
            self.hold(held)?;
            self.spent += usages.max(1) + message.len() / BYTES_PER_USAGE;
            if self.spent >= USAGES_MAX {
                self.spent = 0;
                self.reports.receive_during(tokio::task::yield_now()).await;
            }
        }
        self.hold(0)
    }

    /// Sends an encoded response as the client's window allows.
    async fn send(&mut self, message: &[u8]) -> Result<(), Ended> {
        self.response.begin()?;
        let mut left = framed_bytes(message);
        let kept = self.kept();
        let QuotaCall { reports, response, memory, limit, .. } = self;
        let sending = poll_fn(|context| {
            reports.receive(context);
            while !left.is_empty() {
                match response.poll_writable(context) {
                    Poll::Ready(Ok(room)) => {
                        response.send_data(&left.split_to(room.min(left.len())))?;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        let held = kept + reports.bytes() + left.len();
                        if memory.wait_for_client(held).is_ok() {
                            return Poll::Pending;
                        }
                        // A part of the message may have been sent, so no status can follow.
                        return Poll::Ready(Err(Reason::ENHANCE_YOUR_CALM.into()));
                    }
                }
            }
            Poll::Ready(Ok::<_, Error>(()))
        });
        Ok(timeout(*limit, sending).await.map_err(|_| Ended::Late)??)
    }

    /// Counts what the stream keeps, and `more` bytes.
    fn hold(&self, more: usize) -> Result<(), Ended> {
        let bytes = self.kept() + self.reports.bytes() + more;
        self.memory.wait_for_client(bytes).map_err(Ended::Refused)
    }

    /// The bytes that the stream keeps beside what it has received.
    fn kept(&self) -> usize {
        STREAM_BYTES + self.stream.bytes_of_any()
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended::Gone(error)
    }
}

impl From<QuotaStreamError> for Ended {
    fn from(error: QuotaStreamError) -> Ended {
        let code = match error {
            QuotaStreamError::Invalid(_) => GrpcCode::InvalidArgument,
            QuotaStreamError::Exhausted(_) => GrpcCode::ResourceExhausted,
        };
        Ended::Refused(GrpcStatus::new(code, error.to_string()))
    }
}
