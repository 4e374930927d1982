//! The sets of names in Redis.
//!
//! The names of one rule are sorted sets, one per hash tag of counters. A member is the key of a counter
//! and its texts. Its score is the instant from which the counter has no hits any more. So the names
//! spread over a Cluster as the counters do, are read in pages by instants, and are dropped when they are
//! out of date. No command walks over other keys.

use crate::key::{CounterKey, RuleId};
use crate::store::RedisStore;
use crate::store::redis::HASH_TAGS;
use crate::time::Micros;

/// The number of sets of a rule.
pub(super) const SETS: usize = HASH_TAGS;

/// The first bits of a counter's key are the number of its hash tag.
const TAG_SHIFT: u32 = u64::BITS - HASH_TAGS.ilog2();

/// One set: the names of a rule whose counters have one hash tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameSet {
    /// The rule.
    pub rule: RuleId,
    /// The number of the hash tag.
    pub number: usize,
}

/// The name of one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredName {
    /// The counter.
    pub key: CounterKey,
    /// The instant from which the counter has no hits any more, by the clock of its node.
    pub until: Micros,
    /// The texts of the counter, encoded.
    pub texts: Box<[u8]>,
}

/// What one command has read of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList {
    /// The names, in the order of their instants, then of their keys.
    pub names: Vec<StoredName>,
    /// The instants of members that are no names, in their order. Another program has written them, or
    /// another version.
    pub unreadable: Vec<Micros>,
}

impl NameSet {
    /// The set of a counter of `rule`.
    pub fn of(rule: RuleId, key: &CounterKey) -> NameSet {
        NameSet { rule, number: number_of(key) }
    }

    /// A counter key on the node of the set.
    pub(super) fn counter(&self) -> CounterKey {
        CounterKey([(self.number as u64) << TAG_SHIFT, 0])
    }

    /// The key in Redis.
    pub(super) fn redis_key(&self) -> String {
        let [first, second] = self.rule.0;
        RedisStore::name_beside(&self.counter(), &format!("usage:{first:016x}{second:016x}"))
    }
}

/// The number of the hash tag of a counter.
pub(super) fn number_of(key: &CounterKey) -> usize {
    (key.0[0] >> TAG_SHIFT) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_beside_its_counters() {
        let rule = RuleId([0xab, 1]);
        let mut keys = std::collections::BTreeSet::new();
        for number in 0..SETS {
            let set = NameSet { rule, number };
            assert_eq!(NameSet::of(rule, &set.counter()), set);
            let last = CounterKey([set.counter().0[0] | ((1 << TAG_SHIFT) - 1), u64::MAX]);
            assert_eq!(NameSet::of(rule, &last), set);
            let key = set.redis_key();
            assert!(key.ends_with("}usage:00000000000000ab0000000000000001"), "{key}");
            assert!(keys.insert(key));
        }
    }
}
