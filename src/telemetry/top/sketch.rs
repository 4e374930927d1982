//! A sketch of the most frequent names in bounded memory: the space-saving algorithm of Metwally.
//!
//! It has [`NAMES`] entries. A new name replaces the entry with the lowest count, and inherits that
//! count as an upper bound, because the name may have had an entry before. A name with more than
//! 1/[`NAMES`] of all hits is always present.

use hashbrown::HashMap;

use crate::key::CounterKey;

/// Number of entries.
pub(super) const NAMES: usize = 128;

/// Counts by name.
#[derive(Debug)]
pub(super) struct Sketch<T> {
    entries: HashMap<CounterKey, Estimate<T>>,
}

/// The count of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Estimate<T> {
    /// Upper bound of the count.
    pub(super) count: u64,
    /// The part of `count` that may belong to replaced names.
    pub(super) excess: u64,
    /// The labels to show for the name.
    pub(super) labels: T,
}

impl<T> Default for Sketch<T> {
    fn default() -> Self {
        Sketch { entries: HashMap::new() }
    }
}

impl<T> Sketch<T> {
    /// Counts `name`. `labels` is called for a new entry.
    pub(super) fn add(&mut self, name: CounterKey, amount: u64, labels: impl FnOnce() -> T) {
        if let Some(known) = self.entries.get_mut(&name) {
            known.count = known.count.saturating_add(amount);
            return;
        }
        let mut inherited = 0;
        if self.entries.len() >= NAMES {
            let least = self.entries.iter().min_by_key(|(_, estimate)| estimate.count);
            if let Some((least, count)) = least.map(|(name, estimate)| (*name, estimate.count)) {
                self.entries.remove(&least);
                inherited = count;
            }
        }
        let count = inherited.saturating_add(amount);
        self.entries.insert(name, Estimate { count, excess: inherited, labels: labels() });
    }

    /// The labels of `name`; `None` without an entry.
    pub(super) fn labels(&self, name: CounterKey) -> Option<&T> {
        self.entries.get(&name).map(|estimate| &estimate.labels)
    }

    /// All entries.
    pub(super) fn all(&self) -> impl Iterator<Item = (&CounterKey, &Estimate<T>)> {
        self.entries.iter()
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_are_upper_bounds_with_known_excess(
            names in prop::collection::vec(0_u64..400, 0..3000),
        ) {
            let mut sketch = Sketch::default();
            let mut exact = HashMap::new();
            for name in &names {
                // There are only three even names, so they are frequent.
                let name = if name % 2 == 0 { name % 6 } else { *name };
                sketch.add(CounterKey([name, 0]), 1, || name);
                *exact.entry(name).or_insert(0_u64) += 1;
            }
            prop_assert!(sketch.entries.len() <= NAMES);
            for (name, estimate) in sketch.all() {
                let true_count = exact[&name.0[0]];
                prop_assert!(estimate.count >= true_count);
                prop_assert!(estimate.count - estimate.excess <= true_count);
                prop_assert_eq!(estimate.labels, name.0[0]);
            }
            for (name, count) in exact {
                if count as usize > names.len() / NAMES {
                    let key = CounterKey([name, 0]);
                    prop_assert!(sketch.entries.contains_key(&key), "{} is lost", name);
                }
            }
        }
    }
}
