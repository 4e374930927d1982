//! Origins of the hits of a step: a decision of the store, another instance, or a span of a bucket.

use weir::limit::Limit;
use weir::step::{
    FixedWindowTier, GcraTier, GcraTime, INTEGER_END, SlidingWindowTier, State, Step, StepParams,
};
use weir::time::Micros;

use super::walk::Rng;

/// Where the hits of a step come from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// The step decides them by the limit.
    Decided,
    /// Another instance allowed them, in windows given by two bits per tier.
    Elsewhere(u64),
    /// An instance draws them ahead of requests as a span of a bucket, or returns one.
    Span(Vec<Span>),
}

/// One tier of a span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    length: GcraTime,
    /// The latest arrival time that a draw may cause, or the only one to which a return applies.
    /// The last instant limits neither.
    edge: GcraTime,
}

impl Span {
    fn edge_of_return(&self) -> Option<GcraTime> {
        (self.edge != GcraTime::LAST).then_some(self.edge)
    }
}

impl Origin {
    /// Changes a planned step to one of this origin.
    pub(crate) fn change(&self, step: &mut Step) {
        match self {
            Origin::Decided => {}
            Origin::Elsewhere(windows) => passed_elsewhere(step, *windows),
            Origin::Span(spans) => {
                let StepParams::Gcra(tiers) = &mut step.params else { return };
                for (tier, span) in tiers.iter_mut().zip(spans) {
                    tier.cost = span.length;
                    if step.hits > 0 {
                        (tier.latest_allowed, tier.latest_denied) = (span.edge, span.edge);
                    } else {
                        tier.refund_only_at = span.edge_of_return();
                    }
                }
            }
        }
    }

    /// A span of a counter in `state`: often exactly at the edge at which it can be drawn, or
    /// returned. No span for limits that are no buckets.
    pub(crate) fn span(
        limit: &Limit,
        hits: i64,
        now: Micros,
        state: &Option<State>,
        rng: &mut Rng,
    ) -> Origin {
        let step = weir::algorithm::plan(limit, hits, now);
        let peek = weir::algorithm::plan(limit, 0, now).apply(&mut state.clone());
        let StepParams::Gcra(tiers) = &step.params else { return Origin::Decided };
        let span = |(tier, arrival): (&GcraTier, GcraTime)| {
            let parts = tier.parts;
            let level = GcraTime { micros: arrival.micros - tier.now.0, part: arrival.part };
            let length = match rng.below(5) {
                0 => tier.cost,
                1 => level,
                2 => GcraTime { micros: rng.below(level.micros + 2), part: rng.below(parts) },
                3 => GcraTime { micros: 0, part: rng.below(parts) },
                _ => GcraTime { micros: rng.of_any_size(1 << 52), part: rng.below(parts) },
            };
            let near = if hits > 0 { sum(arrival, length, parts) } else { arrival };
            let edge = match rng.below(8) {
                0 => GcraTime::LAST,
                1 => GcraTime { part: near.part.saturating_sub(1), ..near },
                2 => GcraTime { part: (near.part + 1).min(parts - 1), ..near },
                3 => GcraTime { micros: rng.of_any_size(1 << 52), part: rng.below(parts) },
                _ => near,
            };
            Span { length, edge }
        };
        let arrivals = peek.tiers.iter().map(|seen| seen.arrival_time());
        Origin::Span(tiers.iter().zip(arrivals).map(span).collect())
    }
}

/// `a + b`, at most the last instant that is exact in a double.
fn sum(a: GcraTime, b: GcraTime, parts: u64) -> GcraTime {
    let part = a.part + b.part;
    let micros = (a.micros + b.micros + part / parts).min(INTEGER_END - 2);
    GcraTime { micros, part: part % parts }
}

/// Chooses the window of each tier: the current one, one of the two before it, or one that ended
/// long ago. A bucket gets no limit.
fn passed_elsewhere(step: &mut Step, mut windows: u64) {
    let mut begun = |start: Micros, window: Micros| {
        let back = windows & 3;
        windows >>= 2;
        let back = if back == 3 { u64::MAX } else { window.0.saturating_mul(back) };
        start.saturating_sub(Micros(back))
    };
    match &mut step.params {
        StepParams::FixedWindow(tiers) => {
            for tier in tiers {
                let window = tier.end.saturating_sub(tier.start);
                let start = begun(tier.start, window);
                *tier = FixedWindowTier { start, max: FixedWindowTier::ALREADY_ADMITTED, ..*tier };
            }
        }
        StepParams::SlidingWindow(tiers) => {
            for tier in tiers {
                let start = begun(tier.start, tier.window);
                *tier =
                    SlidingWindowTier { start, max: SlidingWindowTier::ALREADY_ADMITTED, ..*tier };
            }
        }
        StepParams::Gcra(tiers) => {
            for tier in tiers {
                tier.latest_denied = GcraTime::LAST;
            }
        }
        StepParams::Log(_) | StepParams::Slots(_) => return,
    }
    step.count_denied = true;
}
