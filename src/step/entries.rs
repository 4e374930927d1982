//! One entry per unit in use: the state of sliding_window_log and concurrency.
//!
//! An entry is the instant at which a unit was taken, and for concurrency also its lease. The unit
//! is in use for `window` after that instant: until the hit leaves the log, or until a slot that
//! was not released expires. All tiers read the same entries.

use std::collections::VecDeque;
use std::iter::repeat_n;

use smallvec::SmallVec;

use super::tier::{Charge, share};
use super::{Lease, LeaseId, Outcome, State, Step, TierResult};
use crate::time::Micros;

/// The parameters of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntriesTier {
    /// Units that were taken at this instant or later are in use.
    pub after: Micros,
    /// How long a unit stays in use.
    pub window: Micros,
    /// The limit: units in use at once.
    pub max: u64,
}

/// The state: units in the order in which they were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// When each unit was taken, never decreasing.
    pub(super) instants: VecDeque<u64>,
    /// The lease of each unit, for concurrency; 0 for none.
    pub(super) leases: Option<VecDeque<u64>>,
}

/// Takes or gives back the step's hits, or peeks. With `with_leases`, units belong to leases.
pub(super) fn apply(
    step: &Step,
    tiers: &[EntriesTier],
    with_leases: bool,
    state: &mut Option<State>,
) -> Outcome {
    let hits = step.hits.unsigned_abs();
    let back = with_leases.then_some(step.lease).flatten().and_then(Lease::closed_id);
    let none = Entries::default();
    let before = entries_of(state, with_leases).unwrap_or(&none);
    let take = back.is_none() && step.hits >= 0;
    let fits =
        |tier: &EntriesTier| !take || before.size(tier) as i64 <= tier.max as i64 - hits as i64;
    let fits: SmallVec<[bool; 1]> = tiers.iter().map(fits).collect();
    let allowed = fits.iter().all(|&fits| fits);
    let gives = if take { 0 } else { before.releasable(hits, back, oldest(tiers)) };
    if take && hits > 0 && (allowed || step.count_denied) {
        let lease = step.lease.and_then(Lease::opened_id);
        let entries = entries_mut(state, with_leases);
        entries.trim(tiers);
        entries.add(step.now, hits, lease, tiers);
    } else if gives > 0 {
        let entries = entries_mut(state, with_leases);
        entries.remove_newest(gives, back, oldest(tiers));
        entries.trim(tiers);
    }
    let after = entries_of(state, with_leases).unwrap_or(&none);
    outcome(step, tiers, after, allowed, &fits)
}

/// Replaces the `charge` of a reservation in a log by the step's hits.
pub(super) fn settle(
    step: &Step,
    tiers: &[EntriesTier],
    state: &mut Option<State>,
    charge: Charge,
) -> Outcome {
    let hits = step.hits.unsigned_abs();
    if hits > charge.hits {
        let entries = entries_mut(state, false);
        entries.trim(tiers);
        entries.add(step.now, hits - charge.hits, None, tiers);
    } else if hits < charge.hits && entries_of(state, false).is_some() {
        // Entries of one instant are equal, so any of them may be removed.
        let instants = &mut entries_mut(state, false).instants;
        let first = instants.partition_point(|&at| at < charge.at.0);
        let end = instants.partition_point(|&at| at <= charge.at.0);
        let back = (end - first).min(to_len(charge.hits - hits));
        instants.drain(end - back..end);
    }
    let none = Entries::default();
    let fits: SmallVec<[bool; 1]> = tiers.iter().map(|_| true).collect();
    outcome(step, tiers, entries_of(state, false).unwrap_or(&none), true, &fits)
}

/// The instant from which no unit is in use.
pub(super) fn expires_at(tiers: &[EntriesTier], state: &State) -> Micros {
    let State::Entries(entries) = state else { return Micros::ZERO };
    let longest = tiers.iter().map(|tier| tier.window).max().unwrap_or_default();
    entries.instants.back().map_or(Micros::ZERO, |&at| Micros(at).saturating_add(longest))
}

/// The share of the fullest tier.
pub(super) fn fullness(tiers: &[EntriesTier], state: &State) -> u16 {
    let State::Entries(entries) = state else { return 0 };
    tiers.iter().map(|tier| share(entries.size(tier), tier.max)).max().unwrap_or_default()
}

/// The entries of `state`, if they are of this kind.
fn entries_of(state: &Option<State>, with_leases: bool) -> Option<&Entries> {
    match state {
        Some(State::Entries(entries)) if entries.leases.is_some() == with_leases => Some(entries),
        _ => None,
    }
}

/// The entries of `state`; empty ones replace a state of another kind.
fn entries_mut(state: &mut Option<State>, with_leases: bool) -> &mut Entries {
    if entries_of(state, with_leases).is_none() {
        let leases = with_leases.then(VecDeque::new);
        *state = Some(State::Entries(Box::new(Entries { instants: VecDeque::new(), leases })));
    }
    match state {
        Some(State::Entries(entries)) => entries,
        _ => unreachable!("entries were put there just now"),
    }
}

