//! Credits: the hits that one instance has drawn from a counter and not spent. Pure.
//!
//! Credits of windows are numbers, and end with their window. Credits of a bucket are spans of its
//! time axis, and end as it drains.

use smallvec::SmallVec;

use super::leased_limit::{CreditBatch, LeasedLimit};
use super::spans::DrawnSpans;
use crate::step::{GcraTier, GcraTime, Outcome, Step, StepParams};
use crate::time::Micros;

mod bucket_draw;

pub(super) use bucket_draw::BucketDraw;

/// Most batches per pool. When there are more, the two oldest are merged and end at the earlier end
/// of the two.
const BATCHES_MAX: usize = 4;

/// Credits of one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Credits {
    /// Of windows, one batch per refill, oldest first.
    Windows(SmallVec<[CreditBatch; 2]>),
    /// Of a bucket, per tier.
    Bucket(SmallVec<[BucketTier; 1]>),
}

/// The credits of one tier of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BucketTier {
    /// Parts per microsecond.
    parts: u64,
    /// The cost of one hit, in parts.
    one: i128,
    /// The length of a full bucket, in parts.
    full: i128,
    spans: DrawnSpans,
}

impl BucketTier {
    fn now(&self, now: Micros) -> i128 {
        i128::from(now.0) * i128::from(self.parts)
    }

    fn cost(&self, hits: u64) -> i128 {
        self.one * i128::from(hits)
    }

    /// Whether `hits` at `now` can use pieces that end within one full bucket.
    fn serves(&self, hits: u64, now: Micros) -> bool {
        let now = self.now(now);
        self.spans.end_of(self.cost(hits), now).is_some_and(|end| end <= now + self.full)
    }
}

fn hits(length: i128, one: i128) -> u64 {
    u64::try_from(length / one.max(1)).unwrap_or(u64::MAX)
}

impl Credits {
    /// No credits of a counter with `limit`.
    pub(super) fn none(limit: &LeasedLimit) -> Credits {
        match limit.plan(1, Micros::ZERO).params {
            StepParams::Gcra(tiers) => {
                let tier = |tier: &GcraTier| BucketTier {
                    parts: tier.parts,
                    one: tier.emission_interval.to_parts(tier.parts),
                    full: tier.latest_allowed.to_parts(tier.parts),
                    spans: DrawnSpans::default(),
                };
                Credits::Bucket(tiers.iter().map(tier).collect())
            }
            _ => Credits::Windows(SmallVec::new()),
        }
    }

    /// Credits that a request at `now` can spend.
    pub(super) fn available(&self, now: Micros) -> u64 {
        match self {
            Credits::Windows(batches) => {
                let live = batches.iter().filter(|batch| now < batch.until);
                live.fold(0, |sum, batch| sum.saturating_add(batch.credits))
            }
            Credits::Bucket(tiers) => {
                let each = tiers.iter().map(|t| hits(t.spans.unspent(t.now(now)), t.one));
                each.min().unwrap_or(0)
            }
        }
    }

    /// Whether a request at `now` can spend `hits` credits. Credits of a bucket that were drawn later
    /// than `now` may lie too late for it, as they would in a bucket of its hits alone.
    pub(super) fn serves(&self, hits: u64, now: Micros) -> bool {
        match self {
            Credits::Windows(_) => self.available(now) >= hits,
            Credits::Bucket(tiers) => tiers.iter().all(|tier| tier.serves(hits, now)),
        }
    }

    /// Spent credits that can be given back at `now`.
    pub(super) fn spent(&self, now: Micros) -> u64 {
        match self {
            Credits::Windows(batches) => {
                let live = batches.iter().filter(|batch| now < batch.until);
                live.fold(0, |sum, batch| sum.saturating_add(batch.drawn - batch.credits))
            }
            Credits::Bucket(tiers) => {
                let each = tiers.iter().map(|t| hits(t.spans.spent(t.now(now)), t.one));
                each.min().unwrap_or(0)
            }
        }
    }

