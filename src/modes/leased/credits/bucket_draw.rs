//! Draws of a bucket for waiting requests: which of them fit as of their arrival, and the step that
//! draws their credits. Pure.
//!
//! Mode exact decides each request as of the instant at which it arrived. Requests that wait for one
//! refill arrived at different instants. So they are planned one after another, on the last known
//! state of the store. A request that does not fit at its own instant is left out.
//!
//! An example, in microseconds: a bucket holds two hits, and each takes 10 to drain. So the piece of a
//! request may end 20 after the request. The last known state of the store is 1015.
//!
//! | request at | piece, if it fits |
//! | --- | --- |
//! | 1000 | it would end at 1025, which is after 1020 |
//! | 1006 | 1015 to 1025 |
//! | 1008 | it would end at 1035, which is after 1028 |
//! | 1050 | 1050 to 1060 |
//!
//! One step can move the store's state only once, so it draws the span from 1015 to 1060. That span
//! includes the time from 1025 to 1050, in which the bucket is empty. This time has drained when the
//! last request arrives. So the store's state, less the unspent spans of a single instance, is the
//! state of mode exact after every request.
//!
//! Other instances draw too, so the store's state may be later than known. The span and all its pieces
//! then begin later. If the state is 1016, the piece of the request at 1006 ends at 1026, as late as it
//! may. If the state is 1017, the store denies the step.

use smallvec::SmallVec;

use super::{BucketTier, Credits};
use crate::modes::leased::leased_limit::LeasedLimit;
use crate::step::{GcraTime, State, Step, StepParams};
use crate::time::Micros;

/// An end that no span reaches, in parts.
const NEVER: i128 = 1 << 120;

/// A draw of a bucket that is being planned.
pub(in crate::modes::leased) struct BucketDraw {
    tiers: SmallVec<[TierDraw; 1]>,
    /// The instant of the step.
    at: Micros,
    /// The latest instant of a request that was taken.
    latest: Micros,
    /// Hits of the requests that were taken.
    hits: u64,
}

/// One tier of a draw. All lengths and instants are in its parts of a microsecond.
struct TierDraw {
    /// The spans of this instance, and one that begins at `start` and never ends.
    tier: BucketTier,
    /// The start of the drawn span, if the store's state is as known.
    start: i128,
    /// The end of the drawn span, if the store's state is as known.
    end: i128,
    /// How much later the drawn span may begin, so that every request still fits.
    slack: i128,
}

impl BucketDraw {
    /// A draw as of `at` of nothing, on the last known state of the store. `None` if `credits` are
    /// those of windows.
    pub(in crate::modes::leased) fn new(
        credits: &Credits,
        known: Option<&State>,
        at: Micros,
    ) -> Option<BucketDraw> {
        let Credits::Bucket(tiers) = credits else { return None };
        let known = match known {
            Some(State::Gcra(tiers)) => tiers.as_slice(),
            _ => &[],
        };
        let draw = |(index, tier): (usize, &BucketTier)| {
            let known = known.get(index).map_or(0, |known| known.to_parts(tier.parts));
            let start = known.max(tier.now(at));
            let mut tier = tier.clone();
            tier.spans.add(start, NEVER);
            TierDraw { tier, start, end: start, slack: NEVER }
        };
        let tiers = tiers.iter().enumerate().map(draw).collect();
        Some(BucketDraw { tiers, at, latest: at, hits: 0 })
    }

    /// Takes `hits` of a request at `now` if they fit as of that instant, in addition to those that
    /// were taken before. Returns whether they fit.
    pub(in crate::modes::leased) fn take_if_fits(&mut self, hits: u64, now: Micros) -> bool {
        let fits = self.tiers.iter().all(|draw| draw.tier.serves(hits, now));
        if fits {
            self.take(hits, now);
        }
        fits
    }

    /// Takes `hits` of a request at `now`. The store denies the step if they do not fit.
    pub(in crate::modes::leased) fn take(&mut self, hits: u64, now: Micros) {
        for draw in &mut self.tiers {
            let (cost, at) = (draw.tier.cost(hits), draw.tier.now(now));
            // The last span never ends, so there is always as much.
            let end = draw.tier.spans.end_of(cost, at).unwrap_or(draw.end);
            draw.tier.spans.spend(cost, at);
            if end > draw.start {
                draw.end = draw.end.max(end);
                draw.slack = draw.slack.min(at + draw.tier.full - end);
            }
        }
        self.hits = self.hits.saturating_add(hits);
        self.latest = self.latest.max(now);
    }

    /// Hits of the requests that were taken.
    pub(in crate::modes::leased) fn hits(&self) -> u64 {
        self.hits
    }

    /// The latest instant of a request that was taken, or the instant of the step.
    pub(in crate::modes::leased) fn latest(&self) -> Micros {
        self.latest
    }

