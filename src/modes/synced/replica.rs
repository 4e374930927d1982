//! Replicas: one instance's copy of a counter, and its hits that it has not sent yet. Pure.

use super::delta::{add_delta, excess, includes, next_step};
use crate::algorithm;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::step::{Outcome, State, Step};
use crate::store::StoreError;
use crate::time::{ClockOffset, Micros};

/// The replica of one counter.
#[derive(Debug)]
pub(super) struct Replica {
    /// The number of this replica. Every replica of this instance has another one.
    pub(super) number: u64,
    limit: Limit,
    /// The longest time until all instances have received a hit.
    interval: Micros,
    /// The state that decides: the store's state at the last exchange, plus hits that passed since.
    state: Option<State>,
    /// The store's state at the last exchange. The difference to `state` is not sent yet.
    stored: Option<State>,
    /// The last call, while it is unknown whether it was applied.
    unconfirmed: Option<Unconfirmed>,
    /// The offset of the store's clock when it was last known.
    offset: ClockOffset,
    /// The latest instant of a decision, by the store's clock.
    latest: Micros,
    /// The instant of the last request, by the local clock.
    last_used: Micros,
    /// The instant of the next exchange, by the local clock; `None` during an exchange.
    pub(super) due: Option<Micros>,
    /// Hits over the limit at the last exchange.
    excess: u64,
}

/// A call whose outcome is unknown.
#[derive(Clone, Debug)]
struct Unconfirmed {
    /// The store's state if the call was applied.
    stored: Option<State>,
    /// Whether the call gave hits back.
    gives_back: bool,
}

/// One call of an exchange.
#[derive(Debug)]
pub(super) struct SyncCall {
    /// The step for the store.
    pub(super) step: Step,
    /// The store's state before and after the step, without the hits of other instances.
    before: Option<State>,
    after: Option<State>,
    /// Whether the step sends hits; otherwise it peeks.
    sends: bool,
    /// Whether the exchange needs another call.
    pub(super) more: bool,
}

/// The result of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyncResult {
    /// Hits over the limit that were unknown before.
    pub(super) overrun: u64,
}

impl Replica {
    /// A replica from the outcome of the first step; `None` if the outcome does not have the state.
    pub(super) fn new(
        limit: &Limit,
        interval: Micros,
        step: &Step,
        outcome: &Outcome,
        local: Micros,
        number: u64,
    ) -> Option<Replica> {
        let state = Some(step.state_after(outcome)?);
        Some(Replica {
            number,
            limit: limit.clone(),
            interval,
            excess: excess(limit, step.now, &state),
            state: state.clone(),
            stored: state,
            unconfirmed: None,
            offset: ClockOffset::between(local, step.now),
            latest: step.now,
            last_used: local,
            due: Some(local.saturating_add(pause(interval))),
        })
    }

    /// Decides on the replica's state. Also returns whether the replica is due sooner than before.
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
            self.offset = ClockOffset::between(local, now);
        }
        self.interval = interval;
        self.last_used = self.last_used.max(local);
        let due = local.saturating_add(pause(interval));
        let sooner = self.due.is_some_and(|known| due < known);
        if sooner {
            self.due = Some(due);
        }
        let now = now.unwrap_or_else(|| self.now(local));
        let step = algorithm::plan(limit, hits, now);
        self.latest = self.latest.max(step.now);
        let outcome = step.apply(&mut self.state);
        (algorithm::report(limit, &step, &outcome), sooner)
    }

    /// Applies a step that gives hits back.
    pub(super) fn give_back(&mut self, step: &Step) {
        step.apply(&mut self.state);
    }

    /// The store's clock at `local`, estimated from the last known offset.
    pub(super) fn now(&self, local: Micros) -> Micros {
        self.offset.remote(local)
    }

    /// Whether the store has all hits.
    pub(super) fn is_stored(&self, now: Micros) -> bool {
        self.unconfirmed.is_none()
            && next_step(&self.limit, now, &self.stored, &self.state).is_none()
    }

    /// Whether there was no request for two intervals, or for `at_most`.
    pub(super) fn is_idle(&self, local: Micros, at_most: Micros) -> bool {
        let since = local.saturating_sub(self.last_used);
        since >= self.interval.saturating_add(self.interval).min(at_most)
    }

    /// The next call of an exchange. It counts as sent, so a dropped call stays unconfirmed.
    pub(super) fn next_call(&mut self, now: Micros, local: Micros) -> SyncCall {
        self.offset = ClockOffset::between(local, now);
        let now = now.max(self.latest);
        let peek = || algorithm::plan(&self.limit, 0, now);
        if let Some(unconfirmed) = &self.unconfirmed {
            // A peek changes nothing, and shows whether the last step was applied.
            let (before, after) = (self.stored.clone(), unconfirmed.stored.clone());
            return SyncCall { step: peek(), before, after, sends: false, more: true };
        }
        let before = self.stored.clone();
        let Some(step) = next_step(&self.limit, now, &self.stored, &self.state) else {
            let after = before.clone();
            return SyncCall { step: peek(), before, after, sends: false, more: false };
        };
        let mut after = before.clone();
        step.apply(&mut after);
        let more = next_step(&self.limit, now, &after, &self.state).is_some();
        let gives_back = step.hits < 0;
        self.unconfirmed = Some(Unconfirmed { stored: after.clone(), gives_back });
        SyncCall { step, before, after, sends: true, more }
    }

    /// Completes a call.
    pub(super) fn complete(
        &mut self,
        call: &SyncCall,
        result: Result<&Outcome, StoreError>,
    ) -> SyncResult {
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => {
                if call.sends && !error.may_have_run() {
                    self.unconfirmed = None;
                }
                return SyncResult { overrun: 0 };
            }
        };
        // Requests may have been decided since, at later instants.
        let now = call.step.now.max(self.latest);
        let Some(state) = call.step.state_after(outcome).map(Some) else {
            return SyncResult { overrun: 0 };
        };
        let applied = match self.unconfirmed.take() {
            // If the step was not applied, the store has less, unless others counted as much.
            Some(unconfirmed) if !call.sends => {
                unconfirmed.gives_back || includes(&self.limit, now, &state, &call.after)
            }
            _ => true,
        };
        let had = if applied { &call.after } else { &call.before };
        self.state = add_delta(&self.limit, now, &state, &self.state, had);
        let excess = excess(&self.limit, now, &state);
        let overrun = excess.saturating_sub(self.excess);
        self.excess = excess;
        self.stored = state;
        SyncResult { overrun }
    }

    /// The instant of the next exchange, by the local clock.
    pub(super) fn next_due(&self, local: Micros, failed: bool, retry_delay: Micros) -> Micros {
        let pause = pause(self.interval);
        let length = if failed { pause.min(retry_delay) } else { pause };
        local.saturating_add(length)
    }
}

/// The time between exchanges. A hit waits one pause until it is sent, and another until the other
/// instances receive it.
fn pause(interval: Micros) -> Micros {
    Micros(interval.0 / 2)
}
