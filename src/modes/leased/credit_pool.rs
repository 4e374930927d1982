//! Credit pools: the unspent credits of one counter, the requests that wait for more, and the next
//! operation on the counter. No I/O: the parent module holds the lock, calls the store, and reports
//! the outcomes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::credits::Credits;
use super::demand::Demand;
use super::leased_limit::LeasedLimit;
use super::metrics::{LeasedMetrics, add};
use super::operation::{Operation, OperationKind, PendingReturn};
use crate::algorithm;
use crate::decision::Decision;
use crate::step::{Outcome, State, Step, TierStates};
use crate::store::StoreError;
use crate::time::{ClockOffset, Micros};

mod refill;
mod waiting;

use waiting::WaitingRequest;

/// Denied refills after which a waiting request is denied.
const DENIED_REFILLS_MAX: u8 = 3;

/// The time after a denied or failed refill in which no refill is sent ahead of need.
const PREFETCH_COOLDOWN: Micros = Micros::from_millis(100);

/// The credits of one counter on this instance.
pub(super) struct CreditPool {
    limit: Arc<LeasedLimit>,
    credits: Credits,
    /// Credits of windows that left the pool and are not returned yet.
    returns: SmallVec<[PendingReturn; 1]>,
    /// The counter's state after the last operation. Unspent credits of this instance are charged to
    /// it.
    last_state: Option<State>,
    demand: Demand,
    /// The offset of the store's clock when it was last known.
    offset: ClockOffset,
    /// The instant of the last request, by the local clock.
    touched: Micros,
    /// The latest instant of a request, by the store's clock.
    latest: Micros,
    /// The instant, by the store's clock, before which no refill is sent ahead of need.
    paused_until: Micros,
    /// The instant, by the store's clock, before which the store may still count hits of this
    /// instance that it decided before there was a pool.
    direct_until: Micros,
    /// The operation in flight.
    in_flight: Option<OperationKind>,
    /// Whether the store has given hits back since the last operation was sent. Its outcome may be
    /// from before that.
    is_outdated: bool,
    /// How often the counter was deleted. An operation of an earlier epoch leaves no credits.
    epoch: u64,
    waiting: VecDeque<WaitingRequest>,
}

/// The result of acquiring credits for a request.
pub(super) enum Acquire {
    /// The credits are spent.
    Granted(Decision),
    /// The request waits for a refill.
    Queued(oneshot::Receiver<Result<Decision, StoreError>>),
}

