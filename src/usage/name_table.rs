//! The names in the memory of this process: shards in the order of the keys of counters.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::name_shard::{NameEntry, NameShard, ShardBounds};
use crate::key::{CounterKey, RuleId};

/// Shards of a large table. A decision waits only for the shard of its counter.
const SHARDS_MAX: usize = 64;

/// Names per shard of a small table. Keys are hashes, so shards of this size fill about evenly.
const SHARD_NAMES: usize = 1024;

/// Bytes of texts per name of `usage.max_names`.
const TEXTS_BYTES_PER_NAME: usize = 128;

/// Names by counter.
#[derive(Debug)]
pub(super) struct NameTable {
    shards: Box<[Mutex<NameShard>]>,
    /// The bounds of each shard.
    bounds: ShardBounds,
}

impl NameTable {
    /// A table of about `max_names` names, at least one, whose texts take on average
    /// [`TEXTS_BYTES_PER_NAME`]. It takes memory as names arrive.
    pub(super) fn new(max_names: usize) -> NameTable {
        let shards = (max_names / SHARD_NAMES).clamp(1, SHARDS_MAX);
        let names = max_names.div_ceil(shards).max(1);
        let bounds = ShardBounds { names, bytes: names.saturating_mul(TEXTS_BYTES_PER_NAME) };
        NameTable { shards: (0..shards).map(|_| Mutex::default()).collect(), bounds }
    }

    /// Marks a name as used. Returns whether it is known for at least `lifetime_secs` from `now_secs` on.
    pub(super) fn touch(&self, key: &CounterKey, now_secs: u32, lifetime_secs: u32) -> bool {
        self.shard_of(key).touch(key, now_secs, lifetime_secs)
    }

    /// Adds a name, or replaces that of the same counter. Evicts others to make room.
    pub(super) fn insert(&self, entry: NameEntry, now_secs: u32) {
        let key = entry.key;
        self.shard_of(&key).insert(entry, now_secs, self.bounds);
    }

    /// Removes the name of a counter.
    pub(super) fn remove(&self, key: &CounterKey) {
        self.shard_of(key).remove(key);
    }

    /// The texts of a counter; `None` if it has no name here.
    pub(super) fn texts(&self, key: &CounterKey) -> Option<Box<[u8]>> {
        self.shard_of(key).texts(key)
    }

    /// The counters of `rule` in the shard `number`, in the order of their keys. `None` after the last
    /// shard. All keys of a shard come before those of the next one.
    pub(super) fn keys_of(&self, rule: RuleId, number: usize) -> Option<Vec<CounterKey>> {
        (number < self.shards.len()).then(|| self.lock(number).keys_of(rule))
    }

    /// The number of the shard of `key`.
    pub(super) fn number_of(&self, key: &CounterKey) -> usize {
        (((key.0[0] >> 32) * self.shards.len() as u64) >> 32) as usize
    }

    /// The number of names, and how many were evicted to make room.
    pub(super) fn counts(&self) -> (u64, u64) {
        let of_shard = |number| {
            let shard = self.lock(number);
            (shard.len() as u64, shard.evicted())
        };
        let shards = (0..self.shards.len()).map(of_shard);
        shards.fold((0, 0), |(names, evicted), (more, gone)| (names + more, evicted + gone))
    }

    fn shard_of(&self, key: &CounterKey) -> MutexGuard<'_, NameShard> {
        self.lock(self.number_of(key))
    }

    fn lock(&self, number: usize) -> MutexGuard<'_, NameShard> {
        // No panic leaves a shard half changed, except for a defect of the shard itself.
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: RuleId = RuleId([1, 2]);

    fn key(number: u64) -> CounterKey {
        let mut state = number;
        CounterKey([crate::splitmix64::next(&mut state), number])
    }

    fn filled(max_names: usize, names: u64) -> NameTable {
        let table = NameTable::new(max_names);
        for number in 0..names {
            let texts = Some(number.to_be_bytes().into());
            let entry = NameEntry { key: key(number), rule: RULE, until_secs: 900, texts };
            table.insert(entry, 100);
        }
        table
    }

    #[test]
    fn shards_are_in_the_order_of_their_keys() {
        for max_names in [1, 5_000, 1_000_000] {
            let table = filled(max_names, 10_000);
            let mut all = Vec::new();
            let mut number = 0;
            while let Some(keys) = table.keys_of(RULE, number) {
                assert!(keys.iter().all(|key| table.number_of(key) == number));
                all.extend(keys);
                number += 1;
            }
            assert!(all.is_sorted());
            assert_eq!((all.len() as u64, number), (table.counts().0, table.shards.len()));
        }
    }

    #[test]
    fn a_table_has_at_most_its_names() {
        let (names, evicted) = filled(5_000, 20_000).counts();
        assert_eq!(names + evicted, 20_000);
        assert!((4_000..=5_003).contains(&names), "{names}");
        assert_eq!(filled(1, 3).counts(), (1, 2));
        assert_eq!(filled(1_000_000, 20_000).counts(), (20_000, 0));
    }

    #[test]
    fn a_name_is_found_by_its_counter() {
        let table = filled(100_000, 1_000);
        assert_eq!(table.texts(&key(7)).as_deref(), Some(&7_u64.to_be_bytes()[..]));
        assert!(table.touch(&key(7), 100, 800) && !table.touch(&key(7), 101, 800));
        table.remove(&key(7));
        assert_eq!((table.texts(&key(7)), table.counts().0), (None, 999));
    }
}