    /// Credits that fit at the latest instant in addition.
    pub(in crate::modes::leased) fn room(&self) -> u64 {
        let room = self.tiers.iter().map(|draw| {
            let end = draw.tier.now(self.latest) + draw.tier.full;
            super::hits((end - draw.end).max(0), draw.tier.one)
        });
        room.min().unwrap_or(0)
    }

    /// The step that draws `credits`, of which `extra` are for later requests.
    pub(in crate::modes::leased) fn step(
        &self,
        limit: &LeasedLimit,
        credits: u64,
        extra: u64,
    ) -> Step {
        let mut step = limit.plan(i64::try_from(credits).unwrap_or(i64::MAX), self.at);
        let StepParams::Gcra(planned) = &mut step.params else { return step };
        for (draw, planned) in self.tiers.iter().zip(planned) {
            let parts = draw.tier.parts;
            let end = draw.end + draw.tier.cost(extra);
            let most = draw.tier.now(self.latest) + draw.tier.full;
            planned.cost = GcraTime::from_parts(end - draw.start, parts);
            planned.latest_allowed = GcraTime::from_parts(most.min(end + draw.slack), parts);
            planned.latest_denied = planned.latest_allowed;
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Algorithm, Limit, Tier};
    use crate::step::TierStates;

    /// A bucket of 2 hits, in which one hit takes 10 us.
    fn limit() -> LeasedLimit {
        let tier = Tier { requests: 100, window: Micros(1_000), burst: 2, calendar: None };
        let algorithm = Algorithm::LeakyBucket;
        let limit = Limit { algorithm, tiers: Box::new([tier]), count_denied: false };
        LeasedLimit::of(&limit).expect("buckets have credits")
    }

    fn state(micros: u64) -> Option<State> {
        Some(State::Gcra(TierStates::One(GcraTime { micros, part: 0 })))
    }

    /// The store's state after the step, if it allows the step.
    fn applied(step: &Step, before: u64) -> Option<u64> {
        let mut state = state(before);
        let outcome = step.apply(&mut state);
        outcome.allowed.then(|| outcome.tiers[0].arrival_time().micros)
    }

    #[test]
    fn each_request_fits_as_of_its_arrival() {
        let limit = limit();
        let credits = Credits::none(&limit);
        let mut draw = BucketDraw::new(&credits, state(1_015).as_ref(), Micros(1_000))
            .expect("credits of a bucket");
        // The state allows no hit before 1005, and a second one from 1015.
        let at = [1_000, 1_006, 1_008, 1_050];
        let taken = at.map(|at| draw.take_if_fits(1, Micros(at)));
        assert_eq!(taken, [false, true, false, true]);
        assert_eq!((draw.hits(), draw.latest(), draw.room()), (2, Micros(1_050), 1));
        // The bucket is empty from 1025 to 1050.
        let step = draw.step(&limit, 2, 0);
        assert_eq!(applied(&step, 1_015), Some(1_060));
        assert_eq!(applied(&draw.step(&limit, 3, 1), 1_015), Some(1_070));
        // The second request fits if its piece ends until 1026.
        assert_eq!(applied(&step, 1_016), Some(1_061));
        assert_eq!(applied(&step, 1_017), None);
    }

    #[test]
    fn unspent_spans_are_used_first() {
        let limit = limit();
        let mut credits = Credits::none(&limit);
        let drawn = limit.plan(1, Micros(1_000));
        let outcome = drawn.apply(&mut None);
        credits.add(&limit, &drawn, &outcome);
        let mut draw = BucketDraw::new(&credits, state(1_010).as_ref(), Micros(1_004))
            .expect("credits of a bucket");
        assert!(draw.take_if_fits(1, Micros(1_004)));
        let step = draw.step(&limit, 1, 0);
        assert_eq!(applied(&step, 1_010), Some(1_014), "6 of 10 us are unspent");
        assert_eq!(applied(&step, 1_020), Some(1_024), "the limit at 1004 is 1024");
        assert_eq!(applied(&step, 1_021), None);
    }

    #[test]
    fn a_request_that_does_not_fit_is_left_to_the_store() {
        let limit = limit();
        let credits = Credits::none(&limit);
        let mut draw = BucketDraw::new(&credits, state(1_015).as_ref(), Micros(1_000))
            .expect("credits of a bucket");
        draw.take(1, Micros(1_000));
        let step = draw.step(&limit, 1, 0);
        assert_eq!((applied(&step, 1_015), draw.room()), (None, 0));
        assert_eq!(applied(&step, 1_010), Some(1_020), "hits were given back");
    }

    #[test]
    fn windows_have_no_draw_of_a_bucket() {
        let window = Limit::fixed_window(10, Micros::SECOND);
        let limit = LeasedLimit::of(&Limit { count_denied: false, ..window });
        let credits = Credits::none(&limit.expect("windows have credits"));
        assert!(BucketDraw::new(&credits, None, Micros::SECOND).is_none());
    }
}
