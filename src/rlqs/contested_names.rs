//! Names that two Envoys of one client had at a time, at two instances.

use std::collections::{HashSet, VecDeque};

use crate::key::CounterKey;
use crate::time::Micros;

/// How long a name is contested.
const CONTESTED_FOR: Micros = Micros::from_secs(3_600);

/// The most names, with which the table takes less than 500 KB. With more, the first one is not contested any
/// longer.
const NAMES_MAX: usize = 4_096;

/// The contested names of one instance, each as a keyed hash with its client and domain.
///
/// Only a report shows that two Envoys have one name: one whose holder another instance has written since. An
/// Envoy that moves to another instance sends no report by its old stream, so its name is not contested.
#[derive(Debug, Default)]
pub(super) struct ContestedNames {
    names: HashSet<CounterKey>,
    /// The names, in the order of their ends.
    ends: VecDeque<(Micros, CounterKey)>,
}

impl ContestedNames {
    /// A name is contested from `now` on.
    pub(super) fn add(&mut self, name: CounterKey, now: Micros) {
        self.expire(now);
        if !self.names.insert(name) {
            return;
        }
        self.ends.push_back((now.saturating_add(CONTESTED_FOR), name));
        if self.ends.len() > NAMES_MAX {
            self.remove_first();
        }
    }

    /// Whether a name is contested at `now`.
    pub(super) fn has(&mut self, name: &CounterKey, now: Micros) -> bool {
        self.expire(now);
        self.names.contains(name)
    }

    fn expire(&mut self, now: Micros) {
        while self.ends.front().is_some_and(|(end, _)| *end <= now) {
            self.remove_first();
        }
    }

    fn remove_first(&mut self) {
        if let Some((_, name)) = self.ends.pop_front() {
            self.names.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64) -> CounterKey {
        CounterKey([number, 0])
    }

    #[test]
    fn a_name_is_contested_for_an_hour() {
        let mut names = ContestedNames::default();
        names.add(name(1), Micros::from_secs(10));
        names.add(name(1), Micros::from_secs(20));
        names.add(name(2), Micros::from_secs(30));
        for (now, expected) in [(3_609, [true, true]), (3_610, [false, true]), (3_630, [false; 2])]
        {
            let has = [1, 2].map(|number| names.has(&name(number), Micros::from_secs(now)));
            assert_eq!(has, expected, "{now}");
        }
        assert!(names.names.is_empty() && names.ends.is_empty());
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let mut names = ContestedNames::default();
        let all = 0..2 * NAMES_MAX as u64;
        all.clone().for_each(|number| names.add(name(number), Micros(number)));
        let now = Micros(1 << 20);
        let first = all.clone().find(|number| names.has(&name(*number), now));
        assert_eq!(first, Some(NAMES_MAX as u64));
        assert_eq!((names.names.len(), names.ends.len()), (NAMES_MAX, NAMES_MAX));
    }
}