    /// Spends `hits` credits at `now`, oldest first. The caller has checked that there are enough.
    pub(super) fn spend(&mut self, hits: u64, now: Micros) {
        match self {
            Credits::Windows(batches) => {
                let mut left = hits;
                for batch in batches.iter_mut().filter(|batch| now < batch.until) {
                    let taken = left.min(batch.credits);
                    (batch.credits, left) = (batch.credits - taken, left - taken);
                }
            }
            Credits::Bucket(tiers) => {
                for tier in tiers {
                    let (cost, now) = (tier.cost(hits), tier.now(now));
                    tier.spans.spend(cost, now);
                }
            }
        }
    }

    /// Turns up to `hits` spent credits into unspent ones. Returns their number.
    pub(super) fn refund(&mut self, hits: u64, now: Micros) -> u64 {
        let most = hits.min(self.spent(now));
        match self {
            Credits::Windows(batches) => {
                let mut left = most;
                // The newest credits live longest.
                for batch in batches.iter_mut().rev().filter(|batch| now < batch.until) {
                    let back = left.min(batch.drawn - batch.credits);
                    (batch.credits, left) = (batch.credits + back, left - back);
                }
            }
            Credits::Bucket(tiers) => {
                for tier in tiers {
                    let (cost, now) = (tier.cost(most), tier.now(now));
                    tier.spans.refund(cost, now);
                }
            }
        }
        most
    }

    /// Moves the spans of a bucket, because the store gives back `hits` that were drawn before.
    pub(super) fn shift(&mut self, hits: u64) {
        if let Credits::Bucket(tiers) = self {
            for tier in tiers {
                let cost = tier.cost(hits);
                tier.spans.shift(cost);
            }
        }
    }

    /// Whether there are unspent credits of windows that have ended at `now`.
    pub(super) fn has_expired(&self, now: Micros) -> bool {
        let Credits::Windows(batches) = self else { return false };
        batches.iter().any(|batch| batch.until <= now && batch.credits > 0)
    }

    /// Takes out the credits of windows that have ended at `now`. Those of a bucket drain, in the
    /// store as here.
    pub(super) fn take_expired(&mut self, now: Micros) -> Option<Credits> {
        let Credits::Windows(batches) = self else { return None };
        let mut expired = SmallVec::new();
        batches.retain(|batch| {
            if batch.until <= now && batch.credits > 0 {
                expired.push(*batch);
            }
            batch.until > now
        });
        (!expired.is_empty()).then_some(Credits::Windows(expired))
    }

    /// Adds the credits that `step` drew, whose `outcome` allowed it. Returns their number.
    pub(super) fn add(&mut self, limit: &LeasedLimit, step: &Step, outcome: &Outcome) -> u64 {
        let credits = step.hits.unsigned_abs();
        match (&mut *self, &step.params) {
            (Credits::Windows(batches), _) => {
                let until = limit.window_end(step, outcome);
                add_batch(batches, CreditBatch { credits, drawn: credits, until });
            }
            (Credits::Bucket(tiers), StepParams::Gcra(planned)) => {
                for ((tier, planned), seen) in tiers.iter_mut().zip(planned).zip(&outcome.tiers) {
                    let to = seen.arrival_time().to_parts(tier.parts);
                    tier.spans.add(to - planned.cost.to_parts(tier.parts), to);
                }
            }
            (Credits::Bucket(_), _) => {}
        }
        credits
    }

    /// Reduces the cost of a draw in a bucket by the unspent part of a credit.
    pub(super) fn complete_part(&self, step: &mut Step) {
        let (Credits::Bucket(tiers), StepParams::Gcra(planned)) = (self, &mut step.params) else {
            return;
        };
        let whole = self.available(step.now);
        for (tier, planned) in tiers.iter().zip(planned) {
            let over = tier.spans.unspent(tier.now(step.now)) - tier.cost(whole);
            let cost = planned.cost.to_parts(tier.parts) - over.max(0);
            planned.cost = GcraTime::from_parts(cost, tier.parts);
        }
    }

