//! The guard: no call waits longer than its deadline, and none asks a node that does not answer.
//!
//! Around any store: a deadline per call, a breaker per part, and a bound on the calls in flight to
//! a part, so that one that stalls takes neither time nor memory from the others.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::call_trace::{self, StoreCall};
use super::{Clustered, NodeId, Store, StoreError};
use crate::key::Key;
use crate::step::{Outcome, Step};
use crate::time::{Clock, Micros};

mod breaker;
mod latency;

pub use breaker::BreakerState;
pub use latency::Latency;

use breaker::{Breaker, CallPermit, CallResult};

/// Calls in flight to one part. A node of Redis runs some hundred thousand scripts per second, so
/// more than this would not be answered before the usual deadline anyway.
const IN_FLIGHT_MAX: usize = 2048;

/// Around a store.
#[derive(Debug)]
pub struct Guard<S, C> {
    store: S,
    clock: C,
    timeout: Duration,
    nodes: ArcSwap<Vec<Arc<NodeGuard>>>,
    latency: Latency,
}

/// What is known of one part.
#[derive(Debug, Default)]
struct NodeGuard {
    in_flight: AtomicUsize,
    /// The breaker would let any call through and learn nothing from an answer.
    always_pass: AtomicBool,
    breaker: Mutex<Breaker>,
    /// Times that the breaker opened.
    opened: AtomicU64,
    /// Calls without an outcome, in the order of [`StoreError::ALL`].
    errors: [AtomicU64; StoreError::ALL.len()],
}

/// How a part is, and has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeHealth {
    /// Its breaker.
    pub breaker: BreakerState,
    /// Times that the breaker opened after it had been closed.
    pub opened: u64,
    /// Calls in flight to it.
    pub in_flight: usize,
    /// Calls without an outcome, in the order of [`StoreError::ALL`].
    pub errors: [u64; StoreError::ALL.len()],
}

impl<S: Clustered, C: Clock> Guard<S, C> {
    /// Guards `store`: no call takes longer than `timeout`.
    pub fn new(store: S, clock: C, timeout: Duration) -> Guard<S, C> {
        let nodes = ArcSwap::default();
        Guard { store, clock, timeout, nodes, latency: Latency::default() }
    }

    /// The store that is guarded.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// How long answers took.
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    /// How `part` is, and has been.
    pub fn health(&self, part: NodeId) -> NodeHealth {
        let part = self.at(part);
        NodeHealth {
            breaker: part.breaker().state(),
            opened: part.opened.load(Ordering::Relaxed),
            in_flight: part.in_flight.load(Ordering::Relaxed),
            errors: part.errors.each_ref().map(|count| count.load(Ordering::Relaxed)),
        }
    }

    /// A call about `key` that takes no longer than `timeout`.
    async fn guarded<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        key: &Key,
        timeout: Duration,
        call: impl FnOnce() -> F,
    ) -> Result<T, StoreError> {
        let began = self.clock.now();
        let id = self.store.node(key);
        let part = self.at(id);
        let counted = InFlightCall::begin(&part, &self.clock, began);
        let counted = counted.inspect_err(|error| part.failed(*error))?;
        let result = with_timeout(timeout, call()).await;
        let ended = self.clock.now();
        let error = result.as_ref().err();
        counted.end(error, timeout >= self.timeout, ended);
        call_trace::record(|| StoreCall { node: id, began, ended, error: error.copied() });
        match result {
            Ok(_) => self.latency.record(ended.saturating_sub(began)),
            Err(error) => part.failed(error),
        }
        result
    }

    fn at(&self, part: NodeId) -> Arc<NodeGuard> {
        let index = part.0 as usize;
        if let Some(part) = self.nodes.load().get(index) {
            return part.clone();
        }
        self.nodes.rcu(|nodes| {
            let mut grown = Vec::clone(nodes);
            while grown.len() <= index {
                grown.push(Arc::default());
            }
            grown
        });
        self.nodes.load()[index].clone()
    }
}

