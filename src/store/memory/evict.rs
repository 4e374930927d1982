//! Picks the counter to evict: the one of a random sample whose removal loses the least state.
//!
//! An eviction order, such as least recently used, would cost memory and a write per step, and a
//! client that knows the order can exploit it. The sample is bounded, so a flood of new keys does
//! not make steps slow.

use super::budget::Budget;
use super::shard::{Full, MemoryShard};
use crate::key::CounterKey;
use crate::time::Micros;

/// Entries that are compared, chosen at random.
const SAMPLE: u32 = 8;
/// Further entries that are examined if the whole sample is at its limit.
const SECOND_SAMPLE: u32 = 64;
/// The most large states that one step may evict.
const LARGE_VICTIMS_MAX: u32 = 8;

impl MemoryShard {
    /// The place in the slab of the counter to evict; `None` if every examined counter must stay.
    pub(super) fn victim(&mut self, now: Micros) -> Option<u32> {
        let len = self.slab.len();
        if len <= SAMPLE {
            return self.least_lost(0..len, now);
        }
        let mut sample = [0; SAMPLE as usize];
        sample.fill_with(|| self.rng.below(len));
        self.least_lost(sample.into_iter(), now).or_else(|| {
            let start = self.rng.below(len);
            let further = (0..SECOND_SAMPLE.min(len)).map(|step| (start + step) % len);
            self.least_lost(further, now)
        })
    }

    /// Evicts one counter for another shard that is full. To free bytes, it never evicts the
    /// counter `except`. Returns whether one was evicted.
    pub(super) fn evict_one(
        &mut self,
        full: Full,
        except: &CounterKey,
        now: Micros,
        budget: &Budget,
    ) -> bool {
        let victim = match full {
            Full::Counters => self.victim(now),
            Full::Bytes => self.large_victim(except, now),
        };
        if let Some(victim) = victim {
            self.remove(victim, budget);
            budget.release();
            budget.count_evicted();
        }
        victim.is_some()
    }

    /// Evicts large states until `bytes` more fit. Never evicts the state of the counter `except`.
    pub(super) fn make_room(
        &mut self,
        bytes: usize,
        except: &CounterKey,
        now: Micros,
        budget: &Budget,
    ) -> Result<(), Full> {
        for _ in 0..LARGE_VICTIMS_MAX {
            if budget.has_bytes(bytes) {
                return Ok(());
            }
            let victim = self.large_victim(except, now).ok_or(Full::Bytes)?;
            self.remove(victim, budget);
            budget.release();
            budget.count_evicted();
        }
        if budget.has_bytes(bytes) { Ok(()) } else { Err(Full::Bytes) }
    }

    /// The place of the counter with a large state to evict.
    fn large_victim(&mut self, except: &CounterKey, now: Micros) -> Option<u32> {
        let len = self.large_states.len();
        // Up to SAMPLE large states are all compared. Of a larger number, SAMPLE consecutive ones
        // are.
        let start = self.rng.below(len);
        let candidates = (0..SAMPLE.min(len)).map(|step| u64::from((start + step) % len));
        let places = candidates.map(|id| self.large_states.get(id).place);
        let others = places.filter(|&place| self.slab.get(place).key != *except);
        self.least_lost(others, now)
    }

    /// The one of `places` that loses the least state.
    fn least_lost(&self, places: impl Iterator<Item = u32>, now: Micros) -> Option<u32> {
        let losses =
            places.filter_map(|place| Some((self.slab.get(place).meta().loss(now)?, place)));
        losses.min_by_key(|&(loss, _)| loss).map(|(_, place)| place)
    }
}
