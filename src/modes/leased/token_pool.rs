//! TokenPool: what this instance holds of one counter, who waits for more, and what to do next.
//!
//! No I/O: the module above takes the lock, asks the store, and tells what came of it.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::counts::{LeasedCounts, add};
use super::demand::{Demand, low_water, size};
use super::policy::{Batch, TokenPolicy};
use crate::algorithm;
use crate::decision::Decision;
use crate::step::{Outcome, State, Step};
use crate::store::StoreError;
use crate::time::Micros;

/// Draws that are kept apart; beyond, the oldest two are taken for one that ends as the sooner.
const BATCHES_MAX: usize = 4;

/// Draws that one request may see denied before it is denied itself.
const TRIES: u8 = 3;

/// Granted draws that the first in line may see before it is told that the store talks nonsense:
/// one may have been meant for nobody, or have come under policy that hold no longer.
const PASSED_OVER_MAX: u8 = 8;

/// After a draw that got nothing, nothing is drawn ahead for so long.
const QUIET: Micros = Micros::from_millis(100);

/// One counter.
pub(super) struct TokenPool {
    policy: Arc<TokenPolicy>,
    /// Oldest first.
    batches: SmallVec<[Batch; 2]>,
    /// The counter as the store showed it last, our unspent tokens charged to it.
    known: Option<State>,
    demand: Demand,
    /// The store's clock less ours, when both were last known.
    offset: i64,
    /// When it was last asked, by our own clock.
    touched: Micros,
    /// Nothing is drawn ahead before that, by the store's clock.
    quiet: Micros,
    drawing: bool,
    waiting: VecDeque<Waiter>,
}

/// A request that waits for a draw.
struct Waiter {
    hits: u64,
    /// The instant of the request.
    now: Micros,
    /// Draws that were denied meanwhile.
    tries: u8,
    /// Draws that were granted while it was the first in line.
    passed_over: u8,
    answer: oneshot::Sender<Result<Decision, StoreError>>,
}

/// What to ask of the store next, for nobody or for those who wait.
#[derive(Clone, Debug)]
pub(super) struct Refill {
    /// Under these policy.
    pub(super) policy: Arc<TokenPolicy>,
    /// The step.
    pub(super) step: Step,
}

/// Where a request that asks for hits stands.
pub(super) enum Acquire {
    /// Decided.
    Spent(Decision),
    /// Waits.
    Waits(oneshot::Receiver<Result<Decision, StoreError>>),
}

/// Unspent tokens that are held no longer: their policy, and how many of which draw.
pub(super) type Unspent = SmallVec<[(Arc<TokenPolicy>, Batch); 1]>;

impl TokenPool {
    /// Of a counter that is asked for at `now`, at `local` by our own clock.
    pub(super) fn new(policy: TokenPolicy, now: Micros, local: Micros) -> TokenPool {
        TokenPool {
            policy: Arc::new(policy),
            batches: SmallVec::new(),
            known: None,
            demand: Demand::new(now),
            offset: difference(now, local),
            touched: local,
            quiet: Micros::ZERO,
            drawing: false,
            waiting: VecDeque::new(),
        }
    }

    /// The policy that its tokens were drawn under.
    pub(super) fn policy(&self) -> &TokenPolicy {
        &self.policy
    }

    /// Takes note of a request at `local`, by our own clock, and gives its instant by the store's,
    /// if that was ever known.
    pub(super) fn touch(&mut self, local: Micros, now: Option<Micros>) -> Micros {
        self.touched = self.touched.max(local);
        match now {
            Some(now) => {
                self.offset = difference(now, local);
                now
            }
            None => Micros(local.0.saturating_add_signed(self.offset)),
        }
    }

    /// How long nobody has asked for it, at `local`.
    pub(super) fn idle(&self, local: Micros) -> Micros {
        local.saturating_sub(self.touched)
    }

    /// Whether a draw is under way or somebody waits.
    pub(super) fn is_busy(&self) -> bool {
        self.drawing || !self.waiting.is_empty()
    }

    /// From now on other policy hold. What was drawn under the old ones is given away.
    pub(super) fn change(&mut self, policy: TokenPolicy) -> Unspent {
        let unspent = self.empty();
        self.policy = Arc::new(policy);
        (self.known, self.quiet) = (None, Micros::ZERO);
        unspent
    }

    /// Gives away all tokens.
    pub(super) fn empty(&mut self) -> Unspent {
        self.batches.drain(..).map(|batch| (self.policy.clone(), batch)).collect()
    }

    /// Gives away the tokens that are over at `now`.
    pub(super) fn expire(&mut self, now: Micros) -> Unspent {
        let mut over = Unspent::new();
        self.batches.retain(|batch| {
            if batch.until <= now && batch.tokens > 0 {
                over.push((self.policy.clone(), *batch));
            }
            batch.until > now
        });
        over
    }

