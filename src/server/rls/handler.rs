//! Handles one request between the protocols and the limiter: bytes in, response or error out.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicBool;
use std::task::Poll;
use std::time::Duration;

use http::HeaderMap;

use crate::decision::Verdict;
use crate::descriptor::{Request, RequestBounds, RequestError, TraceContext};
use crate::lease_rollback::LeaseRollback;
use crate::proto::RateLimitResponse;

use super::decode::{DecodeError, Message};
use super::encode;

/// A decider of requests, such as the limiter.
pub trait Decide: Send + Sync + 'static {
    /// The verdict on a valid request. The future is dropped when the caller resets the call. It is
    /// polled once more when [`Request::must_decide`] becomes true, and dropped if it is pending then.
    fn decide(&self, request: &Request<'_>) -> impl Future<Output = Verdict> + Send;

    /// Counts a request that was rejected as invalid.
    fn count_invalid(&self) {}

    /// Counts a request whose decision panicked.
    fn count_panicked(&self) {}

    /// Whether the caller's trace headers are needed. They are read only if they are.
    fn traces(&self) -> bool {
        false
    }
}

/// Why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::server) enum HandleError {
    /// The bytes are not a `RateLimitRequest`.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The request is invalid.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The decision panicked.
    #[error("internal error: the decision panicked; see the log")]
    Panicked,
}

/// A response, and the rollback to commit when the response is delivered.
pub(in crate::server) struct RlsResponse {
    pub(in crate::server) message: RateLimitResponse,
    pub(in crate::server) rollback: Option<LeaseRollback>,
}

/// The caller's trace context from `headers`; empty unless `decider` traces requests.
pub(in crate::server) fn trace_context<'h>(
    decider: &impl Decide,
    headers: &'h HeaderMap,
) -> TraceContext<'h> {
    if !decider.traces() {
        return TraceContext::default();
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    TraceContext { traceparent: text("traceparent"), tracestate: text("tracestate") }
}

/// Decides the request in `bytes`, which is untrusted input. `timeout` is the time that the caller
/// waits, and `trace` is its trace context. The decider must not wait for its store after `must_decide`
/// has become true.
pub(in crate::server) async fn handle(
    decider: &impl Decide,
    bounds: &RequestBounds,
    bytes: &[u8],
    timeout: Option<Duration>,
    trace: TraceContext<'_>,
    must_decide: Option<&AtomicBool>,
) -> Result<RlsResponse, HandleError> {
    let refuse = |_: &HandleError| decider.count_invalid();
    let message = Message::read(bytes).map_err(HandleError::from).inspect_err(refuse)?;
    let descriptors = message.descriptors().map_err(HandleError::from).inspect_err(refuse)?;
    let request = message.request(&descriptors, bounds).map_err(HandleError::from);
    let mut request = request.inspect_err(refuse)?;
    request.timeout = timeout;
    request.trace = trace;
    request.must_decide = must_decide;
    let verdict = catch_panic(pin!(decider.decide(&request))).await;
    let mut verdict = verdict.inspect_err(|_| decider.count_panicked())?;
    let rollback = verdict.rollback.take();
    Ok(RlsResponse { message: encode::response(verdict), rollback })
}

/// Runs `future` and turns a panic in it into an error, so that the call gets INTERNAL and other
/// calls are unaffected.
///
/// Catching the panic is safe: deciders share state through atomics and locks that recover from
/// poisoning. The future is pinned in place, because moving it would cost as much as some
/// decisions.
async fn catch_panic<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Result<T, HandleError> {
    std::future::poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(verdict)) => Poll::Ready(Ok(verdict)),
            Err(_) => Poll::Ready(Err(HandleError::Panicked)),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use prost::Message as _;

    use crate::proto::RateLimitRequest;
    use crate::server::tests::test_handlers::ByDomain;

    /// Counts rejected requests.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Decide for Counting {
        async fn decide(&self, request: &Request<'_>) -> Verdict {
            ByDomain.decide(request).await
        }

        fn count_invalid(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn each_refusal_is_counted_once() {
        let request = |domain: &str| RateLimitRequest {
            domain: domain.into(),
            descriptors: vec![crate::proto::RateLimitDescriptor::default()],
            hits_addend: 0,
        };
        let mut unit = request("ok");
        unit.descriptors[0].limit =
            Some(crate::proto::RateLimitOverride { unit: 99, ..Default::default() });
        let table = [
            (vec![0xff], 1),
            (vec![], 1),
            (request("").encode_to_vec(), 1),
            (unit.encode_to_vec(), 1),
            (request("ok").encode_to_vec(), 0),
        ];
        for (bytes, count) in table {
            let decider = Counting::default();
            let (bounds, trace) = (RequestBounds::default(), TraceContext::default());
            let answer = handle(&decider, &bounds, &bytes, None, trace, None).await;
            assert_eq!((answer.is_err(), decider.0.into_inner()), (count == 1, count), "{bytes:?}");
        }
    }
}
