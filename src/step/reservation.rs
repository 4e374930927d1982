//! Reservations: hits charged before their actual number is known, until settled.
//!
//! Reservations are stored next to the state of any algorithm except concurrency, so a counter
//! without reservations costs nothing more.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::tier::{self, BucketCost, Charge};
use super::{Lease, LeaseId, Outcome, State, Step, StepParams, entries};
use crate::time::Micros;

/// The most open reservations per counter. One more drops the oldest, whose charge stays as if it
/// had timed out.
pub const RESERVATIONS_MAX: usize = 10_000;

/// A counter with open reservations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The counter's own state, with the charges of the reservations.
    pub(super) counted: Option<State>,
    /// The open reservations, oldest first.
    pub(super) open: VecDeque<Reservation>,
    /// The instant from which no reservation can be settled.
    pub(super) until: Micros,
}

/// One reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    id: LeaseId,
    /// The instant of the charge.
    at: Micros,
    /// The instant from which it cannot be settled.
    until: Micros,
    /// The charged hits.
    hits: u64,
    /// Cost per tier, where it depends on more than the number of hits.
    costs: SmallVec<[BucketCost; 1]>,
}

impl Reservation {
    fn charge(&self, tier: usize) -> Charge {
        let cost = self.costs.get(tier).copied().unwrap_or_default();
        Charge { at: self.at, hits: self.hits, cost }
    }
}

/// Applies a step to any algorithm except concurrency, with its lease.
pub(super) fn apply(step: &Step, state: &mut Option<State>) -> Outcome {
    if let Some(State::Reserved(reserved)) = state
        && reserved.counted.as_ref().is_some_and(|counted| !belongs(&step.params, counted))
    {
        // The state counts as empty, and so do the charges of its reservations.
        let mut fresh = None;
        let outcome = apply(step, &mut fresh);
        if fresh.is_some() {
            *state = fresh;
        }
        return outcome;
    }
    match step.lease {
        Some(Lease::Open { id, until }) if step.hits > 0 => reserve(step, state, id, until),
        Some(Lease::Close(id)) => settle(step, state, id),
        _ => count(step, counted(state)),
    }
}

/// Whether the state has the kind of `params` and as many tiers.
fn belongs(params: &StepParams, state: &State) -> bool {
    match params {
        StepParams::FixedWindow(tiers) => tier::kept(tiers, state).is_some(),
        StepParams::SlidingWindow(tiers) => tier::kept(tiers, state).is_some(),
        StepParams::Gcra(tiers) => tier::kept(tiers, state).is_some(),
        StepParams::Log(_) => {
            matches!(state, State::Entries(entries) if entries.leases.is_none())
        }
        StepParams::Slots(_) => false,
    }
}

/// The counter's own state, with or without reservations.
fn counted(state: &mut Option<State>) -> &mut Option<State> {
    if matches!(state, Some(State::Reserved(_))) {
        match state {
            Some(State::Reserved(reserved)) => &mut reserved.counted,
            _ => unreachable!("matched just now"),
        }
    } else {
        state
    }
}

fn count(step: &Step, state: &mut Option<State>) -> Outcome {
    match &step.params {
        StepParams::FixedWindow(tiers) => tier::apply(step, tiers, state),
        StepParams::SlidingWindow(tiers) => tier::apply(step, tiers, state),
        StepParams::Gcra(tiers) => tier::apply(step, tiers, state),
        StepParams::Log(tiers) => entries::apply(step, tiers, false, state),
        StepParams::Slots(tiers) => entries::apply(step, tiers, true, state),
    }
}

