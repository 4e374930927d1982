//! Hot keys: a table of fixed size with the counters that had a request recently.

use crate::key::CounterKey;
use crate::time::Micros;

/// Slots of the table. A newer key replaces an older one in its slot.
const SLOTS: usize = 256;

/// The time after a request for which its key is hot.
pub(crate) const POOL_GAP_MAX: Micros = Micros::from_secs(2);

/// The latest keys. The bits of a key select its slot.
pub(super) struct HotKeys {
    slots: Box<[Option<(CounterKey, Micros)>]>,
}

impl HotKeys {
    /// An empty table.
    pub(super) fn new() -> HotKeys {
        HotKeys { slots: vec![None; SLOTS].into() }
    }

    /// Records a request at `now`. Returns whether the key was already hot.
    pub(super) fn record(&mut self, key: &CounterKey, now: Micros) -> bool {
        let slot = &mut self.slots[(key.0[1] % SLOTS as u64) as usize];
        let before = slot.replace((*key, now));
        before
            .is_some_and(|(recorded, at)| recorded == *key && now.saturating_sub(at) < POOL_GAP_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hot_for_two_seconds() {
        let mut keys = HotKeys::new();
        let (key, same_slot) = (CounterKey([1, 1]), CounterKey([2, 1 + SLOTS as u64]));
        let at = Micros::from_secs;
        assert!(!keys.record(&key, at(1)));
        assert!(keys.record(&key, at(2)));
        assert!(!keys.record(&key, at(4)), "too long ago");
        assert!(!keys.record(&same_slot, at(4)));
        assert!(!keys.record(&key, at(4)), "the other key replaced it");
    }
}
