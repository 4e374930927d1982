//! The descriptors that only one of the two rule sets denies, in bounded memory.

use std::collections::HashMap;

use serde::Serialize;

/// The most descriptors that are tracked. The differences of others are only summed up.
const DESCRIPTORS_MAX: usize = 100_000;

/// The most bytes of their domains and texts.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// How often one rule set denied what the other one passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Times that only the new rules denied it.
    pub more: u64,
    /// Times that only the old rules denied it.
    pub fewer: u64,
    /// Hits that only the new rules denied.
    pub more_hits: u64,
    /// Hits that only the old rules denied.
    pub fewer_hits: u64,
}

/// A descriptor with its difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DescriptorDifference {
    /// The domain.
    pub domain: String,
    /// The descriptor, as `weir call` accepts it.
    pub descriptor: String,
    /// Its difference.
    #[serde(flatten)]
    pub difference: Difference,
}

/// The differences of descriptors.
#[derive(Debug)]
pub(super) struct DescriptorDifferences {
    /// By domain and text.
    tracked: HashMap<Box<str>, HashMap<Box<str>, Difference>>,
    /// Descriptors that may still be added.
    descriptors_left: usize,
    /// Bytes that their texts may have.
    bytes_left: usize,
    /// The sum of all differences that are not tracked.
    untracked: Difference,
}

impl Difference {
    /// Adds a descriptor with `hits` that one rule set denied, and the other did not.
    pub(super) fn add(&mut self, denied_by_new: bool, hits: u64) {
        let (times, sum) = match denied_by_new {
            true => (&mut self.more, &mut self.more_hits),
            false => (&mut self.fewer, &mut self.fewer_hits),
        };
        *times += 1;
        *sum = sum.saturating_add(hits);
    }

    /// Times that the rule sets differ.
    pub fn times(&self) -> u64 {
        self.more + self.fewer
    }
}

impl Default for DescriptorDifferences {
    fn default() -> DescriptorDifferences {
        DescriptorDifferences::bounded(DESCRIPTORS_MAX, TEXT_BYTES_MAX)
    }
}

impl DescriptorDifferences {
    /// No differences, with room for `descriptors` whose texts have `bytes`.
    fn bounded(descriptors: usize, bytes: usize) -> DescriptorDifferences {
        DescriptorDifferences {
            tracked: HashMap::new(),
            descriptors_left: descriptors,
            bytes_left: bytes,
            untracked: Difference::default(),
        }
    }

    /// Adds `hits` of a descriptor that one rule set denied, and the other did not.
    pub(super) fn add(&mut self, domain: &str, descriptor: &str, denied_by_new: bool, hits: u64) {
        self.difference(domain, descriptor).add(denied_by_new, hits);
    }

    /// The difference of a descriptor. The one of all others if there is no room for it.
    fn difference(&mut self, domain: &str, descriptor: &str) -> &mut Difference {
        let of_domain = self.tracked.get(domain);
        if of_domain.is_none_or(|known| !known.contains_key(descriptor)) {
            let bytes = domain.len() + descriptor.len();
            if self.descriptors_left == 0 || self.bytes_left < bytes {
                return &mut self.untracked;
            }
            self.descriptors_left -= 1;
            self.bytes_left -= bytes;
        }
        if of_domain.is_none() {
            self.tracked.insert(domain.into(), HashMap::new());
        }
        let of_domain = self.tracked.get_mut(domain).expect("it was found or inserted");
        of_domain.entry(descriptor.into()).or_default()
    }

    /// The `count` descriptors that differ most, the first ones first.
    pub(super) fn top(&self, count: usize) -> Vec<DescriptorDifference> {
        let mut all: Vec<(&str, &str, Difference)> = self
            .tracked
            .iter()
            .flat_map(|(domain, known)| {
                known.iter().map(|(descriptor, difference)| (&**domain, &**descriptor, *difference))
            })
            .collect();
        all.sort_unstable_by(|a, b| {
            let most_first = (b.2.times(), b.2.more).cmp(&(a.2.times(), a.2.more));
            most_first.then_with(|| (a.0, a.1).cmp(&(b.0, b.1)))
        });
        let shown = all.into_iter().take(count);
        shown
            .map(|(domain, descriptor, difference)| DescriptorDifference {
                domain: domain.to_owned(),
                descriptor: descriptor.to_owned(),
                difference,
            })
            .collect()
    }

    /// The number of tracked descriptors.
    pub(super) fn len(&self) -> usize {
        self.tracked.values().map(HashMap::len).sum()
    }

    /// The sum of the differences that are not tracked.
    pub(super) fn untracked(&self) -> Difference {
        self.untracked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_sorted_by_their_differences() {
        let mut differences = DescriptorDifferences::default();
        for (domain, descriptor, denied_by_new, hits) in [
            ("d", "user=b", true, 1),
            ("d", "user=b", false, 5),
            ("d", "user=a", true, 1),
            ("d", "user=a", true, 2),
            ("e", "user=a", true, 1),
            ("d", "user=c", false, 1),
        ] {
            differences.add(domain, descriptor, denied_by_new, hits);
        }
        let shown: Vec<_> = differences
            .top(10)
            .into_iter()
            .map(|one| format!("{}: {} {:?}", one.domain, one.descriptor, one.difference.times()))
            .collect();
        assert_eq!(shown, ["d: user=a 2", "d: user=b 2", "e: user=a 1", "d: user=c 1"]);
        let first = differences.top(1);
        let expected = Difference { more: 2, fewer: 0, more_hits: 3, fewer_hits: 0 };
        assert_eq!(first.iter().map(|one| one.difference).collect::<Vec<_>>(), [expected]);
        assert_eq!((differences.len(), differences.untracked()), (4, Difference::default()));
    }

    /// At each bound, known descriptors are still counted, and others are summed up.
    #[test]
    fn descriptors_over_a_bound_are_summed_up() {
        for (descriptors, bytes) in [(2, 1_000), (1_000, 2 * "dx0".len())] {
            let mut differences = DescriptorDifferences::bounded(descriptors, bytes);
            for _ in 0..3 {
                for index in 0..5 {
                    differences.add("d", &format!("x{index}"), true, 10);
                }
            }
            let shown = differences.top(10);
            let names: Vec<&str> = shown.iter().map(|one| &*one.descriptor).collect();
            assert_eq!(names, ["x0", "x1"]);
            assert!(shown.iter().all(|one| one.difference.more == 3));
            let untracked = differences.untracked();
            assert_eq!((untracked.more, untracked.more_hits, untracked.fewer), (9, 90, 0));
        }
    }

    #[test]
    fn sums_of_hits_saturate() {
        let mut difference = Difference::default();
        difference.add(true, u64::MAX);
        difference.add(true, 1);
        assert_eq!((difference.more, difference.more_hits), (2, u64::MAX));
    }
}
