//! Entries: one entry per unit in use. The algorithm of sliding_window_log and concurrency.
//!
//! An entry is the instant at which a unit was taken, and for concurrency also the lease it belongs
//! to. The unit is in use for `window` after that instant: until the admission slides out of the
//! log, or until a slot that nobody gave back expires. All tiers read the same entries.

use std::collections::VecDeque;
use std::iter::repeat_n;

use smallvec::SmallVec;

use super::tier::{Charge, share};
use super::{Lease, LeaseId, Outcome, State, Step, TierResult};
use crate::time::Micros;

/// The numbers of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntriesTier {
    /// Units taken at this instant or later are in use.
    pub after: Micros,
    /// How long a unit stays in use.
    pub window: Micros,
    /// Units that can be in use at once.
    pub max: u64,
}

/// The state: units in the order in which they were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// When each unit was taken, never decreasing.
    pub(super) instants: VecDeque<u64>,
    /// Whose each unit is, for concurrency; 0 is nobody's.
    pub(super) leases: Option<VecDeque<u64>>,
}

/// What both algorithms do with the step's hits.
pub(super) fn apply(
    step: &Step,
    tiers: &[EntriesTier],
    named: bool,
    state: &mut Option<State>,
) -> Outcome {
    let hits = step.hits.unsigned_abs();
    let back = named.then_some(step.lease).flatten().and_then(Lease::closes);
    let none = Entries::default();
    let before = held(state, named).unwrap_or(&none);
    let take = back.is_none() && step.hits >= 0;
    let fits =
        |tier: &EntriesTier| !take || before.size(tier) as i64 <= tier.max as i64 - hits as i64;
    let fits: SmallVec<[bool; 1]> = tiers.iter().map(fits).collect();
    let allowed = fits.iter().all(|&fits| fits);
    let gives = if take { 0 } else { before.gives(hits, back, oldest(tiers)) };
    if take && hits > 0 && (allowed || step.count_denied) {
        let lease = step.lease.and_then(Lease::opens);
        let holds = held_mut(state, named);
        holds.trim(tiers);
        holds.add(step.now, hits, lease, tiers);
    } else if gives > 0 {
        let holds = held_mut(state, named);
        holds.give_back(gives, back, oldest(tiers));
        holds.trim(tiers);
    }
    let after = held(state, named).unwrap_or(&none);
    outcome(step, tiers, after, allowed, &fits)
}

/// Brings a reservation in a log from `made.hits` entries to the step's hits.
pub(super) fn settle(
    step: &Step,
    tiers: &[EntriesTier],
    state: &mut Option<State>,
    made: Charge,
) -> Outcome {
    let hits = step.hits.unsigned_abs();
    if hits > made.hits {
        let holds = held_mut(state, false);
        holds.trim(tiers);
        holds.add(step.now, hits - made.hits, None, tiers);
    } else if hits < made.hits && held(state, false).is_some() {
        // Entries of one instant are all alike, so any of them may go.
        let instants = &mut held_mut(state, false).instants;
        let first = instants.partition_point(|&at| at < made.at.0);
        let end = instants.partition_point(|&at| at <= made.at.0);
        let back = (end - first).min(to_len(made.hits - hits));
        instants.drain(end - back..end);
    }
    let none = Entries::default();
    let fits: SmallVec<[bool; 1]> = tiers.iter().map(|_| true).collect();
    outcome(step, tiers, held(state, false).unwrap_or(&none), true, &fits)
}

/// The holds in `state`, if they are of this kind.
fn held(state: &Option<State>, named: bool) -> Option<&Entries> {
    match state {
        Some(State::Entries(holds)) if holds.leases.is_some() == named => Some(holds),
        _ => None,
    }
}

/// The holds in `state`, empty ones in place of whatever else it is.
fn held_mut(state: &mut Option<State>, named: bool) -> &mut Entries {
    if held(state, named).is_none() {
        let leases = named.then(VecDeque::new);
        *state = Some(State::Entries(Box::new(Entries { instants: VecDeque::new(), leases })));
    }
    match state {
        Some(State::Entries(holds)) => holds,
        _ => unreachable!("holds were put there just now"),
    }
}