    /// Tokens that a request at `now` may spend.
    pub(super) fn available(&self, now: Micros) -> u64 {
        let live = self.batches.iter().filter(|batch| now < batch.until);
        live.fold(0, |sum, batch| sum.saturating_add(batch.tokens))
    }

    /// The counter as a request at `now` finds it, less what this instance holds unspent.
    pub(super) fn look(&self, now: Micros) -> Decision {
        let unspent = i64::try_from(self.available(now)).unwrap_or(i64::MAX);
        let step = self.policy.plan(-unspent, now);
        let mut outcome = step.apply(&mut self.known.clone());
        outcome.allowed = true;
        algorithm::report(self.policy.limit(), &step, &outcome)
    }

    /// A request for `hits` at `now`, and the draw that it makes necessary, or `ahead` of it. The
    /// caller has to make it, and to say how it ended.
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
            return (Acquire::Spent(decision), if ahead { self.renew(now) } else { None });
        }
        add(&counts.waits, 1);
        let (answer, told) = oneshot::channel();
        self.waiting.push_back(Waiter { hits, now, tries: 0, passed_over: 0, answer });
        (Acquire::Waits(told), if self.drawing { None } else { self.draw() })
    }

    /// Takes `hits` of the oldest tokens that are good at `now`; there are enough.
    fn spend(&mut self, hits: u64, now: Micros) -> Decision {
        self.demand.spent(hits, now);
        let mut left = hits;
        for batch in self.batches.iter_mut().filter(|batch| now < batch.until) {
            let taken = left.min(batch.tokens);
            (batch.tokens, left) = (batch.tokens - taken, left - taken);
        }
        self.look(now)
    }

    /// Puts up to `hits` that were spent back among the tokens that are good at `now`, and says how
    /// many that were.
    pub(super) fn unspend(&mut self, hits: u64, now: Micros) -> u64 {
        let mut left = hits;
        // The newest, which live longest.
        for batch in self.batches.iter_mut().rev().filter(|batch| now < batch.until) {
            let back = left.min(batch.drawn - batch.tokens);
            (batch.tokens, left) = (batch.tokens + back, left - back);
        }
        hits - left
    }

    /// Tokens that were spent of draws that are still good at `now`.
    pub(super) fn spent(&self, now: Micros) -> u64 {
        let live = self.batches.iter().filter(|batch| now < batch.until);
        live.fold(0, |sum, batch| sum.saturating_add(batch.drawn - batch.tokens))
    }

    /// A draw ahead of need, when little is left.
    fn renew(&mut self, now: Micros) -> Option<Refill> {
        if self.drawing || now < self.quiet {
            return None;
        }
        let left = self.available(now.saturating_add(self.policy.lead()));
        let want = self.demand.want(self.policy.span(now));
        if left > low_water(want) {
            return None;
        }
        let room = self.policy.room(self.known.as_ref(), now);
        match size(0, want, left, room) {
            0 => None,
            tokens => Some(self.begin(tokens, now)),
        }
    }

    /// A draw for those who wait, and for what will be wanted.
    fn draw(&mut self) -> Option<Refill> {
        // Good for every one of them.
        let now = self.waiting.iter().map(|waiter| waiter.now).max()?;
        let first = self.waiting.front()?;
        let asked = self.waiting.iter().fold(0_u64, |sum, one| sum.saturating_add(one.hits));
        let left = self.available(now);
        let room = self.policy.room(self.known.as_ref(), now);
        // Not more than fits, as far as is known; the first of them in any case, because others may
        // have given back. One that was denied twice asks for itself alone.
        let most = if first.tries + 1 < TRIES { room.saturating_add(left) } else { 0 };
        let need = asked.min(most).max(first.hits).saturating_sub(left);
        let want = if first.tries == 0 { self.demand.want(self.policy.span(now)) } else { 0 };
        Some(self.begin(size(need, want, left, room).max(1), now))
    }

    fn begin(&mut self, tokens: u64, now: Micros) -> Refill {
        self.drawing = true;
        let hits = i64::try_from(tokens).unwrap_or(i64::MAX);
        Refill { policy: self.policy.clone(), step: self.policy.plan(hits, now) }
    }

    /// A draw has ended. Serves those who wait in order, and says what to draw next, if they need
    /// more. What was drawn under policy that hold no longer is given away.
    pub(super) fn settle(
        &mut self,
        draw: &Refill,
        result: &Result<Outcome, StoreError>,
        counts: &LeasedCounts,
    ) -> (Option<Refill>, Unspent) {
        self.drawing = false;
        let mut unspent = Unspent::new();
        let current = Arc::ptr_eq(&draw.policy, &self.policy);
        match result {
            Ok(outcome) => {
                if current {
                    self.known = draw.step.state_after(outcome);
                }
                if outcome.allowed {
                    let batch = draw.policy.batch(&draw.step, outcome);
                    add(&counts.refills, 1);
                    add(&counts.drawn, batch.tokens);
                    if current {
                        self.put(batch);
                    } else {
                        unspent.push((draw.policy.clone(), batch));
                    }
                } else {
                    add(&counts.refills_denied, 1);
                    self.quiet = draw.step.now.saturating_add(QUIET);
                }
            }
            Err(_) => {
                add(&counts.refills_failed, 1);
                self.quiet = draw.step.now.saturating_add(QUIET);
            }
        }
        self.serve(counts);
        match result {
            Err(error) => self.fail(*error, counts),
            Ok(outcome) if !outcome.allowed && current => self.deny(counts),
            Ok(_) => self.pass_over(counts),
        }
        (self.draw(), unspent)
    }

    /// Adds what was drawn.
    fn put(&mut self, batch: Batch) {
        let same = |held: &&mut Batch| held.until == batch.until;
        if let Some(held) = self.batches.iter_mut().find(same) {
            held.join(&batch);
            return;
        }
        self.batches.push(batch);
        if self.batches.len() > BATCHES_MAX {
            let oldest = self.batches.remove(0);
            self.batches[0].join(&oldest);
        }
    }

    /// Lets pass whoever is first in line, as long as there are tokens.
    fn serve(&mut self, counts: &LeasedCounts) {
        while let Some(first) = self.waiting.front() {
            let (hits, now) = (first.hits, first.now);
            if !first.answer.is_closed() && self.available(now) < hits {
                break;
            }
            let Some(first) = self.waiting.pop_front() else { break };
            if first.answer.is_closed() {
                continue;
            }
            let decision = self.spend(hits, now);
            if first.answer.send(Ok(decision)).is_ok() {
                add(&counts.spent, hits);
            } else {
                self.unspend(hits, now);
            }
        }
    }

    /// Denies those for whom too little is left, and those who have tried often enough.
    fn deny(&mut self, counts: &LeasedCounts) {
        let mut line = std::mem::take(&mut self.waiting);
        let now = line.iter().map(|waiter| waiter.now).max().unwrap_or_default();
        let room = self.policy.room(self.known.as_ref(), now);
        let mut left = room.saturating_add(self.available(now));
        for (place, mut waiter) in line.drain(..).enumerate() {
            // The last try is for the first in line alone, so it says nothing about the others.
            waiter.tries = if place == 0 { waiter.tries + 1 } else { 1.max(waiter.tries) };
            if waiter.hits <= left && waiter.tries < TRIES {
                left -= waiter.hits;
                self.waiting.push_back(waiter);
            } else {
                add(&counts.denied, 1);
                // Whoever has gone needs no answer.
                let _ = waiter.answer.send(Ok(self.denial(waiter.hits, waiter.now)));
            }
        }
    }

    /// The store's decision on `hits`, as it follows from what it showed last.
    fn denial(&self, hits: u64, now: Micros) -> Decision {
        let net = hits.saturating_sub(self.available(now));
        let step = self.policy.plan(i64::try_from(net).unwrap_or(i64::MAX), now);
        let mut outcome = step.apply(&mut self.known.clone());
        outcome.allowed = false;
        algorithm::report(self.policy.limit(), &step, &outcome)
    }

    /// Somebody is still first in line. Every draw that is made for them serves them, unless the
    /// store's answer names a window that is long over.
    fn pass_over(&mut self, counts: &LeasedCounts) {
        let Some(first) = self.waiting.front_mut() else { return };
        first.passed_over += 1;
        if first.passed_over > PASSED_OVER_MAX {
            self.fail(StoreError::Reply, counts);
        }
    }

    /// Nothing can be drawn: whoever can be served from what is left is, the others hear why.
    fn fail(&mut self, error: StoreError, counts: &LeasedCounts) {
        while let Some(first) = self.waiting.pop_front() {
            let _ = first.answer.send(Err(error));
            self.serve(counts);
        }
    }
}

impl Batch {
    /// Takes `other` in; both end as the sooner one.
    fn join(&mut self, other: &Batch) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.drawn = self.drawn.saturating_add(other.drawn);
        self.at = self.at.min(other.at);
        self.until = self.until.min(other.until);
    }
}

fn difference(now: Micros, local: Micros) -> i64 {
    i64::try_from(i128::from(now.0) - i128::from(local.0)).unwrap_or(0)
}
