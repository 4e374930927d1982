//! Denied states: the state of a counter after a denial, and the later steps that it denies. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};

use smallvec::smallvec;

use crate::step::{FixedWindowTier, Outcome, State, Step, StepParams};
use crate::time::Micros;

/// The state of a counter since it denied a step.
#[derive(Debug)]
pub(super) struct DeniedState {
    /// The instant of the denied step, by the counter's clock.
    at: Micros,
    /// A fingerprint of the limit of the denied step.
    limit_fingerprint: u64,
    known: Known,
    /// Denied hits that the counter must count, and that were not reported to it yet.
    unreported: u64,
    /// The window that counts them, if this is the state of a fixed window of one tier.
    window: Option<FixedWindowTier>,
    /// The instant after which this state denies nothing.
    ends: Micros,
}

#[derive(Debug)]
enum Known {
    /// The whole state of the counter.
    State(State),
    /// For a log, the outcome of one hit, which is the same until an entry expires.
    Outcome(Outcome),
}

impl DeniedState {
    /// The state in `outcome`, which is a denial of `step`. `None` if it would not stay valid:
    /// slots may be released at any time, by any instance. Counted denied hits change the next
    /// outcome, except in a fixed window of one tier, whose end they do not move.
    pub(super) fn new(step: &Step, outcome: &Outcome) -> Option<DeniedState> {
        let (known, ends) = match &step.params {
            StepParams::FixedWindow(tiers) if step.count_denied && tiers.len() > 1 => return None,
            StepParams::FixedWindow(tiers) => {
                let state = step.state_after(outcome)?;
                // The step does not know the end of a later window, which counts the hits.
                let is_late = start(&state) != tiers.first().map(|tier| tier.start);
                if step.count_denied && is_late {
                    return None;
                }
                (Known::State(state), tiers.iter().map(|tier| tier.end).max()?)
            }
            _ if step.count_denied => return None,
            StepParams::SlidingWindow(_) | StepParams::Gcra(_) => {
                let state = step.state_after(outcome)?;
                let ends = step.expires_at(&state);
                (Known::State(state), ends)
            }
            StepParams::Log(tiers) => {
                let denied = || outcome.tiers.iter().zip(tiers).filter(|(seen, _)| !seen.allowed);
                // A denial of several hits, or of a log over its limit, waits for more than the
                // oldest entry. Its numbers change before it fits.
                if step.hits != 1 || denied().any(|(seen, tier)| seen.units().0 != tier.max) {
                    return None;
                }
                let ends = denied().map(|(seen, _)| seen.units().1).max()?;
                (Known::Outcome(outcome.clone()), ends)
            }
            StepParams::Slots(_) => return None,
        };
        Some(DeniedState {
            at: step.now,
            limit_fingerprint: limit_fingerprint(&step.params),
            known,
            unreported: 0,
            window: only_window(step),
            ends,
        })
    }

    /// The counter's outcome of `step`, if that is a denial. `None` if the store must decide, or if
    /// this state is older than `max_age`.
    pub(super) fn deny(&mut self, step: &Step, max_age: Micros) -> Option<Outcome> {
        let takes = step.hits != 0 && !step.gives_back();
        // After the clock was set back, the state may be of a later window than the step.
        if !takes || step.now < self.at || limit_fingerprint(&step.params) != self.limit_fingerprint
        {
            return None;
        }
        if step.now >= self.at.saturating_add(max_age) {
            return None;
        }
        match &mut self.known {
            Known::State(state) => {
                let mut after = Some(state.clone());
                let outcome = step.apply(&mut after);
                if outcome.allowed {
                    return None;
                }
                if step.count_denied
                    && let Some(after) = after
                {
                    let same_window = start(&after) == start(state);
                    let unreported = if same_window { self.unreported } else { 0 };
                    self.unreported = unreported.saturating_add(step.hits.unsigned_abs());
                    self.window = only_window(step);
                    self.ends = self.window.map_or(self.ends, |window| window.end);
                    *state = after;
                }
                Some(outcome)
            }
            Known::Outcome(outcome) if step.hits == 1 && step.now < self.ends => {
                Some(outcome.clone())
            }
            Known::Outcome(_) => None,
        }
    }

    /// The step that reports the unreported hits, if the counter would still count them at `now`. It
    /// precedes every step whose outcome depends on them.
    pub(super) fn take_unreported(&mut self, now: Micros) -> Option<Step> {
        let hits = i64::try_from(std::mem::take(&mut self.unreported)).unwrap_or(i64::MAX);
        let window = self.window?;
        if hits == 0 || now >= window.end {
            return None;
        }
        let now = now.max(window.start);
        let params = StepParams::FixedWindow(smallvec![FixedWindowTier { max: 0, ..window }]);
        Some(Step { now, hits, count_denied: true, lease: None, params })
    }

    /// Restores a report from [`take_unreported`](DeniedState::take_unreported) that was not
    /// applied. Returns false if this is the state of another window.
    pub(super) fn restore_unreported(&mut self, denied: &Step) -> bool {
        let (Known::State(state), StepParams::FixedWindow(tiers)) = (&self.known, &denied.params)
        else {
            return false;
        };
        if start(state) != tiers.first().map(|tier| tier.start) {
            return false;
        }
        self.unreported = self.unreported.saturating_add(denied.hits.unsigned_abs());
        true
    }

    /// The instant after which this state denies nothing.
    pub(super) fn ends(&self) -> Micros {
        self.ends
    }
}

/// The start of the current window, for a fixed window of one tier.
fn start(state: &State) -> Option<Micros> {
    match state {
        State::FixedWindow(tiers) => tiers.as_slice().first().map(|count| count.start),
        _ => None,
    }
}

/// The window of a step on a fixed window of one tier.
fn only_window(step: &Step) -> Option<FixedWindowTier> {
    match &step.params {
        StepParams::FixedWindow(tiers) if tiers.len() == 1 => tiers.first().copied(),
        _ => None,
    }
}

/// A fingerprint of a limit.
fn limit_fingerprint(params: &StepParams) -> u64 {
    let mut hash = DefaultHasher::new();
    std::mem::discriminant(params).hash(&mut hash);
    match params {
        StepParams::FixedWindow(tiers) => {
            for tier in tiers {
                (tier.end.saturating_sub(tier.start), tier.max).hash(&mut hash);
            }
        }
        StepParams::SlidingWindow(tiers) => {
            for tier in tiers {
                (tier.window, tier.max).hash(&mut hash);
            }
        }
        StepParams::Gcra(tiers) => {
            for tier in tiers {
                let full = tier.latest_allowed.micros.saturating_sub(tier.now.0);
                (tier.parts, tier.emission_interval.micros, tier.emission_interval.part)
                    .hash(&mut hash);
                (full, tier.latest_allowed.part).hash(&mut hash);
            }
        }
        StepParams::Log(tiers) | StepParams::Slots(tiers) => {
            for tier in tiers {
                (tier.window, tier.max).hash(&mut hash);
            }
        }
    }
    hash.finish()
}