/// Units taken before this instant are in use for no tier.
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

    /// How many of `hits` units can be given back: those in use, and of `lease` alone if there is
    /// one.
    fn gives(&self, hits: u64, lease: Option<LeaseId>, after: Micros) -> usize {
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
        // Never before the last one: should the clock be set back, units stay a little longer.
        let at = now.0.max(self.instants.back().copied().unwrap_or(0));
        let max = tiers.iter().map(|tier| tier.max).max().unwrap_or(0);
        let count = to_len(hits.min(max + 1));
        self.instants.extend(repeat_n(at, count));
        match &mut self.leases {
            Some(leases) => leases.extend(repeat_n(lease.map_or(0, |id| id.0.get()), count)),
            // Denied and settled hits can exceed the limit. Beyond one hit over the largest, older
            // ones decide nothing; so a flood of denied hits cannot grow the log.
            None => {
                let surplus = self.instants.len().saturating_sub(to_len(max + 1));
                self.instants.drain(..surplus);
            }
        }
    }

    /// Takes the newest `count` units out, of `lease` alone if there is one; so many there must be.
    fn give_back(&mut self, mut count: usize, lease: Option<LeaseId>, after: Micros) {
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
            // Units of one lease were taken together, so they go in one run.
            let end = index + 1;
            while index > first && end - index < count && leases[index - 1] == id.0.get() {
                index -= 1;
            }
            leases.drain(index..end);
            self.instants.drain(index..end);
            count -= end - index;
        }
    }

    /// Drops what is in use for no tier, and the memory that it took if that was most of it.
    fn trim(&mut self, tiers: &[EntriesTier]) {
        let gone = self.first(oldest(tiers));
        self.instants.drain(..gone);
        let roomy = |held: &VecDeque<u64>| held.capacity() > 4 * held.len() + 16;
        if roomy(&self.instants) {
            self.instants.shrink_to(2 * self.instants.len());
        }
        if let Some(leases) = &mut self.leases {
            leases.drain(..gone);
            if roomy(leases) {
                leases.shrink_to(2 * leases.len());
            }
        }
    }

    /// When the unit leaves that is waited for: for the same hits to fit, or else for room to grow.
    /// 0 when nothing is.
    fn leaves(&self, tier: &EntriesTier, hits: u64, allowed: bool) -> u64 {
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

    /// From when on nothing is in use.
    pub(super) fn expires(&self, tiers: &[EntriesTier]) -> Micros {
        let longest = tiers.iter().map(|tier| tier.window).max().unwrap_or_default();
        self.instants.back().map_or(Micros::ZERO, |&at| Micros(at).saturating_add(longest))
    }

    /// The fullest tier's share.
    pub(super) fn fullness(&self, tiers: &[EntriesTier]) -> u16 {
        tiers.iter().map(|tier| share(self.size(tier), tier.max)).max().unwrap_or_default()
    }

    /// When the newest unit was taken.
    pub(super) fn latest(&self) -> Micros {
        Micros(self.instants.back().copied().unwrap_or(0))
    }

    /// Memory behind the pointer.
    pub(super) fn heap_bytes(&self) -> usize {
        let leases = self.leases.as_ref().map_or(0, VecDeque::capacity);
        size_of::<Entries>() + size_of::<u64>() * (self.instants.capacity() + leases)
    }
}

fn outcome(
    step: &Step,
    tiers: &[EntriesTier],
    holds: &Entries,
    allowed: bool,
    fits: &[bool],
) -> Outcome {
    let hits = step.hits.unsigned_abs();
    let seen = tiers.iter().zip(fits).map(|(tier, &fits)| TierResult {
        allowed: fits,
        a: holds.size(tier),
        b: holds.leaves(tier, hits, allowed),
        c: 0,
    });
    Outcome { allowed, tiers: seen.collect() }
}
