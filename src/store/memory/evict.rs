//! Eviction: whom a full shard forgets, so that the least is forgotten and no limit is reset.
//!
//! A random sample instead of an order: an order would cost memory and a write per step, and a
//! client that knows the order can steer it. What is looked at is bounded, so that a flood of new
//! keys does not make a step slow.

use super::budget::Budget;
use super::shard::{Full, Shard};
use crate::key::Key;
use crate::time::Micros;

/// Entries compared, picked at random.
const SAMPLE: u32 = 8;
/// Entries looked at beyond the sample if all of it holds limited clients.
const FURTHER: u32 = 64;
/// LargeState states evicted for one step at most.
const LARGE_VICTIMS_MAX: u32 = 8;

impl Shard {
    /// The place of a counter to evict; `None` if all that were looked at must be kept.
    pub(super) fn victim(&mut self, now: Micros) -> Option<u32> {
        let len = self.slab.len();
        if len <= SAMPLE {
            return self.least_lost(0..len, now);
        }
        let mut sample = [0; SAMPLE as usize];
        sample.fill_with(|| self.rng.below(len));
        self.least_lost(sample.into_iter(), now).or_else(|| {
            let start = self.rng.below(len);
            let further = (0..FURTHER.min(len)).map(|step| (start + step) % len);
            self.least_lost(further, now)
        })
    }

    /// Evicts a counter, though for bytes not that of `except`, to make room for another shard.
    /// Tells whether one could go.
    pub(super) fn evict_one(
        &mut self,
        full: Full,
        except: &Key,
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

    /// Evicts large states, except that of `except`, until `bytes` more fit.
    pub(super) fn make_room(
        &mut self,
        bytes: usize,
        except: &Key,
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

    /// The place of a counter with a large state to evict.
    fn large_victim(&mut self, except: &Key, now: Micros) -> Option<u32> {
        let len = self.large_states.len();
        // Few large states are looked at one by one, many are sampled.
        let start = self.rng.below(len);
        let candidates = (0..SAMPLE.min(len)).map(|step| u64::from((start + step) % len));
        let places = candidates.map(|id| self.large_states.get(id).place);
        let others = places.filter(|&place| self.slab.get(place).key != *except);
        self.least_lost(others, now)
    }

    /// Which of `places` would lose the least.
    fn least_lost(&self, places: impl Iterator<Item = u32>, now: Micros) -> Option<u32> {
        let losses =
            places.filter_map(|place| Some((self.slab.get(place).meta().loss(now)?, place)));
        losses.min_by_key(|&(loss, _)| loss).map(|(_, place)| place)
    }
}