impl<S: Clustered, C: Clock> Store for Guard<S, C> {
    fn now(&self, key: &Key, local: Micros) -> Result<Micros, StoreError> {
        let now = self.store.now(key, local);
        if let Err(error) = now {
            self.at(self.store.node(key)).failed(error);
        }
        now
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    async fn apply_within(
        &self,
        key: &Key,
        step: &Step,
        timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        let timeout = timeout.map_or(self.timeout, |timeout| timeout.min(self.timeout));
        self.guarded(key, timeout, || self.store.apply(key, step)).await
    }

    fn apply_detached(&self, key: &Key, step: Step) {
        // What nobody waits for is not sent where it would only pile up.
        let part = self.at(self.store.node(key));
        if part.breaker().state() == BreakerState::Closed {
            self.store.apply_detached(key, step);
        }
    }

    async fn forget(&self, key: &Key) -> Result<bool, StoreError> {
        self.guarded(key, self.timeout, || self.store.forget(key)).await
    }
}

/// The call's result, unless it takes longer than `timeout`.
pub(crate) async fn with_timeout<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut call = pin!(call);
    if let Ok(result) = tokio::time::timeout(timeout, call.as_mut()).await {
        return result;
    }
    // A busy machine may be as late with the alarm as with the answer. One that has arrived is read
    // by a task that runs before this one does again.
    tokio::task::yield_now().await;
    match poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await {
        Poll::Ready(result) => result,
        Poll::Pending => Err(StoreError::Timeout),
    }
}

/// A call in flight; counted until it is dropped.
struct InFlightCall<'a, C: Clock> {
    part: &'a NodeGuard,
    clock: &'a C,
    permit: CallPermit,
    reported: bool,
}

impl<'a, C: Clock> InFlightCall<'a, C> {
    fn begin(
        part: &'a NodeGuard,
        clock: &'a C,
        now: Micros,
    ) -> Result<InFlightCall<'a, C>, StoreError> {
        let permit = part.admit(now);
        if permit == CallPermit::Refuse {
            return Err(StoreError::Open);
        }
        let call = InFlightCall { part, clock, permit, reported: false };
        if part.in_flight.fetch_add(1, Ordering::Relaxed) >= IN_FLIGHT_MAX {
            return Err(StoreError::Busy);
        }
        Ok(call)
    }

    /// It came to `error`, or to an answer; `full`: it had the whole deadline.
    fn end(mut self, error: Option<&StoreError>, full: bool, now: Micros) {
        let result = match error {
            // Its caller was in a hurry, which says nothing about the node.
            Some(StoreError::Timeout) if !full => CallResult::Abandoned,
            Some(StoreError::Timeout | StoreError::Lost | StoreError::Unreachable) => {
                CallResult::Failed
            }
            // A node that refuses is alive, and quick.
            _ => CallResult::Answered,
        };
        self.reported = true;
        self.part.report(self.permit, result, now);
    }
}

impl<C: Clock> Drop for InFlightCall<'_, C> {
    fn drop(&mut self) {
        self.part.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.reported {
            self.part.report(self.permit, CallResult::Abandoned, self.clock.now());
        }
    }
}

impl NodeGuard {
    fn failed(&self, error: StoreError) {
        if let Some(class) = StoreError::ALL.iter().position(|known| *known == error) {
            self.errors[class].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn breaker(&self) -> std::sync::MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, now: Micros) -> CallPermit {
        if self.always_pass.load(Ordering::Relaxed) {
            return CallPermit::Pass;
        }
        self.breaker().admit(now)
    }

    fn report(&self, permit: CallPermit, result: CallResult, now: Micros) {
        // The usual case touches no lock: all cores answer for the same nodes.
        if result != CallResult::Failed && self.always_pass.load(Ordering::Relaxed) {
            return;
        }
        let mut breaker = self.breaker();
        let closed = breaker.state() == BreakerState::Closed;
        breaker.report(permit, result, now);
        if closed && breaker.state() == BreakerState::Open {
            self.opened.fetch_add(1, Ordering::Relaxed);
        }
        self.always_pass.store(breaker.always_passes(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
