//! Token pools: the unspent tokens of one counter, the requests that wait for more, and the next
//! refill. No I/O: the parent module holds the lock, calls the store, and reports the outcomes.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::counts::{LeasedCounts, add};
use super::demand::{Demand, low_water, size};
use super::policy::{TokenBatch, TokenPolicy};
use crate::algorithm;
use crate::decision::Decision;
use crate::step::{Outcome, State, Step};
use crate::store::StoreError;
use crate::time::Micros;

/// Most batches per pool. When there are more, the two oldest are merged and end at the earlier end
/// of the two.
const BATCHES_MAX: usize = 4;

/// Denied refills after which a waiting request is denied.
const TRIES_MAX: u8 = 3;

/// Granted refills that may leave the first waiting request unserved, before it fails with
/// [`StoreError::InvalidReply`]. A few are legitimate: their request was cancelled, or the policy changed.
const UNSERVED_MAX: u8 = 8;

/// The time after a denied or failed refill in which no refill is sent ahead of need.
const PAUSE: Micros = Micros::from_millis(100);

/// The tokens of one counter on this instance.
pub(super) struct TokenPool {
    policy: Arc<TokenPolicy>,
    /// Unspent tokens per refill, oldest first.
    batches: SmallVec<[TokenBatch; 2]>,
    /// The counter's state after the last refill. Unspent tokens of this instance are charged to it.
    known: Option<State>,
    demand: Demand,
    /// The store's clock minus the local one, in microseconds, when both were last known.
    offset: i64,
    /// The instant of the last request, by the local clock.
    touched: Micros,
    /// The instant, by the store's clock, before which no refill is sent ahead of need.
    paused_until: Micros,
    /// Whether a refill is in flight.
    refilling: bool,
    waiting: VecDeque<WaitingRequest>,
}

/// A request that waits for a refill.
struct WaitingRequest {
    hits: u64,
    /// The instant of the request.
    now: Micros,
    /// Refills denied since the request started to wait.
    tries: u8,
    /// Refills granted while the request was the first in the queue.
    unserved: u8,
    result: oneshot::Sender<Result<Decision, StoreError>>,
}

/// A step that draws tokens, ahead of need or for waiting requests.
#[derive(Clone, Debug)]
pub(super) struct Refill {
    /// The policy under which the step was planned.
    pub(super) policy: Arc<TokenPolicy>,
    /// The step.
    pub(super) step: Step,
}

/// The result of acquiring tokens for a request.
pub(super) enum Acquire {
    /// The tokens are spent.
    Granted(Decision),
    /// The request waits for a refill.
    Queued(oneshot::Receiver<Result<Decision, StoreError>>),
}

/// Unspent tokens that left a pool, per refill, with the policy they were drawn under.
pub(super) type Unspent = SmallVec<[(Arc<TokenPolicy>, TokenBatch); 1]>;

impl TokenPool {
    /// An empty pool for a counter with a request at `now`, which is `local` by the local clock.
    pub(super) fn new(policy: TokenPolicy, now: Micros, local: Micros) -> TokenPool {
        TokenPool {
            policy: Arc::new(policy),
            batches: SmallVec::new(),
            known: None,
            demand: Demand::new(now),
            offset: clock_offset(now, local),
            touched: local,
            paused_until: Micros::ZERO,
            refilling: false,
            waiting: VecDeque::new(),
        }
    }

    /// The policy that the tokens were drawn under.
    pub(super) fn policy(&self) -> &TokenPolicy {
        &self.policy
    }

    /// Records a request at `local` by the local clock. Returns its instant by the store's clock,
    /// which is estimated from the last known offset if `now` is `None`.
    pub(super) fn touch(&mut self, local: Micros, now: Option<Micros>) -> Micros {
        self.touched = self.touched.max(local);
        match now {
            Some(now) => {
                self.offset = clock_offset(now, local);
                now
            }
            None => Micros(local.0.saturating_add_signed(self.offset)),
        }
    }

    /// Time since the last request, at `local`.
    pub(super) fn idle(&self, local: Micros) -> Micros {
        local.saturating_sub(self.touched)
    }

    /// Whether a refill is in flight or requests wait.
    pub(super) fn is_busy(&self) -> bool {
        self.refilling || !self.waiting.is_empty()
    }

    /// Replaces the policy. Returns the tokens that were drawn under the old one.
    pub(super) fn change_policy(&mut self, policy: TokenPolicy) -> Unspent {
        let unspent = self.take_all();
        self.policy = Arc::new(policy);
        (self.known, self.paused_until) = (None, Micros::ZERO);
        unspent
    }

    /// Takes all tokens out.
    pub(super) fn take_all(&mut self) -> Unspent {
        self.batches.drain(..).map(|batch| (self.policy.clone(), batch)).collect()
    }

    /// Takes out the tokens that have expired at `now`.
    pub(super) fn take_expired(&mut self, now: Micros) -> Unspent {
        let mut expired = Unspent::new();
        self.batches.retain(|batch| {
            if batch.until <= now && batch.tokens > 0 {
                expired.push((self.policy.clone(), *batch));
            }
            batch.until > now
        });
        expired
    }