fn reserve(step: &Step, state: &mut Option<State>, id: LeaseId, until: Micros) -> Outcome {
    let inner = counted(state);
    let outcome = count(step, inner);
    if !outcome.allowed {
        return outcome;
    }
    let inner = inner.as_ref();
    let latest = match &step.params {
        StepParams::FixedWindow(tiers) => tier::latest_instant(tiers, inner),
        StepParams::SlidingWindow(tiers) => tier::latest_instant(tiers, inner),
        StepParams::Gcra(tiers) => tier::latest_instant(tiers, inner),
        StepParams::Log(_) | StepParams::Slots(_) => match inner {
            Some(State::Entries(entries)) => entries.latest_instant(),
            _ => Micros::ZERO,
        },
    };
    let costs = match &step.params {
        StepParams::Gcra(tiers) => tier::costs(tiers, inner),
        StepParams::FixedWindow(_)
        | StepParams::SlidingWindow(_)
        | StepParams::Log(_)
        | StepParams::Slots(_) => SmallVec::new(),
    };
    // The instant at which the hits were charged; later than the step's if the clock was set back.
    let at = step.now.max(latest);
    let reservation = Reservation { id, at, until, hits: step.hits.unsigned_abs(), costs };
    open(state).push(reservation, step.now);
    outcome
}

/// The reservations of `state`, which are added if it has none.
fn open(state: &mut Option<State>) -> &mut Reserved {
    if !matches!(state, Some(State::Reserved(_))) {
        let counted = state.take();
        let reserved = Reserved { counted, open: VecDeque::new(), until: Micros::ZERO };
        *state = Some(State::Reserved(Box::new(reserved)));
    }
    match state {
        Some(State::Reserved(reserved)) => reserved,
        _ => unreachable!("reservations were put there just now"),
    }
}

fn settle(step: &Step, state: &mut Option<State>, id: LeaseId) -> Outcome {
    let found = match state {
        Some(State::Reserved(reserved)) => reserved.take(id, step.now),
        _ => None,
    };
    let inner = counted(state);
    let charge = |tier| found.as_ref().map(|(_, found)| found.charge(tier));
    let (outcome, sooner) = match &step.params {
        StepParams::FixedWindow(tiers) => tier::settle(step, tiers, inner, charge),
        StepParams::SlidingWindow(tiers) => tier::settle(step, tiers, inner, charge),
        StepParams::Gcra(tiers) => tier::settle(step, tiers, inner, charge),
        StepParams::Log(tiers) | StepParams::Slots(tiers) => {
            let charged = charge(0).unwrap_or(Charge {
                at: step.now,
                hits: step.hits.unsigned_abs(), // without a reservation nothing changes
                cost: BucketCost::default(),
            });
            (entries::settle(step, tiers, inner, charged), SmallVec::new())
        }
    };
    if let Some(State::Reserved(reserved)) = state {
        if let Some((index, _)) = found {
            reserved.drain_sooner(index, &sooner);
        }
        if reserved.open.is_empty() {
            *state = reserved.counted.take();
        }
    }
    outcome
}

impl Reserved {
    fn push(&mut self, reservation: Reservation, now: Micros) {
        while self.open.front().is_some_and(|oldest| oldest.until <= now) {
            self.open.pop_front();
        }
        if self.open.len() >= RESERVATIONS_MAX {
            self.open.pop_front();
        }
        self.until = self.until.max(reservation.until);
        self.open.push_back(reservation);
    }

    /// Removes and returns the newest reservation `id` that can still be settled, with the index of
    /// the next newer one.
    fn take(&mut self, id: LeaseId, now: Micros) -> Option<(usize, Reservation)> {
        let index = self.open.iter().rposition(|open| open.id == id && now < open.until)?;
        Some((index, self.open.remove(index)?))
    }

    /// The reservations from `index` on drain `sooner` than their records say, per tier: a
    /// reservation before them was given back in part.
    fn drain_sooner(&mut self, index: usize, sooner: &[Micros]) {
        if sooner.iter().all(|sooner| *sooner == Micros::ZERO) {
            return;
        }
        for later in self.open.range_mut(index..) {
            for (cost, sooner) in later.costs.iter_mut().zip(sooner) {
                cost.drained = cost.drained.saturating_sub(*sooner);
            }
        }
    }

    /// Heap memory in bytes, with the struct itself, without the counter's own state.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Reserved>() + size_of::<Reservation>() * self.open.capacity()
    }
}
