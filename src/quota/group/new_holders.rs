//! Holders that may wait for their first share.

use std::collections::BTreeSet;

use super::super::ledger::HolderId;

/// The holders that appeared, until they were seen to have a share. All have a stream.
#[derive(Debug, Default)]
pub(super) struct NewHolders(BTreeSet<HolderId>);

impl NewHolders {
    /// A holder appears.
    pub(super) fn add(&mut self, holder: HolderId) {
        self.0.insert(holder);
    }

    /// The stream of a holder ended.
    pub(super) fn remove(&mut self, holder: HolderId) {
        self.0.remove(&holder);
    }

    /// Whether one of them `waits`. One that does not is removed, so that it is looked at once.
    pub(super) fn any(&mut self, waits: impl Fn(HolderId) -> bool) -> bool {
        while let Some(holder) = self.0.last() {
            if waits(*holder) {
                return true;
            }
            self.0.pop_last();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn each_holder_without_a_wait_is_looked_at_once() {
        let (mut new, looks) = (NewHolders::default(), Cell::new(0));
        (0..1_000).for_each(|number| new.add(HolderId([number, 0])));
        new.remove(HolderId([7, 0]));
        let waits = |first: u64| {
            let looks = &looks;
            move |HolderId([number, _])| {
                looks.set(looks.get() + 1);
                number <= first
            }
        };
        for _ in 0..1_000 {
            assert!(new.any(waits(7)), "others wait");
        }
        assert!((1_992..=1_999).contains(&looks.replace(0)), "992 have a share");
        assert!(!new.any(|_| false));
        (0..1_000).for_each(|_| assert!(!new.any(waits(1_000))));
        assert_eq!(looks.get(), 0, "none is left");
    }
}
