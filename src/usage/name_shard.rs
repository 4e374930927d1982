//! One shard of the names in memory, bounded in number and in bytes.

use hashbrown::HashTable;

use crate::key::{CounterKey, RuleId};

/// Names that an insertion examines for expiry. Several, so that names that have expired are removed
/// faster than new ones arrive.
const EXAMINED_PER_INSERT: usize = 4;

/// Recently used names that one eviction passes over at most.
const PASSED_OVER_MAX: usize = 64;

/// The name of one counter.
#[derive(Clone, Debug)]
pub(super) struct NameEntry {
    pub(super) key: CounterKey,
    pub(super) rule: RuleId,
    /// When the counter has no hits any more, in seconds since the epoch.
    pub(super) until_secs: u32,
    /// The texts of the counter; `None` if Redis has them.
    pub(super) texts: Option<Box<[u8]>>,
}

impl NameEntry {
    fn bytes(&self) -> usize {
        self.texts.as_ref().map_or(0, |texts| texts.len())
    }
}

/// The most names of a shard, and the most bytes of their texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardBounds {
    pub(super) names: usize,
    pub(super) bytes: usize,
}

/// Names, their index, and the position of the clock that evicts them.
#[derive(Debug, Default)]
pub(super) struct NameShard {
    /// Places in `slab`, by key.
    index: HashTable<u32>,
    slab: Vec<KeptName>,
    /// The place that is examined next, for expiry and for eviction.
    hand: usize,
    bytes: usize,
    evicted: u64,
}

#[derive(Debug)]
struct KeptName {
    entry: NameEntry,
    /// Whether it was used since the hand passed it.
    is_recent: bool,
}

impl NameShard {
    /// Marks the name as used. Returns whether it is known for at least `lifetime_secs` from `now_secs`
    /// on.
    pub(super) fn touch(&mut self, key: &CounterKey, now_secs: u32, lifetime_secs: u32) -> bool {
        let Some(place) = self.find(key) else { return false };
        let kept = &mut self.slab[place];
        kept.is_recent = true;
        let until = kept.entry.until_secs;
        until == u32::MAX || until.saturating_sub(now_secs) >= lifetime_secs
    }

    /// Adds a name, or replaces that of the same counter. Evicts others to make room.
    pub(super) fn insert(&mut self, entry: NameEntry, now_secs: u32, bounds: ShardBounds) {
        if let Some(place) = self.find(&entry.key) {
            self.bytes = self.bytes - self.slab[place].entry.bytes() + entry.bytes();
            self.slab[place].entry = entry;
            return;
        }
        self.remove_expired(now_secs);
        let bytes = entry.bytes();
        while !self.slab.is_empty()
            && (self.slab.len() >= bounds.names || self.bytes + bytes > bounds.bytes)
        {
            self.evict();
        }
        let (place, hash) = (self.slab.len(), hash(&entry.key));
        self.slab.push(KeptName { entry, is_recent: true });
        self.bytes += bytes;
        let slab = &self.slab;
        let place = u32::try_from(place).expect("a setting keeps places below 2^32");
        self.index.insert_unique(hash, place, |place| key_hash(slab, *place));
    }

    /// Removes the name of a counter.
    pub(super) fn remove(&mut self, key: &CounterKey) {
        if let Some(place) = self.find(key) {
            self.remove_at(place);
        }
    }

    /// The counters of `rule`, in the order of their keys.
    pub(super) fn keys_of(&self, rule: RuleId) -> Vec<CounterKey> {
        let of_rule = self.slab.iter().filter(|kept| kept.entry.rule == rule);
        let mut keys: Vec<CounterKey> = of_rule.map(|kept| kept.entry.key).collect();
        keys.sort_unstable();
        keys
    }

    /// The texts of a counter; `None` if it has no name here.
    pub(super) fn texts(&self, key: &CounterKey) -> Option<Box<[u8]>> {
        self.slab[self.find(key)?].entry.texts.clone()
    }

    /// The number of names.
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Names that were evicted to make room.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    fn find(&self, key: &CounterKey) -> Option<usize> {
        let is_it = |place: &u32| self.slab[*place as usize].entry.key == *key;
        self.index.find(hash(key), is_it).map(|place| *place as usize)
    }

    fn remove_expired(&mut self, now_secs: u32) {
        for _ in 0..EXAMINED_PER_INSERT.min(self.slab.len()) {
            let place = self.place_of_hand();
            if self.slab[place].entry.until_secs <= now_secs {
                // The last name moves here and is examined next.
                self.remove_at(place);
            } else {
                self.hand = place + 1;
            }
        }
    }

    /// Removes the next name that was not used since the hand passed it.
    fn evict(&mut self) {
        for _ in 0..PASSED_OVER_MAX {
            let place = self.place_of_hand();
            if !std::mem::take(&mut self.slab[place].is_recent) {
                break;
            }
            self.hand = place + 1;
        }
        let place = self.place_of_hand();
        self.remove_at(place);
        self.evicted += 1;
    }

    /// The place at the hand, or the first one after the last.
    fn place_of_hand(&mut self) -> usize {
        if self.hand >= self.slab.len() {
            self.hand = 0;
        }
        self.hand
    }

