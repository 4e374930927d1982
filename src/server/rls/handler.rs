//! The seam between the protocols and the limiter: message in, answer or refusal out.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use http::HeaderMap;

use crate::decision::{Grant, Verdict};
use crate::descriptor::{Bounds, Caller, Request, RequestError};
use crate::proto::RateLimitResponse;

use super::decode::{DecodeError, Message};
use super::encode;

/// Whoever decides requests.
pub trait Decide: Send + Sync + 'static {
    /// The answer to a valid request. Dropped without having finished when the caller has gone.
    fn decide(&self, request: &Request<'_>) -> impl Future<Output = Verdict> + Send;

    /// A request was refused because it is not valid.
    fn refused(&self) {}

    /// A defect ended a request without a verdict.
    fn failed(&self) {}

    /// Whether requests are traced. Where they are not, nobody reads what a caller says of its trace.
    fn traces(&self) -> bool {
        false
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::server) enum HandleError {
    /// The caller's fault: no request.
    #[error(transparent)]
    DecodeError(#[from] DecodeError),
    /// The caller's fault: one that cannot be decided.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Ours: a defect that was caught before it could take the process along.
    #[error("a defect stopped this decision; the log has its place")]
    Panicked,
}

/// An answer, and what must be given back if it does not arrive.
pub(in crate::server) struct RlsResponse {
    pub(in crate::server) response: RateLimitResponse,
    pub(in crate::server) grant: Option<Grant>,
}

/// What `headers` say of the caller's trace, if `decider` wants to know.
pub(in crate::server) fn caller<'h>(decider: &impl Decide, headers: &'h HeaderMap) -> Caller<'h> {
    if !decider.traces() {
        return Caller::default();
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    Caller { traceparent: text("traceparent"), tracestate: text("tracestate") }
}

/// Decides the request in `bytes`, which may be anything that a stranger can send, for somebody who
/// waits no longer than `timeout`, on behalf of `caller`.
pub(in crate::server) async fn handle(
    decider: &impl Decide,
    bounds: &Bounds,
    bytes: &[u8],
    timeout: Option<Duration>,
    caller: Caller<'_>,
) -> Result<RlsResponse, HandleError> {
    let refuse = |_: &HandleError| decider.refused();
    let message = Message::read(bytes).map_err(HandleError::from).inspect_err(refuse)?;
    let descriptors = message.descriptors().map_err(HandleError::from).inspect_err(refuse)?;
    let request = message.request(&descriptors, bounds).map_err(HandleError::from);
    let mut request = request.inspect_err(refuse)?;
    request.timeout = timeout;
    request.caller = caller;
    let verdict = unless_panicked(pin!(decider.decide(&request))).await;
    let mut verdict = verdict.inspect_err(|_| decider.failed())?;
    let grant = verdict.grant.take();
    Ok(RlsResponse { response: encode::response(verdict), grant })
}

/// Runs `future` and turns a panic in it into a refusal. The state behind it is shared only through
/// atomics and locks that do not poison decisions, so going on is safe. It stays where it is: moving
/// it would cost as much as some decisions do.
async fn unless_panicked<T>(
    mut future: Pin<&mut impl Future<Output = T>>,
) -> Result<T, HandleError> {
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

    /// Counts what it is told of refusals.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Decide for Counting {
        async fn decide(&self, request: &Request<'_>) -> Verdict {
            ByDomain.decide(request).await
        }

        fn refused(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn every_refusal_is_told_once_and_no_answer_is() {
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
        for (bytes, told) in table {
            let decider = Counting::default();
            let answer =
                handle(&decider, &Bounds::default(), &bytes, None, Caller::default()).await;
            assert_eq!((answer.is_err(), decider.0.into_inner()), (told == 1, told), "{bytes:?}");
        }
    }
}