    /// Tokens that a request at `now` can spend.
    pub(super) fn available(&self, now: Micros) -> u64 {
        let live = self.batches.iter().filter(|batch| now < batch.until);
        live.fold(0, |sum, batch| sum.saturating_add(batch.tokens))
    }

    /// The decision of a peek at `now`: unspent tokens of this instance do not count as used.
    pub(super) fn peek(&self, now: Micros) -> Decision {
        let unspent = i64::try_from(self.available(now)).unwrap_or(i64::MAX);
        let step = self.policy.plan(-unspent, now);
        let mut outcome = step.apply(&mut self.known.clone());
        outcome.allowed = true;
        algorithm::report(self.policy.limit(), &step, &outcome)
    }

    /// Spends `hits` tokens for a request at `now`, or queues the request. Also returns the refill
    /// that the request needs, or with `ahead` the one that is needed soon. The caller sends the
    /// refill, and passes its outcome to [`complete`](TokenPool::complete).
    pub(super) fn acquire(
        &mut self,
        hits: u64,
        now: Micros,
        ahead: bool,
        counts: &LeasedCounts,
    ) -> (Acquire, Option<Refill>) {
        if self.waiting.is_empty() && self.available(now) >= hits {
            let decision = self.spend(hits, now);
            add(&counts.spent, hits);
            return (Acquire::Granted(decision), if ahead { self.refill_ahead(now) } else { None });
        }
        add(&counts.waits, 1);
        let (sender, result) = oneshot::channel();
        let waiter = WaitingRequest { hits, now, tries: 0, unserved: 0, result: sender };
        self.waiting.push_back(waiter);
        (Acquire::Queued(result), if self.refilling { None } else { self.refill_for_waiting() })
    }

    /// Spends the `hits` oldest tokens that are valid at `now`. The caller has checked that there
    /// are enough.
    fn spend(&mut self, hits: u64, now: Micros) -> Decision {
        self.demand.spent(hits, now);
        let mut left = hits;
        for batch in self.batches.iter_mut().filter(|batch| now < batch.until) {
            let taken = left.min(batch.tokens);
            (batch.tokens, left) = (batch.tokens - taken, left - taken);
        }
        self.peek(now)
    }

    /// Turns up to `hits` spent tokens that are valid at `now` into unspent ones. Returns their
    /// number.
    pub(super) fn refund(&mut self, hits: u64, now: Micros) -> u64 {
        let mut left = hits;
        // The newest tokens live longest.
        for batch in self.batches.iter_mut().rev().filter(|batch| now < batch.until) {
            let back = left.min(batch.drawn - batch.tokens);
            (batch.tokens, left) = (batch.tokens + back, left - back);
        }
        hits - left
    }

    /// Spent tokens that are still valid at `now`.
    pub(super) fn spent(&self, now: Micros) -> u64 {
        let live = self.batches.iter().filter(|batch| now < batch.until);
        live.fold(0, |sum, batch| sum.saturating_add(batch.drawn - batch.tokens))
    }

    /// A refill ahead of need, if few tokens are left.
    fn refill_ahead(&mut self, now: Micros) -> Option<Refill> {
        if self.refilling || now < self.paused_until {
            return None;
        }
        let left = self.available(now.saturating_add(self.policy.lead()));
        let want = self.demand.want(self.policy.life_at(now));
        if left > low_water(want) {
            return None;
        }
        let room = self.policy.room(self.known.as_ref(), now);
        match size(0, want, left, room) {
            0 => None,
            tokens => Some(self.start_refill(tokens, now)),
        }
    }

    /// A refill for the waiting requests, and for the demand that follows.
    fn refill_for_waiting(&mut self) -> Option<Refill> {
        // The latest instant of the waiting requests, so that the refill precedes none of them.
        let now = self.waiting.iter().map(|waiter| waiter.now).max()?;
        let first = self.waiting.front()?;
        let wanted = self.waiting.iter().fold(0_u64, |sum, one| sum.saturating_add(one.hits));
        let left = self.available(now);
        let room = self.policy.room(self.known.as_ref(), now);
        // At most the hits that fit by the last known state. The first request is always included,
        // because other instances may have returned tokens. After two denials it is the only one.
        let most = if first.tries + 1 < TRIES_MAX { room.saturating_add(left) } else { 0 };
        let need = wanted.min(most).max(first.hits).saturating_sub(left);
        let want = if first.tries == 0 { self.demand.want(self.policy.life_at(now)) } else { 0 };
        Some(self.start_refill(size(need, want, left, room).max(1), now))
    }

    fn start_refill(&mut self, tokens: u64, now: Micros) -> Refill {
        self.refilling = true;
        let hits = i64::try_from(tokens).unwrap_or(i64::MAX);
        Refill { policy: self.policy.clone(), step: self.policy.plan(hits, now) }
    }

