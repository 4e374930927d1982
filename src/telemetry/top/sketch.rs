//! A sketch of who comes most often: Metwally's space-saving, in bounded memory.
//!
//! It holds so many names. When one more comes, it takes the place of the one counted least, and its
//! count too: an upper bound of its own, because it may have been there before. Whoever has more
//! than one part in [`NAMES`] of all is always among those held.

use hashbrown::HashMap;

use crate::key::Key;

/// Names held.
pub(super) const NAMES: usize = 128;

/// Counts by name.
#[derive(Debug)]
pub(super) struct Sketch<T> {
    held: HashMap<Key, Tally<T>>,
}

/// What is known of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally<T> {
    /// At most so many.
    pub(super) count: u64,
    /// So many of them may have been somebody else's.
    pub(super) excess: u64,
    /// What else is to be shown.
    pub(super) about: T,
}

impl<T> Default for Sketch<T> {
    fn default() -> Self {
        Sketch { held: HashMap::new() }
    }
}

impl<T> Sketch<T> {
    /// Counts `name`; `about` is asked when it was not held.
    pub(super) fn add(&mut self, name: Key, amount: u64, about: impl FnOnce() -> T) {
        if let Some(known) = self.held.get_mut(&name) {
            known.count = known.count.saturating_add(amount);
            return;
        }
        let mut inherited = 0;
        if self.held.len() >= NAMES {
            let least = self.held.iter().min_by_key(|(_, tally)| tally.count);
            if let Some((least, count)) = least.map(|(name, tally)| (*name, tally.count)) {
                self.held.remove(&least);
                inherited = count;
            }
        }
        let count = inherited.saturating_add(amount);
        self.held.insert(name, Tally { count, excess: inherited, about: about() });
    }

    /// Everything held.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, &Tally<T>)> {
        self.held.iter()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_are_never_too_low_and_their_excess_is_told(
            names in prop::collection::vec(0_u64..400, 0..3000),
        ) {
            let mut sketch = Sketch::default();
            let mut exact = HashMap::new();
            for name in &names {
                // Of every other name a few come far more often.
                let name = if name % 2 == 0 { name % 6 } else { *name };
                sketch.add(Key([name, 0]), 1, || name);
                *exact.entry(name).or_insert(0_u64) += 1;
            }
            prop_assert!(sketch.held.len() <= NAMES);
            for (name, tally) in sketch.all() {
                let true_count = exact[&name.0[0]];
                prop_assert!(tally.count >= true_count);
                prop_assert!(tally.count - tally.excess <= true_count);
                prop_assert_eq!(tally.about, name.0[0]);
            }
            for (name, count) in exact {
                if count as usize > names.len() / NAMES {
                    prop_assert!(sketch.held.contains_key(&Key([name, 0])), "{} is lost", name);
                }
            }
        }
    }
}