impl CreditPool {
    /// An empty pool for a counter with a request at `now`, which is `local` by the local clock.
    /// Earlier requests to the counter end within `timeout`.
    pub(super) fn new(
        limit: LeasedLimit,
        now: Micros,
        local: Micros,
        timeout: Duration,
    ) -> CreditPool {
        let timeout = Micros(u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX));
        CreditPool {
            credits: Credits::none(&limit),
            limit: Arc::new(limit),
            returns: SmallVec::new(),
            last_state: None,
            demand: Demand::new(now),
            offset: ClockOffset::between(local, now),
            touched: local,
            latest: now,
            paused_until: Micros::ZERO,
            direct_until: now.saturating_add(timeout),
            in_flight: None,
            is_outdated: false,
            epoch: 0,
            waiting: VecDeque::new(),
        }
    }

    /// The limit that the credits were drawn under.
    pub(super) fn limit(&self) -> &LeasedLimit {
        &self.limit
    }

    /// Records a request at `local` by the local clock. Returns its instant by the store's clock,
    /// which is estimated from the last known offset if `now` is `None`.
    pub(super) fn touch(&mut self, local: Micros, now: Option<Micros>) -> Micros {
        self.touched = self.touched.max(local);
        if let Some(now) = now {
            self.offset = ClockOffset::between(local, now);
        }
        let now = now.unwrap_or_else(|| self.now(local));
        self.latest = self.latest.max(now);
        now
    }

    /// The store's clock at `local`, estimated from the last known offset.
    pub(super) fn now(&self, local: Micros) -> Micros {
        self.offset.remote(local)
    }

    /// Time since the last request, at `local`.
    pub(super) fn idle(&self, local: Micros) -> Micros {
        local.saturating_sub(self.touched)
    }

    /// Whether an operation is in flight or requests wait.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.is_some() || !self.waiting.is_empty()
    }

    /// Whether the pool has nothing, at `local`.
    pub(super) fn is_empty(&self, local: Micros) -> bool {
        let now = self.now(local);
        !self.is_busy() && self.returns.is_empty() && self.credits.is_empty(now)
    }

    /// Replaces the limit. The credits that were drawn under the old one are returned, or drain.
    pub(super) fn change_limit(&mut self, limit: LeasedLimit) {
        self.take_all_windows();
        self.credits = Credits::none(&limit);
        self.limit = Arc::new(limit);
        (self.last_state, self.paused_until) = (None, Micros::ZERO);
    }

    /// Takes all credits of windows out, to be returned.
    pub(super) fn take_all_windows(&mut self) {
        self.take_windows(Micros(u64::MAX));
    }

    /// Takes out the credits of windows that have ended at `now`, except those that a waiting request of
    /// an earlier instant can still spend.
    pub(super) fn take_expired_windows(&mut self, now: Micros) {
        let oldest = self.waiting.iter().map(|one| one.now).min();
        self.take_windows(oldest.map_or(now, |oldest| now.min(oldest)));
    }

    fn take_windows(&mut self, now: Micros) {
        if let Some(Credits::Windows(batches)) = self.credits.take_expired(now) {
            self.returns.extend(batches.into_iter().map(|batch| (self.limit.clone(), batch)));
        }
    }

    /// Drops all credits, because their counter is being deleted.
    pub(super) fn delete(&mut self) {
        self.credits = Credits::none(&self.limit);
        self.returns.clear();
        self.last_state = None;
        self.epoch += 1;
    }

    /// Credits that a request at `now` can spend. None while the store may give back the last ones.
    fn available(&self, now: Micros) -> u64 {
        let is_returning = self.in_flight == Some(OperationKind::ReturnSpan);
        if is_returning { 0 } else { self.credits.available(now) }
    }

    /// Whether a request at `now` can spend `hits` credits.
    pub(super) fn serves(&self, hits: u64, now: Micros) -> bool {
        self.in_flight != Some(OperationKind::ReturnSpan) && self.credits.serves(hits, now)
    }

    /// The decision of a peek at `now`: unspent credits of this instance do not count as used.
    pub(super) fn peek(&self, now: Micros) -> Decision {
        let mut state = self.last_state.clone();
        match &self.last_state {
            Some(State::Gcra(tiers)) => {
                let tiers = self.credits.without(tiers.as_slice(), now);
                state = Some(State::Gcra(TierStates::from_slice(&tiers)));
            }
            _ => {
                let unspent = i64::try_from(self.credits.available(now)).unwrap_or(i64::MAX);
                self.limit.plan(-unspent, now).apply(&mut state);
            }
        }
        let step = self.limit.plan(0, now);
        let mut outcome = step.apply(&mut state);
        outcome.allowed = true;
        algorithm::report(self.limit.as_limit(), &step, &outcome)
    }

    /// Spends `hits` credits for a request at `now`, or queues the request. Also returns the
    /// operation that the request needs, or with `ahead` the one that is needed soon. The caller
    /// sends it, and passes its outcome to [`complete`](CreditPool::complete).
    pub(super) fn acquire(
        &mut self,
        hits: u64,
        now: Micros,
        ahead: bool,
        metrics: &LeasedMetrics,
    ) -> (Acquire, Option<Operation>) {
        if self.waiting.is_empty() && self.serves(hits, now) {
            let decision = self.spend(hits, now);
            add(&metrics.spent, hits);
            let next = if ahead {
                self.next_return(now, metrics).or_else(|| self.refill_ahead(now))
            } else {
                None
            };
            return (Acquire::Granted(decision), next);
        }
        add(&metrics.waits, 1);
        let (sender, result) = oneshot::channel();
        let waiter = WaitingRequest { hits, now, denied_refills: 0, unserved: 0, result: sender };
        self.waiting.push_back(waiter);
        (Acquire::Queued(result), self.next(now, metrics))
    }

    /// The next operation: a return before a refill, so that no request is denied because of
    /// credits that this instance has no use for.
    fn next(&mut self, now: Micros, metrics: &LeasedMetrics) -> Option<Operation> {
        self.next_return(now, metrics).or_else(|| self.refill_for_waiting())
    }

    /// The next return of credits of a window.
    pub(super) fn next_return(
        &mut self,
        now: Micros,
        metrics: &LeasedMetrics,
    ) -> Option<Operation> {
        while self.in_flight.is_none()
            && let Some((limit, batch)) = self.returns.pop()
        {
            if let Some(step) = limit.return_step(&batch, Some(now)) {
                return Some(self.start(limit, step, OperationKind::Return));
            }
            add(&metrics.expired, batch.credits);
        }
        None
    }

    /// The next return of a pool that is not used any more.
    pub(super) fn return_all(&mut self, now: Micros, metrics: &LeasedMetrics) -> Option<Operation> {
        self.take_all_windows();
        self.next_return(now, metrics).or_else(|| self.return_span(now))
    }

    fn return_span(&mut self, now: Micros) -> Option<Operation> {
        if self.in_flight.is_some() {
            return None;
        }
        let step = self.credits.pop(&self.limit, now)?;
        Some(self.start(self.limit.clone(), step, OperationKind::ReturnSpan))
    }

    fn start(&mut self, limit: Arc<LeasedLimit>, step: Step, kind: OperationKind) -> Operation {
        (self.in_flight, self.is_outdated) = (Some(kind), false);
        Operation { limit, epoch: self.epoch, step, kind }
    }

    /// Spends `hits` credits that are valid at `now`. The caller has checked that there are enough.
    fn spend(&mut self, hits: u64, now: Micros) -> Decision {
        self.demand.spent(hits, now);
        self.credits.spend(hits, now);
        self.peek(now)
    }

    /// Turns up to `hits` spent credits that are valid at `now` into unspent ones. Returns their
    /// number. The store gives back the others.
    pub(super) fn refund(&mut self, hits: u64, now: Micros) -> u64 {
        let back = self.credits.refund(hits, now);
        self.credits.shift(hits - back);
        back
    }

    /// Records that the store has given hits back.
    pub(super) fn mark_outdated(&mut self) {
        self.is_outdated = true;
    }

    /// Spent credits that are still valid at `now`.
    pub(super) fn spent(&self, now: Micros) -> u64 {
        self.credits.spent(now)
    }

    /// Completes an operation: serves waiting requests in order. Returns the next operation.
    pub(super) fn complete(
        &mut self,
        operation: &Operation,
        result: &Result<Outcome, StoreError>,
        metrics: &LeasedMetrics,
    ) -> Option<Operation> {
        self.in_flight = None;
        let Operation { limit, step, kind, epoch } = operation;
        let current = Arc::ptr_eq(limit, &self.limit) && *epoch == self.epoch;
        let hits = step.hits.unsigned_abs();
        match (kind, result) {
            (OperationKind::Refill, Ok(outcome)) => {
                self.complete_refill(operation, outcome, current, metrics);
            }
            (OperationKind::Refill, Err(_)) => {
                add(&metrics.refills_failed, 1);
                self.paused_until = step.now.saturating_add(PREFETCH_COOLDOWN);
            }
            (OperationKind::Return, Ok(_)) => add(&metrics.returned, hits),
            (OperationKind::Return, Err(_)) => add(&metrics.expired, hits),
            (OperationKind::ReturnSpan, result) => {
                if current {
                    let before = self.credits.available(step.now);
                    match result {
                        Ok(outcome) => {
                            self.last_state = step.state_after(outcome);
                            self.credits.popped(step, outcome);
                            // The next attempt, if one is needed, follows after the idle time.
                            self.touched = self.touched.max(self.offset.local(step.now));
                        }
                        Err(error) if error.may_have_run() => self.credits.drop_last(),
                        Err(_) => {}
                    }
                    add(&metrics.returned, before - self.credits.available(step.now));
                }
            }
        }
        self.serve_waiting(metrics);
        // Credits of an ended window serve no later request. They are returned first.
        self.take_expired_windows(self.latest.max(step.now));
        if *kind == OperationKind::Refill {
            match result {
                Err(error) => self.fail_waiting(*error, metrics),
                Ok(outcome) if !outcome.allowed && current => {
                    self.count_denied_refill();
                    self.deny_waiting(step.now, metrics);
                }
                Ok(_) => {
                    // Credits of a bucket do not serve a request that did not fit at its instant.
                    if current && matches!(self.credits, Credits::Bucket(_)) {
                        self.deny_waiting(step.now, metrics);
                    }
                    self.count_unserved(metrics);
                }
            }
        }
        // Again, because the requests that could spend the others are possibly decided now.
        self.take_expired_windows(self.latest.max(step.now));
        self.next(self.latest.max(step.now), metrics)
    }

    fn complete_refill(
        &mut self,
        operation: &Operation,
        outcome: &Outcome,
        current: bool,
        metrics: &LeasedMetrics,
    ) {
        let Operation { limit, step, epoch, .. } = operation;
        if current {
            self.last_state = step.state_after(outcome);
        }
        if !outcome.allowed {
            add(&metrics.refills_denied, 1);
            self.paused_until = step.now.saturating_add(PREFETCH_COOLDOWN);
            return;
        }
        add(&metrics.refills, 1);
        add(&metrics.drawn, step.hits.unsigned_abs());
        if current {
            self.credits.add(limit, step, outcome);
        } else if *epoch == self.epoch {
            let mut credits = Credits::none(limit);
            credits.add(limit, step, outcome);
            if let Some(Credits::Windows(batches)) = credits.take_expired(Micros(u64::MAX)) {
                self.returns.extend(batches.into_iter().map(|batch| (limit.clone(), batch)));
            }
        }
    }
}
