//! The refills of a credit pool: when one is needed, how many credits it draws, and as of which
//! instant.

use super::{CreditPool, Credits, DENIED_REFILLS_MAX, Operation, OperationKind};
use crate::modes::leased::credits::BucketDraw;
use crate::modes::leased::demand::{DRAW_AHEAD, low_water, refill_size};
use crate::step::Step;
use crate::time::Micros;

impl CreditPool {
    /// A refill ahead of need, if few credits are left.
    pub(super) fn refill_ahead(&mut self, now: Micros) -> Option<Operation> {
        if self.in_flight.is_some() || now < self.paused_until {
            return None;
        }
        let left = self.available(now.saturating_add(self.limit.lead()));
        let want = self.want(now);
        if left > low_water(want) {
            return None;
        }
        let room = self.limit.room(self.last_state.as_ref(), now);
        match refill_size(0, want, left, room) {
            0 => None,
            credits => Some(self.refill(self.draw(credits, now))),
        }
    }

    /// The credits wanted at `now`.
    fn want(&self, now: Micros) -> u64 {
        // Credits of a bucket that drain before hits that were counted after them are lost.
        let bucket = matches!(self.credits, Credits::Bucket(_));
        if bucket && now < self.direct_until {
            return 0;
        }
        match self.limit.life_at(now) {
            Micros::ZERO => 0,
            life => {
                let want = self.demand.want(life.min(DRAW_AHEAD));
                self.limit.with_drained(want, self.last_state.as_ref(), now)
            }
        }
    }

    /// A refill for the waiting requests, and for the demand that follows.
    pub(super) fn refill_for_waiting(&mut self) -> Option<Operation> {
        if self.in_flight.is_some() {
            return None;
        }
        let step = self.draw_from_bucket().or_else(|| self.draw_from_window())?;
        Some(self.refill(step))
    }

    /// The draw for the waiting requests to a window.
    fn draw_from_window(&self) -> Option<Step> {
        let first = self.waiting.front()?;
        // Credits are drawn for the requests of one window, which the first one determines.
        let end = self.limit.window_of(first.now);
        let waiting = || self.waiting.iter().take_while(|one| end.is_none_or(|end| one.now < end));
        // Their latest instant, so that the refill precedes none of them.
        let now = waiting().map(|waiter| waiter.now).max()?;
        let wanted = waiting().fold(0_u64, |sum, one| sum.saturating_add(one.hits));
        let left = self.available(now);
        let room = self.limit.room(self.last_state.as_ref(), now);
        // At most the hits that fit by the last known state. The first request is always included,
        // because other instances may have returned credits. After two denials it is the only one.
        let most = if first.denied_refills + 1 < DENIED_REFILLS_MAX {
            room.saturating_add(left)
        } else {
            0
        };
        let need = wanted.min(most).max(first.hits).saturating_sub(left);
        let want = if first.denied_refills == 0 { self.want(now) } else { 0 };
        Some(self.draw(refill_size(need, want, left, room).max(1), now))
    }

    /// The draw for the waiting requests to a bucket that fit as of their arrival; `None` if the
    /// counter is no bucket.
    fn draw_from_bucket(&self) -> Option<Step> {
        let first = self.waiting.front()?;
        let mut draw = BucketDraw::new(&self.credits, self.last_state.as_ref(), first.now)?;
        // After two denials the first request is the only one.
        if first.denied_refills + 1 < DENIED_REFILLS_MAX {
            for one in &self.waiting {
                draw.take_if_fits(one.hits, one.now);
            }
        }
        if draw.hits() == 0 {
            // Other instances may have returned credits, so the store decides.
            draw.take(first.hits, first.now);
        }
        let left = self.available(draw.latest());
        let need = draw.hits().saturating_sub(left).max(1);
        let want = if first.denied_refills == 0 { self.want(draw.latest()) } else { 0 };
        let room = need.saturating_add(draw.room());
        let credits = refill_size(need, want, left, room);
        Some(draw.step(&self.limit, credits, (credits - need).min(draw.room())))
    }

    fn refill(&mut self, step: Step) -> Operation {
        self.start(self.limit.clone(), step, OperationKind::Refill)
    }
}
