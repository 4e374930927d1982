//! Receives the reports of a stream: takes what arrives, and cuts it into messages.
//!
//! Everything that has arrived is taken at once, so that it counts as the stream's. The client's windows
//! open again when no complete message waits. So a client that sends faster than its reports are read is
//! held up, and at most one message and one window wait.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Sleep, sleep};
use weir_http2::{Error, RequestBody};

use super::message_buffer::{BadMessage, MessageBuffer};
use crate::server::grpc::status::{GrpcCode, GrpcStatus};

/// The reports of a stream, as they arrive.
pub(super) struct ReportBody {
    stream: RequestBody,
    buffer: MessageBuffer,
    /// Bytes for which the windows of the client are not open again.
    unreleased: usize,
    /// Present when no more data comes.
    end: Option<Result<(), Error>>,
    /// `grpc.call_timeout`.
    limit: Duration,
    /// Present while the first message is missing, or a message is incomplete.
    late: Option<Pin<Box<Sleep>>>,
}

/// Why no further report comes.
#[derive(Debug)]
pub(super) enum NoReport {
    /// The client has ended its half of the stream.
    Ended,
    /// A message is invalid.
    Bad(BadMessage),
    /// The first message, or the rest of a message, did not arrive in time.
    Late,
    /// The stream was reset, or its connection has ended.
    Gone(Error),
}

impl ReportBody {
    /// The reports of `stream`, of at most `max` bytes each. The first one, and each one that has begun
    /// to arrive, must be complete within `limit`.
    pub(super) fn new(stream: RequestBody, max: usize, limit: Duration) -> ReportBody {
        ReportBody {
            stream,
            buffer: MessageBuffer::new(max),
            unreleased: 0,
            end: None,
            limit,
            late: Some(Box::pin(sleep(limit))),
        }
    }

    /// Bytes that were received and not read.
    pub(super) fn bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// The next encoded report.
    pub(super) fn poll_report(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Bytes, NoReport>> {
        self.receive(context);
        match self.buffer.take() {
            Ok(Some(report)) => {
                self.late = None;
                self.release();
                return Poll::Ready(Ok(report));
            }
            Ok(None) => {}
            Err(bad) => return Poll::Ready(Err(NoReport::Bad(bad))),
        }
        match self.end.take() {
            Some(Ok(())) if !self.buffer.is_empty() => {
                let message = "the stream ended within a message";
                let status = GrpcStatus::new(GrpcCode::InvalidArgument, message);
                return Poll::Ready(Err(NoReport::Bad(BadMessage(status))));
            }
            Some(Ok(())) => return Poll::Ready(Err(NoReport::Ended)),
            Some(Err(error)) => return Poll::Ready(Err(NoReport::Gone(error))),
            None => {}
        }
        if self.late.is_none() && !self.buffer.is_empty() {
            self.late = Some(Box::pin(sleep(self.limit)));
        }
        let late = self.late.as_mut().is_some_and(|late| late.as_mut().poll(context).is_ready());
        if late { Poll::Ready(Err(NoReport::Late)) } else { Poll::Pending }
    }

    /// The output of `work`. What arrives meanwhile is received.
    pub(super) async fn receive_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            self.receive(context);
            work.as_mut().poll(context)
        })
        .await
    }

    /// Takes all data that has arrived.
    pub(super) fn receive(&mut self, context: &mut Context<'_>) {
        while self.end.is_none() {
            match self.stream.poll_data(context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(piece))) => {
                    self.buffer.add(&piece);
                    self.unreleased += piece.len();
                    self.release();
                }
                Poll::Ready(Some(Err(error))) => self.end = Some(Err(error)),
                Poll::Ready(None) => self.end = Some(Ok(())),
            }
        }
    }

    /// Opens the windows of the client again, unless a message waits.
    fn release(&mut self) {
        if !self.buffer.is_ready() {
            self.stream.release(std::mem::take(&mut self.unreleased));
        }
    }
}