    /// Completes a refill: serves waiting requests in order. Returns the next refill if they need
    /// more, and tokens that were drawn under an old policy.
    pub(super) fn complete(
        &mut self,
        refill: &Refill,
        result: &Result<Outcome, StoreError>,
        counts: &LeasedCounts,
    ) -> (Option<Refill>, Unspent) {
        self.refilling = false;
        let mut unspent = Unspent::new();
        let current = Arc::ptr_eq(&refill.policy, &self.policy);
        match result {
            Ok(outcome) => {
                if current {
                    self.known = refill.step.state_after(outcome);
                }
                if outcome.allowed {
                    let batch = refill.policy.batch(&refill.step, outcome);
                    add(&counts.refills, 1);
                    add(&counts.drawn, batch.tokens);
                    if current {
                        self.add(batch);
                    } else {
                        unspent.push((refill.policy.clone(), batch));
                    }
                } else {
                    add(&counts.refills_denied, 1);
                    self.paused_until = refill.step.now.saturating_add(PAUSE);
                }
            }
            Err(_) => {
                add(&counts.refills_failed, 1);
                self.paused_until = refill.step.now.saturating_add(PAUSE);
            }
        }
        self.serve_waiting(counts);
        match result {
            Err(error) => self.fail_waiting(*error, counts),
            Ok(outcome) if !outcome.allowed && current => self.deny_waiting(counts),
            Ok(_) => self.count_unserved(counts),
        }
        (self.refill_for_waiting(), unspent)
    }

    /// Adds the tokens of a refill.
    fn add(&mut self, batch: TokenBatch) {
        let same = |held: &&mut TokenBatch| held.until == batch.until;
        if let Some(held) = self.batches.iter_mut().find(same) {
            held.merge(&batch);
            return;
        }
        self.batches.push(batch);
        if self.batches.len() > BATCHES_MAX {
            let oldest = self.batches.remove(0);
            self.batches[0].merge(&oldest);
        }
    }

    /// Grants waiting requests in order, as long as there are tokens.
    fn serve_waiting(&mut self, counts: &LeasedCounts) {
        while let Some(first) = self.waiting.front() {
            let (hits, now) = (first.hits, first.now);
            if !first.result.is_closed() && self.available(now) < hits {
                break;
            }
            let Some(first) = self.waiting.pop_front() else { break };
            if first.result.is_closed() {
                continue;
            }
            let decision = self.spend(hits, now);
            if first.result.send(Ok(decision)).is_ok() {
                add(&counts.spent, hits);
            } else {
                self.refund(hits, now);
            }
        }
    }

    /// Denies the waiting requests that no longer fit, and those with too many denied refills.
    fn deny_waiting(&mut self, counts: &LeasedCounts) {
        let mut queue = std::mem::take(&mut self.waiting);
        let now = queue.iter().map(|waiter| waiter.now).max().unwrap_or_default();
        let room = self.policy.room(self.known.as_ref(), now);
        let mut left = room.saturating_add(self.available(now));
        for (position, mut waiter) in queue.drain(..).enumerate() {
            // The last refill is for the first request alone, so it does not count for the others.
            waiter.tries = if position == 0 { waiter.tries + 1 } else { 1.max(waiter.tries) };
            if waiter.hits <= left && waiter.tries < TRIES_MAX {
                left -= waiter.hits;
                self.waiting.push_back(waiter);
            } else {
                add(&counts.denied, 1);
                // A cancelled request needs no decision.
                let _ = waiter.result.send(Ok(self.denial(waiter.hits, waiter.now)));
            }
        }
    }

    /// The store's decision on `hits`, computed from the counter's last known state.
    fn denial(&self, hits: u64, now: Micros) -> Decision {
        let net = hits.saturating_sub(self.available(now));
        let step = self.policy.plan(i64::try_from(net).unwrap_or(i64::MAX), now);
        let mut outcome = step.apply(&mut self.known.clone());
        outcome.allowed = false;
        algorithm::report(self.policy.limit(), &step, &outcome)
    }

    /// Counts a granted refill that left the first waiting request unserved. A refill for a request
    /// serves it, unless the store's outcome names a window that has long ended.
    fn count_unserved(&mut self, counts: &LeasedCounts) {
        let Some(first) = self.waiting.front_mut() else { return };
        first.unserved += 1;
        if first.unserved > UNSERVED_MAX {
            self.fail_waiting(StoreError::InvalidReply, counts);
        }
    }

    /// Fails the waiting requests that the remaining tokens do not serve.
    fn fail_waiting(&mut self, error: StoreError, counts: &LeasedCounts) {
        while let Some(first) = self.waiting.pop_front() {
            let _ = first.result.send(Err(error));
            self.serve_waiting(counts);
        }
    }
}

impl TokenBatch {
    /// Merges `other` into this batch, which then ends at the earlier end of the two.
    fn merge(&mut self, other: &TokenBatch) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.drawn = self.drawn.saturating_add(other.drawn);
        self.at = self.at.min(other.at);
        self.until = self.until.min(other.until);
    }
}

fn clock_offset(now: Micros, local: Micros) -> i64 {
    i64::try_from(i128::from(now.0) - i128::from(local.0)).unwrap_or(0)
}