    /// The step that gives back the last unspent span of a bucket, if the store's state still ends
    /// with it; `None` if nothing is left at `now`.
    pub(super) fn pop(&self, limit: &LeasedLimit, now: Micros) -> Option<Step> {
        let Credits::Bucket(tiers) = self else { return None };
        let mut step = limit.plan(-1, now);
        let StepParams::Gcra(planned) = &mut step.params else { return None };
        let mut credits = u64::MAX;
        let mut left = false;
        for (tier, planned) in tiers.iter().zip(planned) {
            let (from, to) = tier.spans.last(tier.now(now)).unwrap_or_default();
            planned.cost = GcraTime::from_parts(to - from, tier.parts);
            planned.refund_only_at = Some(GcraTime::from_parts(to, tier.parts));
            left |= to > from;
            credits = credits.min(hits(to - from, tier.one));
        }
        step.hits = -i64::try_from(credits.max(1)).unwrap_or(i64::MAX);
        left.then_some(step)
    }

    /// Removes the spans that `step` of [`pop`](Credits::pop) gave back in the store.
    pub(super) fn popped(&mut self, step: &Step, outcome: &Outcome) {
        let (Credits::Bucket(tiers), StepParams::Gcra(planned)) = (self, &step.params) else {
            return;
        };
        for ((tier, planned), seen) in tiers.iter_mut().zip(planned).zip(&outcome.tiers) {
            let parts = |time: GcraTime| time.to_parts(tier.parts);
            let left = planned.refund_only_at.map(|end| parts(end) - parts(planned.cost));
            // Otherwise the store's state ends elsewhere, and the span stays charged.
            if left == Some(parts(seen.arrival_time())) {
                tier.spans.drop_last();
            }
        }
    }

    /// Drops the last span of a bucket, which the store possibly gave back.
    pub(super) fn drop_last(&mut self) {
        if let Credits::Bucket(tiers) = self {
            tiers.iter_mut().for_each(|tier| tier.spans.drop_last());
        }
    }

    /// `state` of a bucket without the unspent credits.
    pub(super) fn without(&self, state: &[GcraTime], now: Micros) -> Vec<GcraTime> {
        let Credits::Bucket(tiers) = self else { return state.to_vec() };
        let less = |(tier, state): (&BucketTier, &GcraTime)| {
            let unspent = tier.spans.unspent(tier.now(now));
            let empty = tier.now(now);
            GcraTime::from_parts((state.to_parts(tier.parts) - unspent).max(empty), tier.parts)
        };
        tiers.iter().zip(state).map(less).collect()
    }

    /// Whether nothing is unspent at `now`.
    pub(super) fn is_empty(&self, now: Micros) -> bool {
        match self {
            Credits::Windows(batches) => batches.iter().all(|batch| batch.credits == 0),
            Credits::Bucket(tiers) => {
                tiers.iter().all(|tier| tier.spans.unspent(tier.now(now)) == 0)
            }
        }
    }
}

fn add_batch(batches: &mut SmallVec<[CreditBatch; 2]>, batch: CreditBatch) {
    if let Some(held) = batches.iter_mut().find(|held| held.until == batch.until) {
        return held.merge(&batch);
    }
    batches.push(batch);
    if batches.len() > BATCHES_MAX {
        let oldest = batches.remove(0);
        batches[0].merge(&oldest);
    }
}

impl CreditBatch {
    /// Merges `other` into this batch, which then ends at the earlier end of the two.
    fn merge(&mut self, other: &CreditBatch) {
        self.credits = self.credits.saturating_add(other.credits);
        self.drawn = self.drawn.saturating_add(other.drawn);
        self.until = self.until.min(other.until);
    }
}
