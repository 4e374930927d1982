//! A denial: what it tells of its counter, and which later steps that denies. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};

use smallvec::smallvec;

use crate::step::{FixedWindowTier, Lease, Outcome, Params, State, Step};
use crate::time::Micros;

/// What is known of a counter since it denied a step.
#[derive(Debug)]
pub(super) struct DeniedState {
    /// The instant of the step, by the counter's clock.
    at: Micros,
    /// The limit that the step was held against, as a fingerprint.
    limit: u64,
    known: Known,
    /// Denied hits that the counter counts and has not heard of.
    owed: u64,
    /// From when on it is worth nothing to remember this.
    ends: Micros,
}

#[derive(Debug)]
enum Known {
    /// All that the counter knows.
    State(State),
    /// Of a log: the answer to one hit, the same until a unit leaves.
    Answer(Outcome),
}

impl DeniedState {
    /// What `outcome`, a denial of `step`, tells. `None` if nothing that will hold: slots are given
    /// back at any time, by any instance; and where denied hits are counted, each changes what the
    /// next one meets, except in a fixed window of one tier, whose end they do not move.
    pub(super) fn of(step: &Step, outcome: &Outcome) -> Option<DeniedState> {
        let (known, ends) = match &step.params {
            Params::FixedWindow(tiers) if step.count_denied && tiers.len() > 1 => return None,
            Params::FixedWindow(_) => {
                let state = step.state_after(outcome)?;
                let ends = step.expires_at(&state);
                (Known::State(state), ends)
            }
            _ if step.count_denied => return None,
            Params::SlidingWindow(_) | Params::Gcra(_) => {
                let state = step.state_after(outcome)?;
                let ends = step.expires_at(&state);
                (Known::State(state), ends)
            }
            Params::Log(tiers) => {
                let denied = || outcome.tiers.iter().zip(tiers).filter(|(seen, _)| !seen.allowed);
                // More hits wait for another unit than the oldest, and so does a log that holds
                // more than its limit: the numbers of their denials change meanwhile.
                if step.hits != 1 || denied().any(|(seen, tier)| seen.a != tier.max) {
                    return None;
                }
                let ends = denied().map(|(seen, _)| Micros(seen.b)).max()?;
                (Known::Answer(outcome.clone()), ends)
            }
            Params::Slots(_) => return None,
        };
        Some(DeniedState { at: step.now, limit: limit(&step.params), known, owed: 0, ends })
    }

    /// What the counter would answer to `step`, if it is known that it would deny it. At most
    /// `at_most` after the denial.
    pub(super) fn answer(&mut self, step: &Step, at_most: Option<Micros>) -> Option<Outcome> {
        let takes = step.hits > 0 && !matches!(step.lease, Some(Lease::Close(_)));
        // A clock that was set back meets a state that was turned forward.
        if !takes || step.now < self.at || limit(&step.params) != self.limit {
            return None;
        }
        if at_most.is_some_and(|length| step.now >= self.at.saturating_add(length)) {
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
                    let owed = if same_window { self.owed } else { 0 };
                    self.owed = owed.saturating_add(step.hits.unsigned_abs());
                    self.ends = step.expires_at(&after);
                    *state = after;
                }
                Some(outcome)
            }
            Known::Answer(outcome) if step.hits == 1 && step.now < self.ends => {
                Some(outcome.clone())
            }
            Known::Answer(_) => None,
        }
    }

    /// The step that brings to the counter the denied hits that it has not heard of, if it would
    /// still count them at `now`. It is due before any step that could see the difference.
    pub(super) fn settle(&mut self, now: Micros) -> Option<Step> {
        let hits = i64::try_from(std::mem::take(&mut self.owed)).unwrap_or(i64::MAX);
        let Known::State(state) = &self.known else { return None };
        let start = start(state)?;
        if hits == 0 || now >= self.ends {
            return None;
        }
        let tier = FixedWindowTier { start, end: self.ends, max: 0 };
        let now = now.max(start);
        let params = Params::FixedWindow(smallvec![tier]);
        Some(Step { now, hits, count_denied: true, lease: None, params })
    }

    /// What [`settle`](DeniedState::settle) told has not reached the counter. Tells whether it is owed
    /// again: not, if this is of another window.
    pub(super) fn owe(&mut self, unheard: &Step) -> bool {
        let (Known::State(state), Params::FixedWindow(tiers)) = (&self.known, &unheard.params)
        else {
            return false;
        };
        if start(state) != tiers.first().map(|tier| tier.start) {
            return false;
        }
        self.owed = self.owed.saturating_add(unheard.hits.unsigned_abs());
        true
    }

    /// From when on it is worth nothing to remember this.
    pub(super) fn ends(&self) -> Micros {
        self.ends
    }
}

/// The window that a fixed window's only tier counts.
fn start(state: &State) -> Option<Micros> {
    match state {
        State::FixedWindow(tiers) => tiers.as_slice().first().map(|count| count.start),
        _ => None,
    }
}

/// A number that two machines share only if their limits are the same.
fn limit(params: &Params) -> u64 {
    let mut hash = DefaultHasher::new();
    std::mem::discriminant(params).hash(&mut hash);
    match params {
        Params::FixedWindow(tiers) => {
            for tier in tiers {
                (tier.end.saturating_sub(tier.start), tier.max).hash(&mut hash);
            }
        }
        Params::SlidingWindow(tiers) => {
            for tier in tiers {
                (tier.window, tier.max).hash(&mut hash);
            }
        }
        Params::Gcra(tiers) => {
            for tier in tiers {
                let full = tier.horizon.micros.saturating_sub(tier.now.0);
                (tier.parts, tier.one.micros, tier.one.part).hash(&mut hash);
                (full, tier.horizon.part).hash(&mut hash);
            }
        }
        Params::Log(tiers) | Params::Slots(tiers) => {
            for tier in tiers {
                (tier.window, tier.max).hash(&mut hash);
            }
        }
    }
    hash.finish()
}