/// The instant before which no taken unit is in use for any tier.
fn oldest(tiers: &[EntriesTier]) -> Micros {
    tiers.iter().map(|tier| tier.after).min().unwrap_or_default()
}

fn to_len(hits: u64) -> usize {
    usize::try_from(hits).unwrap_or(usize::MAX)
}

impl Entries {
    /// Index of the first unit that was taken at `after` or later.
    fn first(&self, after: Micros) -> usize {
        self.instants.partition_point(|&at| at < after.0)
    }

    /// Units in use.
    fn size(&self, tier: &EntriesTier) -> u64 {
        (self.instants.len() - self.first(tier.after)) as u64
    }

    /// How many of `hits` units can be given back. Only units in use count, and with a `lease` only
    /// its units.
    fn releasable(&self, hits: u64, lease: Option<LeaseId>, after: Micros) -> usize {
        let first = self.first(after);
        let held = match (lease, &self.leases) {
            (Some(id), Some(leases)) => {
                leases.range(first..).filter(|&&held| held == id.0.get()).count()
            }
            _ => self.instants.len() - first,
        };
        held.min(to_len(hits))
    }

    fn add(&mut self, now: Micros, hits: u64, lease: Option<LeaseId>, tiers: &[EntriesTier]) {
        // At least the instant of the last unit. If the clock was set back, units stay a little
        // longer.
        let at = now.0.max(self.instants.back().copied().unwrap_or(0));
        let max = tiers.iter().map(|tier| tier.max).max().unwrap_or(0);
        let count = to_len(hits.min(max + 1));
        self.instants.extend(repeat_n(at, count));
        match &mut self.leases {
            Some(leases) => leases.extend(repeat_n(lease.map_or(0, |id| id.0.get()), count)),
            // Denied and settled hits can exceed the limit. Entries before the newest `max + 1`
            // affect no decision, so a flood of denied hits cannot grow the log.
            None => {
                let surplus = self.instants.len().saturating_sub(to_len(max + 1));
                self.instants.drain(..surplus);
            }
        }
    }

    /// Removes the newest `count` units; with a `lease`, the newest ones of that lease. At least
    /// `count` such units must exist.
    fn remove_newest(&mut self, mut count: usize, lease: Option<LeaseId>, after: Micros) {
        let (Some(id), Some(leases)) = (lease, &mut self.leases) else {
            let keep = self.instants.len() - count;
            self.instants.truncate(keep);
            if let Some(leases) = &mut self.leases {
                leases.truncate(keep);
            }
            return;
        };
        let first = self.instants.partition_point(|&at| at < after.0);
        let mut index = leases.len();
        while count > 0 && index > first {
            index -= 1;
            if leases[index] != id.0.get() {
                continue;
            }
            // Units of one lease were taken together, so they are removed in runs.
            let end = index + 1;
            while index > first && end - index < count && leases[index - 1] == id.0.get() {
                index -= 1;
            }
            leases.drain(index..end);
            self.instants.drain(index..end);
            count -= end - index;
        }
    }

    /// Removes units that are in use for no tier. Frees memory if most units were removed.
    fn trim(&mut self, tiers: &[EntriesTier]) {
        let gone = self.first(oldest(tiers));
        self.instants.drain(..gone);
        let is_sparse = |list: &VecDeque<u64>| list.capacity() > 4 * list.len() + 16;
        if is_sparse(&self.instants) {
            self.instants.shrink_to(2 * self.instants.len());
        }
        if let Some(leases) = &mut self.leases {
            leases.drain(..gone);
            if is_sparse(leases) {
                leases.shrink_to(2 * leases.len());
            }
        }
    }

    /// The instant at which enough units expire for the same hits to fit, or, after an allowed
    /// step, for one more unit. 0 if none needs to expire.
    fn next_expiry(&self, tier: &EntriesTier, hits: u64, allowed: bool) -> u64 {
        let size = self.size(tier);
        let wait = if allowed {
            size.min(size.saturating_sub(tier.max) + 1)
        } else {
            size.min((size as i64 - (tier.max as i64 - hits as i64)).max(0) as u64)
        };
        if wait == 0 {
            return 0;
        }
        self.instants[self.instants.len() - to_len(size - wait) - 1] + tier.window.0
    }

    /// The instant at which the newest unit was taken.
    pub(super) fn latest_instant(&self) -> Micros {
        Micros(self.instants.back().copied().unwrap_or(0))
    }

    /// Heap memory in bytes, with the struct itself.
    pub(super) fn heap_bytes(&self) -> usize {
        let leases = self.leases.as_ref().map_or(0, VecDeque::capacity);
        size_of::<Entries>() + size_of::<u64>() * (self.instants.capacity() + leases)
    }
}

fn outcome(
    step: &Step,
    tiers: &[EntriesTier],
    entries: &Entries,
    allowed: bool,
    fits: &[bool],
) -> Outcome {
    let hits = step.hits.unsigned_abs();
    let results = tiers.iter().zip(fits).map(|(tier, &fits)| TierResult {
        allowed: fits,
        numbers: [entries.size(tier), entries.next_expiry(tier, hits, allowed), 0],
    });
    Outcome { allowed, tiers: results.collect() }
}
