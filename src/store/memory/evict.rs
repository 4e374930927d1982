//! Eviction: whom a full shard forgets, so that the least is forgotten and no limit is reset.
//!
//! A random sample instead of an order: an order would cost memory and a write per step, and a
//! client that knows the order can steer it. What is looked at is bounded, so that a flood of new
//! keys does not make a step slow.

use super::ledger::Ledger;
use super::shard::{Lack, Shard};
use crate::key::Key;
use crate::time::Micros;

/// Entries compared, picked at random.
const SAMPLE: u32 = 8;
/// Entries looked at beyond the sample if all of it holds limited clients.
const FURTHER: u32 = 64;
/// Large states evicted for one step at most.
const LARGE_VICTIMS_MAX: u32 = 8;

impl Shard {
    /// The place of a counter to evict; `None` if all that were looked at must be kept.
    pub(super) fn victim(&mut self, now: Micros) -> Option<u32> {
        let len = self.slab.len();
        if len <= SAMPLE {
            return self.least_lost(0..len, now);
        }
        let mut sample = [0; SAMPLE as usize];
        sample.fill_with(|| self.dice.below(len));
        self.least_lost(sample.into_iter(), now).or_else(|| {
            let start = self.dice.below(len);
            let further = (0..FURTHER.min(len)).map(|step| (start + step) % len);
            self.least_lost(further, now)
        })
    }

    /// Evicts a counter, though for bytes not that of `spared`, to make room for another shard.
    /// Tells whether one could go.
    pub(super) fn give_way(
        &mut self,
        lack: Lack,
        spared: &Key,
        now: Micros,
        ledger: &Ledger,
    ) -> bool {
        let victim = match lack {
            Lack::Seat => self.victim(now),
            Lack::Bytes => self.large_victim(spared, now),
        };
        if let Some(victim) = victim {
            self.remove(victim, ledger);
            ledger.leave_seat();
            ledger.count_evicted();
        }
        victim.is_some()
    }

    /// Evicts large states, except that of `spared`, until `bytes` more fit.
    pub(super) fn make_room(
        &mut self,
        bytes: usize,
        spared: &Key,
        now: Micros,
        ledger: &Ledger,
    ) -> Result<(), Lack> {
        for _ in 0..LARGE_VICTIMS_MAX {
            if ledger.has_bytes(bytes) {
                return Ok(());
            }
            let victim = self.large_victim(spared, now).ok_or(Lack::Bytes)?;
            self.remove(victim, ledger);
            ledger.leave_seat();
            ledger.count_evicted();
        }
        if ledger.has_bytes(bytes) { Ok(()) } else { Err(Lack::Bytes) }
    }

    /// The place of a counter with a large state to evict.
    fn large_victim(&mut self, spared: &Key, now: Micros) -> Option<u32> {
        let len = self.larges.len();
        // Few large states are looked at one by one, many are sampled.
        let start = self.dice.below(len);
        let candidates = (0..SAMPLE.min(len)).map(|step| u64::from((start + step) % len));
        let places = candidates.map(|id| self.larges.get(id).place);
        let others = places.filter(|&place| self.slab.get(place).key != *spared);
        self.least_lost(others, now)
    }

    /// Which of `places` would lose the least.
    fn least_lost(&self, places: impl Iterator<Item = u32>, now: Micros) -> Option<u32> {
        let losses =
            places.filter_map(|place| Some((self.slab.get(place).marks().loss(now)?, place)));
        losses.min_by_key(|&(loss, _)| loss).map(|(_, place)| place)
    }
}
