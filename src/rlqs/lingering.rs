//! What has ended, but counts until an instant.

use std::collections::BTreeMap;

use crate::time::Micros;

/// How much of each owner has ended and counts until when. It has at most one entry per owner and
/// second.
#[derive(Debug)]
pub(super) struct Lingering<K>(BTreeMap<(Micros, K), u64>);

impl<K: Copy + Ord> Lingering<K> {
    /// Without an entry.
    pub(super) fn new() -> Lingering<K> {
        Lingering(BTreeMap::new())
    }

    /// One more of `owner` counts until `until`.
    pub(super) fn add(&mut self, until: Micros, owner: K) {
        // Rounded up to a second, so that there are few entries.
        let until = Micros::from_secs(until.ceil_secs());
        *self.0.entry((until, owner)).or_default() += 1;
    }

    /// Removes an entry that does not count any longer at `now`: its owner, and how much it was. `None`
    /// if all others count.
    pub(super) fn take_expired(&mut self, now: Micros) -> Option<(K, u64)> {
        let first = self.0.first_entry()?;
        let (until, owner) = *first.key();
        if until > now {
            return None;
        }
        Some((owner, first.remove()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_expires_at_its_second() {
        let mut lingering = Lingering::new();
        for (until, owner) in [(12_500_000, 'a'), (13_000_000, 'a'), (12_000_001, 'b'), (1, 'a')] {
            lingering.add(Micros(until), owner);
        }
        assert_eq!(lingering.0.len(), 3);
        let table: [(u64, Vec<(char, u64)>); 4] = [
            (999_999, vec![]),
            (12_999_999, vec![('a', 1)]),
            (13_000_000, vec![('a', 2), ('b', 1)]),
            (20_000_000, vec![]),
        ];
        for (now, all) in table {
            let expired = std::iter::from_fn(|| lingering.take_expired(Micros(now)));
            let taken: Vec<(char, u64)> = expired.collect();
            assert_eq!(taken, all, "{now}");
        }
    }
}
