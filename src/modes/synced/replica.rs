//! A replica: what one instance knows of a counter, and what it has not told yet. Pure.

use super::delta::{carry, covers, excess, part};
use crate::algorithm;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::step::{Outcome, State, Step};
use crate::store::StoreError;
use crate::time::Micros;

/// One counter, as this instance knows it.
#[derive(Debug)]
pub(super) struct Replica {
    limit: Limit,
    /// How long it may take until all instances know of a hit.
    interval: Micros,
    /// All that is known: what the store had when it was asked last, and what has happened here
    /// since. This decides.
    known: Option<State>,
    /// What the store is known to have: `known` less this is what it must be told.
    told: Option<State>,
    /// What the store has if the last step reached it, while nobody knows whether it did.
    doubt: Option<Unconfirmed>,
    /// The counter's clock less ours, in microseconds, when it could be told last.
    offset: i64,
    /// The latest instant that anything was decided for, by the counter's clock.
    latest: Micros,
    /// When it was asked last, by our clock.
    asked: Micros,
    /// When it is due for an exchange, by our clock.
    pub(super) due: Micros,
    /// How far the counter was above its limit when that was seen last.
    excess: u64,
}

#[derive(Clone, Debug)]
struct Unconfirmed {
    told: Option<State>,
    gives_back: bool,
}

/// One visit to the store for the sake of a replica.
#[derive(Debug)]
pub(super) struct Visit {
    /// What the store is to do.
    pub(super) step: Step,
    /// What the store had before and has after it, less what others do.
    before: Option<State>,
    after: Option<State>,
    /// The step brings something, rather than to look.
    tells: bool,
    /// Another one is due at once.
    pub(super) again: bool,
}

/// How an exchange went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyncResult {
    /// Hits above the limit that were not known of before.
    pub(super) overrun: u64,
}

impl Replica {
    /// Of a counter that `outcome` of `step` tells of; `None` if it tells too little.
    pub(super) fn new(
        limit: &Limit,
        interval: Micros,
        step: &Step,
        outcome: &Outcome,
        local: Micros,
    ) -> Option<Replica> {
        let state = Some(step.state_after(outcome)?);
        Some(Replica {
            limit: limit.clone(),
            interval,
            excess: excess(limit, step.now, &state),
            known: state.clone(),
            told: state,
            doubt: None,
            offset: offset(step.now, local),
            latest: step.now,
            asked: local,
            due: local.saturating_add(pause(interval)),
        })
    }

    /// Decides by what is known. Tells whether the replica is due sooner than it was.
    pub(super) fn decide(
        &mut self,
        limit: &Limit,
        interval: Micros,
        hits: i64,
        now: Option<Micros>,
        local: Micros,
    ) -> (Decision, bool) {
        if self.limit != *limit {
            self.limit = limit.clone();
        }
        if let Some(now) = now {
            self.offset = offset(now, local);
        }
        self.interval = interval;
        self.asked = self.asked.max(local);
        let due = local.saturating_add(pause(interval));
        let sooner = due < self.due;
        self.due = self.due.min(due);
        let now = now.unwrap_or_else(|| self.now(local));
        let step = algorithm::plan(limit, hits, now);
        self.latest = self.latest.max(step.now);
        let outcome = step.apply(&mut self.known);
        (algorithm::report(limit, &step, &outcome), sooner)
    }

    /// Applies a step that gives back.
    pub(super) fn give_back(&mut self, step: &Step) {
        step.apply(&mut self.known);
    }

    /// Another request of ours visited the store before it knew of this replica.
    pub(super) fn hear_of(&mut self, step: &Step, outcome: &Outcome) {
        let Some(state) = step.state_after(outcome) else { return };
        let state = Some(state);
        // Answers may overtake each other: the one that tells more is the later one.
        if self.doubt.is_none() && covers(&self.limit, step.now, &state, &self.told) {
            let now = self.latest.max(step.now);
            self.known = carry(&self.limit, now, &state, &self.known, &self.told);
            self.told = state;
        }
    }

    /// The counter's clock, as far as it can be told.
    pub(super) fn now(&self, local: Micros) -> Micros {
        Micros(local.0.saturating_add_signed(self.offset))
    }

    /// The store need not hear of anything.
    pub(super) fn is_clean(&self, now: Micros) -> bool {
        self.doubt.is_none() && part(&self.limit, now, &self.told, &self.known).is_none()
    }

    /// Nobody has asked since an interval and a bit.
    pub(super) fn is_idle(&self, local: Micros, at_most: Micros) -> bool {
        let since = local.saturating_sub(self.asked);
        since >= self.interval.saturating_add(self.interval).min(at_most)
    }

    /// The next visit of an exchange. It is taken to be under way from here on: whoever drops it
    /// leaves a doubt.
    pub(super) fn visit(&mut self, now: Micros, local: Micros) -> Visit {
        self.offset = offset(now, local);
        let now = now.max(self.latest);
        let look = || algorithm::plan(&self.limit, 0, now);
        if let Some(doubt) = &self.doubt {
            // A look does no harm if it gets lost too, and tells what became of the last step.
            let (before, after) = (self.told.clone(), doubt.told.clone());
            return Visit { step: look(), before, after, tells: false, again: true };
        }
        let before = self.told.clone();
        let Some(step) = part(&self.limit, now, &self.told, &self.known) else {
            let after = before.clone();
            return Visit { step: look(), before, after, tells: false, again: false };
        };
        let mut after = before.clone();
        step.apply(&mut after);
        let again = part(&self.limit, now, &after, &self.known).is_some();
        self.doubt = Some(Unconfirmed { told: after.clone(), gives_back: step.hits < 0 });
        Visit { step, before, after, tells: true, again }
    }

    /// What the store said.
    pub(super) fn hear(
        &mut self,
        visit: &Visit,
        answer: Result<&Outcome, StoreError>,
    ) -> SyncResult {
        let outcome = match answer {
            Ok(outcome) => outcome,
            Err(error) => {
                if visit.tells && !error.may_have_run() {
                    self.doubt = None;
                }
                return SyncResult { overrun: 0 };
            }
        };
        // What happened meanwhile counts from its own instants on.
        let now = visit.step.now.max(self.latest);
        let Some(state) = visit.step.state_after(outcome).map(Some) else {
            return SyncResult { overrun: 0 };
        };
        let arrived = match self.doubt.take() {
            // If it had not arrived, and nobody else had counted as much, the store would have less.
            Some(doubt) if !visit.tells => {
                doubt.gives_back || covers(&self.limit, now, &state, &visit.after)
            }
            _ => true,
        };
        let had = if arrived { &visit.after } else { &visit.before };
        self.known = carry(&self.limit, now, &state, &self.known, had);
        let excess = excess(&self.limit, now, &state);
        let overrun = excess.saturating_sub(self.excess);
        self.excess = excess;
        self.told = state;
        SyncResult { overrun }
    }

    /// When to exchange next, by our clock.
    pub(super) fn next_due(&self, local: Micros, failed: bool, again: Micros) -> Micros {
        let pause = pause(self.interval);
        let length = if failed { pause.min(again) } else { pause };
        local.saturating_add(length)
    }
}

/// From one exchange to the next: a hit waits for one pause until it is told, and for another until
/// the others ask.
fn pause(interval: Micros) -> Micros {
    Micros(interval.0 / 2)
}

fn offset(now: Micros, local: Micros) -> i64 {
    i64::try_from(i128::from(now.0) - i128::from(local.0)).unwrap_or(0)
}
