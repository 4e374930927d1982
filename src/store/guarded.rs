//! Wraps a store with a timeout per call, a circuit breaker per node, and a bound on the calls in
//! flight to each node.
//!
//! A stalled node does not delay calls to other nodes, and does not use up their bounds. Releases of
//! slots that fail are sent again.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::call_trace::{self, StoreCall};
use super::{NodeAware, NodeId, QUOTA_RULES_KEY, QuotaStore, SharedStore, StoreError};
use crate::histogram::Histogram;
use crate::key::{CounterKey, RuleId};
use crate::quota::{LedgerSnapshot, Settlement};
use crate::step::{Outcome, Step};
use crate::time::{Clock, Micros};

mod breaker;
mod breaker_log;
mod plain;
mod releases;

pub use breaker::BreakerState;

use breaker::{Breaker, CallPermit, CallResult};
use breaker_log::{BreakerLine, BreakerLog};
use plain::CallKind;
use releases::{Release, ReleaseQueue};

/// Steps in flight to one node. A Redis node runs about 100 000 scripts per second, so further
/// steps would exceed the usual timeout anyway.
pub(crate) const IN_FLIGHT_MAX: usize = 2048;

/// A store with timeouts, circuit breakers and bounds on the calls in flight. Clones share all of
/// it.
#[derive(Debug)]
pub struct GuardedStore<S, C> {
    shared: Arc<Shared<S, C>>,
}

#[derive(Debug)]
struct Shared<S, C> {
    store: S,
    clock: C,
    timeout: Duration,
    nodes: ArcSwap<Vec<Arc<GuardedNode>>>,
    latency: Histogram,
    releases: ReleaseQueue,
}

impl<S, C> Clone for GuardedStore<S, C> {
    fn clone(&self) -> GuardedStore<S, C> {
        GuardedStore { shared: self.shared.clone() }
    }
}

/// Breaker and counts of one node.
#[derive(Debug)]
struct GuardedNode {
    /// The node's address, for the log.
    address: String,
    in_flight: AtomicUsize,
    /// [`Breaker::has_no_failure`], to be read without the lock.
    has_no_failure: AtomicBool,
    breaker: Mutex<Breaker>,
    /// Locked only while `breaker` is.
    log: Mutex<BreakerLog>,
    /// How often the breaker opened after it had been closed.
    opened: AtomicU64,
    /// Failed calls by error, in the order of [`StoreError::ALL`].
    errors: [AtomicU64; StoreError::ALL.len()],
}

/// Current state and totals of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardSnapshot {
    /// State of the circuit breaker.
    pub breaker: BreakerState,
    /// Whether the breaker is closed, and the last completed call got a reply, also an error reply.
    /// True before the first call.
    pub has_no_failure: bool,
    /// How often the breaker opened after it had been closed.
    pub opened: u64,
    /// Calls in flight.
    pub in_flight: usize,
    /// Failed calls by error, in the order of [`StoreError::ALL`].
    pub errors: [u64; StoreError::ALL.len()],
}

impl<S: NodeAware, C: Clock> GuardedStore<S, C> {
    /// Wraps `store`; each call is bounded by `timeout`.
    pub fn new(store: S, clock: C, timeout: Duration) -> GuardedStore<S, C> {
        let (nodes, latency) = (ArcSwap::default(), Histogram::default());
        let releases = ReleaseQueue::default();
        let shared = Shared { store, clock, timeout, nodes, latency, releases };
        GuardedStore { shared: Arc::new(shared) }
    }

    /// The wrapped store.
    pub fn store(&self) -> &S {
        &self.shared.store
    }

    /// Duration of successful calls.
    pub fn latency(&self) -> &Histogram {
        &self.shared.latency
    }

    /// Current state and totals of `node`.
    pub fn snapshot(&self, node: NodeId) -> GuardSnapshot {
        let node = self.guarded_node(node);
        let breaker = *node.breaker();
        GuardSnapshot {
            breaker: breaker.state(),
            has_no_failure: breaker.has_no_failure(),
            opened: node.opened.load(Ordering::Relaxed),
            in_flight: node.in_flight.load(Ordering::Relaxed),
            errors: node.errors.each_ref().map(|count| count.load(Ordering::Relaxed)),
        }
    }

