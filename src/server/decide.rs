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

use super::decode::Message;
use super::encode;

/// Whoever decides requests.
pub trait Decide: Send + Sync + 'static {
    /// The answer to a valid request. Dropped without having finished when the caller has gone.
    fn decide(&self, request: &Request<'_>) -> impl Future<Output = Verdict> + Send;

    /// A request was refused because it is not valid.
    fn refused(&self, _error: &RequestError) {}

    /// A defect ended a request without a verdict.
    fn failed(&self) {}

    /// Whether requests are traced. Where they are not, nobody reads what a caller says of its trace.
    fn traces(&self) -> bool {
        false
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The caller's fault.
    #[error(transparent)]
    Request(RequestError),
    /// Ours: a defect that was caught before it could take the process along.
    #[error("a defect stopped this decision; the log has its place")]
    Panicked,
}

/// An answer, and what must be given back if it does not arrive.
pub(super) struct Answer {
    pub(super) response: RateLimitResponse,
    pub(super) grant: Option<Grant>,
}

/// What `headers` say of the caller's trace, if `decider` wants to know.
pub(super) fn caller<'h>(decider: &impl Decide, headers: &'h HeaderMap) -> Caller<'h> {
    if !decider.traces() {
        return Caller::default();
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    Caller { traceparent: text("traceparent"), tracestate: text("tracestate") }
}

/// Decides `message`, which may be anything that a stranger can encode, for somebody who waits no
/// longer than `patience`, on behalf of `caller`.
pub(super) async fn answer(
    decider: &impl Decide,
    bounds: &Bounds,
    message: &Message<'_>,
    patience: Option<Duration>,
    caller: Caller<'_>,
) -> Result<Answer, Refusal> {
    let refuse = |error| {
        decider.refused(&error);
        Refusal::Request(error)
    };
    let descriptors = message.descriptors().map_err(refuse)?;
    let mut request = message.request(&descriptors, bounds).map_err(refuse)?;
    request.patience = patience;
    request.caller = caller;
    let verdict = unless_panicked(pin!(decider.decide(&request))).await;
    let mut verdict = verdict.inspect_err(|_| decider.failed())?;
    let grant = verdict.grant.take();
    Ok(Answer { response: encode::response(verdict), grant })
}

/// Runs `future` and turns a panic in it into a refusal. The state behind it is shared only through
/// atomics and locks that do not poison decisions, so going on is safe. It stays where it is: moving
/// it would cost as much as some decisions do.
async fn unless_panicked<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Result<T, Refusal> {
    std::future::poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(verdict)) => Poll::Ready(Ok(verdict)),
            Err(_) => Poll::Ready(Err(Refusal::Panicked)),
        }
    })
    .await
}
