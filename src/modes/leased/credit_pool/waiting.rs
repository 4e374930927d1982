//! The queue of requests that wait for a refill.

use tokio::sync::oneshot;

use super::{CreditPool, Credits, DENIED_REFILLS_MAX, LeasedMetrics, add};
use crate::algorithm;
use crate::decision::Decision;
use crate::modes::leased::credits::BucketDraw;
use crate::step::Step;
use crate::store::StoreError;
use crate::time::Micros;

/// Granted refills that may leave the first waiting request unserved, before it fails with
/// [`StoreError::InvalidReply`]. A few are legitimate: their request was cancelled, or the limit changed.
const UNSERVED_MAX: u8 = 8;

/// A request that waits for a refill.
pub(super) struct WaitingRequest {
    pub(super) hits: u64,
    /// The instant of the request.
    pub(super) now: Micros,
    /// Refills denied since the request started to wait.
    pub(super) denied_refills: u8,
    /// Refills granted while the request was the first in the queue.
    pub(super) unserved: u8,
    pub(super) result: oneshot::Sender<Result<Decision, StoreError>>,
}

impl CreditPool {
    /// Grants waiting requests in order, as long as there are credits.
    pub(super) fn serve_waiting(&mut self, metrics: &LeasedMetrics) {
        let mut blocked = false;
        for waiter in std::mem::take(&mut self.waiting) {
            if waiter.result.is_closed() {
                continue;
            }
            if !blocked && self.serves(waiter.hits, waiter.now) {
                self.grant(waiter, metrics);
                continue;
            }
            // A request that the store would deny needs no credits. Every other request gets its credits
            // before those that follow it.
            blocked = blocked || self.may_fit(waiter.hits, waiter.now);
            self.waiting.push_back(waiter);
        }
    }

    /// Spends the credits of a waiting request. The caller has checked that there are enough.
    fn grant(&mut self, waiter: WaitingRequest, metrics: &LeasedMetrics) {
        let decision = self.spend(waiter.hits, waiter.now);
        if waiter.result.send(Ok(decision)).is_ok() {
            add(&metrics.spent, waiter.hits);
        } else {
            self.refund(waiter.hits, waiter.now);
        }
    }

    /// Counts a denied refill. After two of them the next refill is for the first request alone, so
    /// it counts for that one only.
    pub(super) fn count_denied_refill(&mut self) {
        for (position, waiter) in self.waiting.iter_mut().enumerate() {
            waiter.denied_refills = if position == 0 {
                waiter.denied_refills + 1
            } else {
                waiter.denied_refills.max(1)
            };
        }
    }

    /// Denies the waiting requests that do not fit by the last known state, unless it is outdated,
    /// and those with too many denied refills.
    pub(super) fn deny_waiting(&mut self, known_at: Micros, metrics: &LeasedMetrics) {
        // Credits of a window that has ended since are still charged to it, also those that wait in the
        // pool for an earlier request.
        let is_outdated = self.is_outdated || !self.returns.is_empty();
        for waiter in std::mem::take(&mut self.waiting) {
            // The known state is of an instant, and says nothing about earlier ones.
            let at = waiter.now.max(known_at);
            let fits = is_outdated || self.credits.has_expired(at) || self.fits(waiter.hits, at);
            if fits && waiter.denied_refills < DENIED_REFILLS_MAX {
                self.waiting.push_back(waiter);
            } else {
                add(&metrics.denied, 1);
                // A cancelled request needs no decision.
                let _ = waiter.result.send(Ok(self.denial(waiter.hits, waiter.now)));
            }
        }
    }

    /// The step that draws `credits`, less the unspent part of one.
    pub(super) fn draw(&self, credits: u64, now: Micros) -> Step {
        let mut step = self.limit.plan(i64::try_from(credits).unwrap_or(i64::MAX), now);
        self.credits.complete_part(&mut step);
        step
    }

    /// Whether the store may have room for `hits` in addition to the credits.
    fn may_fit(&self, hits: u64, now: Micros) -> bool {
        // Hits that return give a window room. The credits of a bucket are those of one state.
        let returns = !self.returns.is_empty() || self.credits.has_expired(now);
        let is_outdated = self.is_outdated || returns;
        let window = !matches!(self.credits, Credits::Bucket(_));
        (window && is_outdated) || self.fits(hits, now)
    }

    /// Whether the last known state has room for `hits` in addition to the credits.
    fn fits(&self, hits: u64, now: Micros) -> bool {
        if let Some(mut draw) = BucketDraw::new(&self.credits, self.last_state.as_ref(), now) {
            return draw.take_if_fits(hits, now);
        }
        let net = hits.saturating_sub(self.available(now));
        net == 0 || self.draw(net, now).apply(&mut self.last_state.clone()).allowed
    }

    /// The store's decision on `hits`, computed from the counter's last known state.
    fn denial(&self, hits: u64, now: Micros) -> Decision {
        let net = hits.saturating_sub(self.available(now)).max(1);
        let step = self.draw(net, now);
        let mut outcome = step.apply(&mut self.last_state.clone());
        outcome.allowed = false;
        algorithm::report(self.limit.as_limit(), &step, &outcome)
    }

    /// Counts a granted refill that left the first waiting request unserved. A refill for a request
    /// serves it, unless the store's outcome names a window that has long ended.
    pub(super) fn count_unserved(&mut self, metrics: &LeasedMetrics) {
        let Some(first) = self.waiting.front_mut() else { return };
        first.unserved += 1;
        if first.unserved > UNSERVED_MAX {
            self.fail_waiting(StoreError::InvalidReply, metrics);
        }
    }

    /// Fails the waiting requests that the remaining credits do not serve.
    pub(super) fn fail_waiting(&mut self, error: StoreError, metrics: &LeasedMetrics) {
        for waiter in std::mem::take(&mut self.waiting) {
            if !waiter.result.is_closed() && self.serves(waiter.hits, waiter.now) {
                self.grant(waiter, metrics);
            } else {
                let _ = waiter.result.send(Err(error));
            }
        }
    }
}