    /// Runs `call` for `key` under `timeout`, the breaker and the in-flight bound of its node.
    fn run<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        key: &CounterKey,
        timeout: Duration,
        call: impl FnOnce() -> F,
    ) -> impl Future<Output = Result<T, StoreError>> {
        self.run_on(self.shared.store.node(key), CallKind::Counter, timeout, call)
    }

    /// Runs `call` to the node `id` under `timeout`, the breaker and the in-flight bound of the node.
    async fn run_on<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        id: NodeId,
        kind: CallKind,
        timeout: Duration,
        call: impl FnOnce() -> F,
    ) -> Result<T, StoreError> {
        let Shared { clock, latency, .. } = &*self.shared;
        let began = clock.now();
        let node = self.guarded_node(id);
        let in_flight = InFlightCall::begin(&node, clock, began);
        let in_flight = in_flight.inspect_err(|error| node.count_error(*error))?;
        let result = with_timeout(timeout, call()).await;
        let ended = clock.now();
        let error = result.as_ref().err();
        in_flight.end(error, timeout >= self.shared.timeout, ended);
        call_trace::record(|| StoreCall { node: id, began, ended, error: error.copied() });
        match result {
            Ok(_) if kind == CallKind::Plain => {}
            Ok(_) => {
                latency.record(ended.saturating_sub(began));
                call_trace::count_outcome();
            }
            Err(error) => node.count_error(error),
        }
        result
    }

    fn guarded_node(&self, node: NodeId) -> Arc<GuardedNode> {
        let index = node.0 as usize;
        let Shared { store, nodes, .. } = &*self.shared;
        if let Some(node) = nodes.load().get(index) {
            return node.clone();
        }
        nodes.rcu(|nodes| {
            let missing = nodes.len() as u32..=node.0;
            let new = missing.map(|id| Arc::new(GuardedNode::new(store.node_address(NodeId(id)))));
            nodes.iter().cloned().chain(new).collect::<Vec<_>>()
        });
        nodes.load()[index].clone()
    }
}

impl<S: NodeAware, C: Clock> SharedStore for GuardedStore<S, C> {
    fn now(&self, key: &CounterKey, local: Micros) -> Result<Micros, StoreError> {
        let now = self.shared.store.now(key, local);
        if let Err(error) = now {
            self.guarded_node(self.shared.store.node(key)).count_error(error);
        }
        now
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.shared.timeout)
    }

    async fn apply_within(
        &self,
        key: &CounterKey,
        step: &Step,
        timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        let own = self.shared.timeout;
        let timeout = timeout.map_or(own, |timeout| timeout.min(own));
        self.run(key, timeout, || self.shared.store.apply(key, step)).await
    }

    fn apply_detached(&self, key: &CounterKey, step: Step) {
        let Shared { store, clock, .. } = &*self.shared;
        if let Some(release) = Release::of(key, &step, clock.now()) {
            self.release(release);
            return;
        }
        // A call without a caller has no timeout, so such calls would accumulate on a node that
        // stalls.
        let node = self.guarded_node(store.node(key));
        if node.breaker().state() == BreakerState::Closed {
            store.apply_detached(key, step);
        }
    }

    async fn delete(&self, key: &CounterKey) -> Result<bool, StoreError> {
        self.run(key, self.shared.timeout, || self.shared.store.delete(key)).await
    }
}

impl<S: NodeAware + QuotaStore, C: Clock> QuotaStore for GuardedStore<S, C> {
    async fn settle(
        &self,
        key: &CounterKey,
        settlement: &Settlement,
    ) -> Result<LedgerSnapshot, StoreError> {
        let Shared { store, timeout, .. } = &*self.shared;
        self.run(key, *timeout, || store.settle(key, settlement)).await
    }

    async fn announce_quota_rules(
        &self,
        rules: &[RuleId],
        local: Micros,
        length: Micros,
    ) -> Result<(), StoreError> {
        let Shared { store, timeout, .. } = &*self.shared;
        let call = || store.announce_quota_rules(rules, local, length);
        self.run(&QUOTA_RULES_KEY, *timeout, call).await
    }

    async fn quota_rules(&self, local: Micros) -> Result<Vec<RuleId>, StoreError> {
        let Shared { store, timeout, .. } = &*self.shared;
        self.run(&QUOTA_RULES_KEY, *timeout, || store.quota_rules(local)).await
    }
}

