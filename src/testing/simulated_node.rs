//! A simulated Redis node: applies steps to counters one after another, and expires counters by its
//! own clock.

use std::collections::HashMap;

use crate::key::CounterKey;
use crate::step::{Lease, Outcome, State, Step};
use crate::time::Micros;

/// How long a counter is kept after its state has expired, as in the scripts.
const GRACE: Micros = Micros::SECOND;

/// The counters, and everything that was done to them.
#[derive(Default)]
pub(crate) struct SimulatedNode {
    counters: HashMap<CounterKey, Kept>,
    pub(crate) applied: Vec<Applied>,
}

struct Kept {
    state: Option<State>,
    expires: Micros,
}

/// One applied step, or one deletion.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    /// The instant of its arrival, by the clock of Redis.
    pub(crate) at: Micros,
    pub(crate) key: CounterKey,
    pub(crate) instance: usize,
    /// The step; `None` for a deletion.
    pub(crate) step: Option<Step>,
    pub(crate) allowed: bool,
    /// The state after it.
    pub(crate) state: Option<State>,
}

impl SimulatedNode {
    /// Applies `step` at `at`.
    pub(crate) fn apply(
        &mut self,
        at: Micros,
        instance: usize,
        key: CounterKey,
        step: &Step,
    ) -> Outcome {
        let kept = self.counters.entry(key).or_insert(Kept { state: None, expires: Micros::ZERO });
        if kept.expires <= at {
            kept.state = None;
        }
        let outcome = step.apply(&mut kept.state);
        if let Some(state) = &kept.state {
            let lives = step.expires_at(state).saturating_sub(step.now);
            kept.expires = kept.expires.max(at.saturating_add(lives).saturating_add(GRACE));
        }
        let (step, allowed, state) = (Some(step.clone()), outcome.allowed, kept.state.clone());
        self.applied.push(Applied { at, key, instance, step, allowed, state });
        outcome
    }

    /// Deletes a counter. Returns whether it existed.
    pub(crate) fn delete(&mut self, at: Micros, instance: usize, key: CounterKey) -> bool {
        let existed = self.counters.remove(&key).is_some();
        let (step, allowed, state) = (None, true, None);
        self.applied.push(Applied { at, key, instance, step, allowed, state });
        existed
    }

    /// The state of a counter.
    pub(crate) fn state(&self, key: &CounterKey) -> Option<State> {
        self.counters.get(key).and_then(|kept| kept.state.clone())
    }
}

impl Applied {
    /// The hits that the step added to the counter, negative if it gave hits back. A settlement
    /// has none.
    pub(crate) fn added(&self) -> i64 {
        match &self.step {
            Some(step) if matches!(step.lease, Some(Lease::Close(_))) => 0,
            Some(step) if self.allowed || step.count_denied => step.hits,
            _ => 0,
        }
    }
}