    /// Removes the name at `place`; the last name moves there.
    fn remove_at(&mut self, place: usize) {
        let (key, last) = (self.slab[place].entry.key, self.slab.len() - 1);
        if let Ok(found) = self.index.find_entry(hash(&key), |at| *at as usize == place) {
            found.remove();
        }
        if place != last {
            let moved = hash(&self.slab[last].entry.key);
            if let Some(at) = self.index.find_mut(moved, |at| *at as usize == last) {
                *at = place as u32;
            }
        }
        self.bytes -= self.slab.swap_remove(place).entry.bytes();
    }
}

fn key_hash(slab: &[KeptName], place: u32) -> u64 {
    hash(&slab[place as usize].entry.key)
}

/// Keys are hashes. The shard was chosen by the other half.
fn hash(key: &CounterKey) -> u64 {
    key.0[1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    const RULE: RuleId = RuleId([1, 2]);
    const ROOMY: ShardBounds = ShardBounds { names: 1_000, bytes: 1_000_000 };

    fn key(number: u64) -> CounterKey {
        CounterKey([number, number.wrapping_mul(0x9e37_79b9_7f4a_7c15)])
    }

    fn entry(number: u64, until_secs: u32, bytes: usize) -> NameEntry {
        let texts = Some(vec![b'x'; bytes].into());
        NameEntry { key: key(number), rule: RULE, until_secs, texts }
    }

    #[test]
    fn a_name_is_renewed_after_half_its_time() {
        let mut shard = NameShard::default();
        assert!(!shard.touch(&key(1), 100, 60), "it is unknown");
        shard.insert(entry(1, 220, 3), 100, ROOMY);
        for (now, is_known) in [(100, true), (160, true), (161, false), (300, false)] {
            assert_eq!(shard.touch(&key(1), now, 60), is_known, "{now}");
        }
        shard.insert(entry(1, 281, 5), 161, ROOMY);
        assert!(shard.touch(&key(1), 161, 60));
        assert_eq!((shard.len(), shard.bytes), (1, 5), "it was replaced");
        shard.insert(entry(2, u32::MAX, 3), 161, ROOMY);
        assert!(shard.touch(&key(2), u32::MAX - 1, 60), "its end is not known exactly");
    }

    #[test]
    fn the_name_that_was_not_used_is_evicted() {
        let mut shard = NameShard::default();
        let bounds = ShardBounds { names: 3, bytes: 1_000 };
        (1..=3).for_each(|number| shard.insert(entry(number, 900, 3), 100, bounds));
        // The hand passes all three, and then evicts the first.
        shard.insert(entry(4, 900, 3), 100, bounds);
        assert_eq!((shard.len(), shard.evicted()), (3, 1));
        let left: Vec<u64> = (1..=4).filter(|number| shard.find(&key(*number)).is_some()).collect();
        // Without its use, the second one would be next.
        let (unused, used) = (left[0], left[1]);
        assert!(shard.touch(&key(used), 100, 60));
        shard.insert(entry(5, 900, 3), 100, bounds);
        let is_left = |number| shard.find(&key(number)).is_some();
        assert!(is_left(used) && !is_left(unused), "{used} was used, {unused} was not");
    }

    #[test]
    fn long_texts_leave_room_for_fewer_names() {
        let mut shard = NameShard::default();
        let bounds = ShardBounds { names: 100, bytes: 30 };
        (1..=9).for_each(|number| shard.insert(entry(number, 900, 10), 100, bounds));
        assert_eq!((shard.len(), shard.bytes, shard.evicted()), (3, 30, 6));
        shard.insert(entry(10, 900, 500), 100, bounds);
        assert_eq!(shard.len(), 1, "a name over the bound is alone");
    }

    #[test]
    fn names_of_the_past_are_removed() {
        let mut shard = NameShard::default();
        (0..100).for_each(|number| shard.insert(entry(number, 200, 3), 100, ROOMY));
        (100..200).for_each(|number| shard.insert(entry(number, 900, 3), 300, ROOMY));
        assert_eq!((shard.len(), shard.evicted()), (100, 0));
    }

    /// A random walk beside a map. The index and the slab agree after every step.
    #[test]
    fn the_index_finds_every_name() {
        let mut rng = Rng::new(7);
        let (mut shard, mut model) = (NameShard::default(), std::collections::BTreeMap::new());
        for _ in 0..20_000 {
            let number = rng.below(300);
            if rng.below(3) == 0 {
                shard.remove(&key(number));
                model.remove(&number);
            } else {
                let bytes = rng.below(9) as usize;
                shard.insert(entry(number, 900, bytes), 100, ROOMY);
                model.insert(number, bytes);
            }
            assert_eq!(shard.len(), model.len());
            assert_eq!(shard.index.len(), model.len());
        }
        assert_eq!(shard.bytes, model.values().sum::<usize>());
        for number in 0..300 {
            let texts = shard.texts(&key(number)).map(|texts| texts.len());
            assert_eq!(texts, model.get(&number).copied(), "{number}");
        }
        let keys: Vec<u64> = shard.keys_of(RULE).iter().map(|key| key.0[0]).collect();
        assert_eq!(keys, model.keys().copied().collect::<Vec<_>>(), "in order");
        assert!(shard.keys_of(RuleId([1, 3])).is_empty());
    }
}
