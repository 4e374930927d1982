//! Streaming calls: health watches and reflection, which stay open without a time limit.
//!
//! A client must get the first response, and so send its message, within `grpc.call_timeout`, and
//! must take each response within that time. A connection may have 16 of them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use weir_http2::{Error, Reason, Responder};

use super::call_head::CallHead;
use super::connection_calls::{ConnectionCalls, CountedCall};
use super::memory::call::CallMemory;
use super::memory::inbox::RequestInbox;
use super::request_body::RequestBody;
use super::response::{self, OpenResponse, Sent, unless_reset};
use super::status::{GrpcCode, GrpcStatus};
use super::tonic_services::TonicResponse;
use crate::server::rls::handler::Decide;

/// The most streaming calls of one connection.
const STREAMING_MAX: u64 = 16;

/// Bytes of a streaming call in addition to those of every call: 9 kB measured for a watch, 18 kB for
/// reflection, and the request.
const STREAMING_CALL: usize = 24 * 1024;

/// Serves a streaming call. `limit` is `grpc.call_timeout`.
pub(super) async fn serve<D: Decide>(
    calls: Arc<ConnectionCalls<D>>,
    path: &'static str,
    head: CallHead,
    body: weir_http2::RequestBody,
    mut respond: Responder,
    limit: Duration,
) -> Sent {
    let metrics = &calls.service.metrics;
    let Some(_counted) = CountedCall::begin(&calls.counts.streaming, STREAMING_MAX) else {
        metrics.streaming_refused.add();
        let message = format!(
            "a connection may have {STREAMING_MAX} health watches and reflection calls at a time"
        );
        let status = GrpcStatus::new(GrpcCode::ResourceExhausted, message);
        return response::send_status(&mut respond, status);
    };
    let memory = CallMemory::of(&calls.memory);
    if let Err(full) = memory.wait_for_client(STREAMING_CALL + head.bytes()) {
        return response::send_status(&mut respond, full);
    }
    let inbox = RequestInbox::default();
    let _end = inbox.end_on_drop();
    let request = head.into_request(path, inbox.clone());
    let serving = async {
        let opening = async {
            let call = pin!(calls.service.services.call(request));
            let answered = unless_reset(&mut respond, call).await;
            let Some(TonicResponse { response, .. }) = answered else {
                return Err(Reason::CANCEL.into());
            };
            let Some(mut open) = OpenResponse::start(&mut respond, response)? else {
                return Ok(None);
            };
            // The client may wait for them before it sends its message.
            open.send_head()?;
            let first = open.next_frame().await?;
            Ok::<_, Error>(Some((open, first)))
        };
        let Ok(opened) = timeout(limit, opening).await else { return timed_out(&calls) };
        let Some((mut open, mut next)) = opened? else { return Ok(()) };
        while let Some(frame) = next {
            let sending = open.send_frame(frame, STREAMING_CALL, &memory);
            let Ok(sent) = timeout(limit, sending).await else { return timed_out(&calls) };
            sent?;
            // A response that waited for the client's window does not count any more.
            if memory.wait_for_client(STREAMING_CALL).is_err() {
                return Err(Reason::ENHANCE_YOUR_CALM.into());
            }
            next = open.next_frame().await?;
        }
        open.end()
    };
    let too_large = || metrics.streaming_refused.add();
    tokio::select! {
        sent = serving => sent,
        never = inbox.fill(RequestBody::new(body), too_large) => match never {},
    }
}

/// Counts a call whose client was too slow. Its stream is reset when the call is dropped.
fn timed_out<D>(calls: &ConnectionCalls<D>) -> Sent {
    calls.service.metrics.call_timeout.add();
    Err(Reason::CANCEL.into())
}
