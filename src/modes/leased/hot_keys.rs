//! HotKeys: which counters were asked for a moment ago, in a table that never grows.

use crate::key::Key;
use crate::time::Micros;

/// Counters that are remembered; a newer one takes the place of an older one.
const PLACES: usize = 256;

/// How long ago "a moment ago" is.
const MOMENT: Micros = Micros::from_secs(2);

/// The last keys, each in the place that its bits name.
pub(super) struct HotKeys {
    places: Box<[Option<(Key, Micros)>]>,
}

impl HotKeys {
    /// Of nothing yet.
    pub(super) fn new() -> HotKeys {
        HotKeys { places: vec![None; PLACES].into() }
    }

    /// Whether `key` was noted a moment before `now`. Notes it.
    pub(super) fn note(&mut self, key: &Key, now: Micros) -> bool {
        let place = &mut self.places[(key.0[1] % PLACES as u64) as usize];
        let before = place.replace((*key, now));
        before.is_some_and(|(noted, at)| noted == *key && now.saturating_sub(at) < MOMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_the_second_time_for_a_moment() {
        let mut hot_keys = HotKeys::new();
        let (key, same_place) = (Key([1, 1]), Key([2, 1 + PLACES as u64]));
        let at = Micros::from_secs;
        assert!(!hot_keys.note(&key, at(1)));
        assert!(hot_keys.note(&key, at(2)));
        assert!(!hot_keys.note(&key, at(4)), "too long ago");
        assert!(!hot_keys.note(&same_place, at(4)));
        assert!(!hot_keys.note(&key, at(4)), "the other took its place");
    }
}
