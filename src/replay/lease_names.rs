//! The leases that a replay has opened, by the ids of the recording.
//!
//! A replay opens its own leases. A recorded descriptor that closes a lease has the recorded id, so it
//! needs the id that the replay has instead.

use std::collections::HashMap;
use std::mem;

/// The most leases that are known at the same time. The oldest half is dropped for more. Their slots
/// expire after `hold`.
const LEASES_MAX: usize = 1 << 20;

/// The longest id in bytes. An id has 16 digits, and its hash has 32.
const ID_BYTES_MAX: usize = 64;

/// The ids of the replay by the ids of the recording. Closed leases stay until they are old, because
/// several descriptors may close parts of one lease.
#[derive(Debug, Default)]
pub(super) struct LeaseNames {
    recent: HashMap<Box<str>, Box<str>>,
    older: HashMap<Box<str>, Box<str>>,
}

impl LeaseNames {
    /// Adds a lease that has the id `recorded` in the recording, and `own` in the replay. A text that is
    /// too long for an id is not added.
    pub(super) fn add(&mut self, recorded: &str, own: &str) {
        self.add_bounded(recorded, own, LEASES_MAX);
    }

    fn add_bounded(&mut self, recorded: &str, own: &str, max: usize) {
        if recorded.len() > ID_BYTES_MAX {
            return;
        }
        if self.recent.len() >= max / 2 {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(recorded.into(), own.into());
    }

    /// The replay's id of a lease with the id `recorded`; `None` if the replay did not open it.
    pub(super) fn own(&self, recorded: &str) -> Option<&str> {
        let found = self.recent.get(recorded).or_else(|| self.older.get(recorded));
        found.map(|own| &**own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_leases_are_known() {
        let mut names = LeaseNames::default();
        for number in 0..100_u64 {
            names.add_bounded(&format!("recorded-{number}"), &format!("own-{number}"), 20);
            assert!(names.recent.len() + names.older.len() <= 20);
            for newest in number.saturating_sub(9)..=number {
                let own = names.own(&format!("recorded-{newest}"));
                assert_eq!(own, Some(&*format!("own-{newest}")), "{number}");
            }
        }
        assert_eq!(names.own("recorded-0"), None);
        assert_eq!(names.own("unknown"), None);
    }

    #[test]
    fn only_a_text_of_the_length_of_an_id_is_kept() {
        let mut names = LeaseNames::default();
        let (longest, longer) = ("x".repeat(ID_BYTES_MAX), "x".repeat(ID_BYTES_MAX + 1));
        names.add(&longest, "a");
        names.add(&longer, "b");
        assert_eq!((names.own(&longest), names.own(&longer)), (Some("a"), None));
    }
}