/// Waits for `call` for at most `timeout`.
///
/// # Errors
/// [`StoreError::Timeout`] when the time is over, otherwise the call's own error.
pub(crate) async fn with_timeout<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut call = pin!(call);
    if let Ok(result) = tokio::time::timeout(timeout, call.as_mut()).await {
        return result;
    }
    // On a busy machine the timer may fire late, when the reply has already arrived. Yielding lets
    // the connection's task read that reply before this task runs again.
    tokio::task::yield_now().await;
    match poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await {
        Poll::Ready(result) => result,
        Poll::Pending => Err(StoreError::Timeout),
    }
}

/// A call in flight. Dropping it ends the count, and reports an unfinished call as abandoned.
struct InFlightCall<'a, C: Clock> {
    node: &'a GuardedNode,
    clock: &'a C,
    permit: CallPermit,
    reported: bool,
}

impl<'a, C: Clock> InFlightCall<'a, C> {
    fn begin(
        node: &'a GuardedNode,
        clock: &'a C,
        now: Micros,
    ) -> Result<InFlightCall<'a, C>, StoreError> {
        let permit = node.admit(now);
        if permit == CallPermit::Reject {
            return Err(StoreError::BreakerOpen);
        }
        let call = InFlightCall { node, clock, permit, reported: false };
        if node.in_flight.fetch_add(1, Ordering::Relaxed) >= IN_FLIGHT_MAX {
            return Err(StoreError::Busy);
        }
        Ok(call)
    }

    /// Reports the result: `error`, or success. `full_timeout` is false if the caller's own timeout
    /// was shorter than the store's.
    fn end(mut self, error: Option<&StoreError>, full_timeout: bool, now: Micros) {
        let result = match error {
            // The caller's own short deadline is no evidence about the node.
            Some(StoreError::Timeout) if !full_timeout => CallResult::Abandoned,
            error => call_result(error),
        };
        self.reported = true;
        self.node.report(self.permit, result, now);
    }
}

/// What a call with the store's timeout shows about its node: it failed with `error`, or succeeded.
fn call_result(error: Option<&StoreError>) -> CallResult {
    match error {
        Some(StoreError::Timeout | StoreError::ConnectionLost | StoreError::Unreachable) => {
            CallResult::Failed
        }
        // A node that replies with an error is alive and fast.
        None | Some(StoreError::ErrorReply | StoreError::InvalidReply) => CallResult::Answered,
        // The call did not reach the node, which may be healthy.
        Some(
            StoreError::MemoryFull
            | StoreError::BreakerOpen
            | StoreError::Busy
            | StoreError::ClientMemoryFull,
        ) => CallResult::Abandoned,
    }
}

impl<C: Clock> Drop for InFlightCall<'_, C> {
    fn drop(&mut self) {
        self.node.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.reported {
            self.node.report(self.permit, CallResult::Abandoned, self.clock.now());
        }
    }
}

impl GuardedNode {
    fn new(address: String) -> GuardedNode {
        GuardedNode {
            address,
            in_flight: AtomicUsize::new(0),
            has_no_failure: AtomicBool::new(true),
            breaker: Mutex::default(),
            log: Mutex::default(),
            opened: AtomicU64::new(0),
            errors: [const { AtomicU64::new(0) }; StoreError::ALL.len()],
        }
    }

    fn count_error(&self, error: StoreError) {
        if let Some(class) = StoreError::ALL.iter().position(|known| *known == error) {
            self.errors[class].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn breaker(&self) -> std::sync::MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, now: Micros) -> CallPermit {
        if self.has_no_failure.load(Ordering::Relaxed) {
            return CallPermit::Pass;
        }
        self.breaker().admit(now)
    }

    fn report(&self, permit: CallPermit, result: CallResult, now: Micros) {
        // The usual case takes no lock, because all workers report to the same nodes.
        if result != CallResult::Failed && self.has_no_failure.load(Ordering::Relaxed) {
            return;
        }
        let mut breaker = self.breaker();
        let before = breaker.state();
        breaker.report(permit, result, now);
        let after = breaker.state();
        self.has_no_failure.store(breaker.has_no_failure(), Ordering::Relaxed);
        if before == BreakerState::Closed && after == BreakerState::Open {
            self.opened.fetch_add(1, Ordering::Relaxed);
        }
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let line = log.line(before, after, now);
        drop((log, breaker));
        let node = &self.address;
        match line {
            Some(BreakerLine::Opened { openings }) => {
                tracing::warn!(%node, openings, "breaker opened: the node does not answer");
            }
            Some(BreakerLine::Closed) => {
                tracing::info!(%node, "breaker closed: the node answers again");
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
