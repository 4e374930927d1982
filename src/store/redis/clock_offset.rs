//! How far a node's clock is from ours: the offset measured in the fastest of the last round samples.
//!
//! A node's `TIME` was read somewhere between sending and receiving, so half the round sample bounds
//! the error (Cristian's algorithm: F. Cristian, Probabilistic clock synchronization, 1989). The
//! fastest sample bounds it best; old ones leave, because clocks drift.

use crate::time::Micros;

/// RttSamples that are remembered.
const KEPT: usize = 8;

/// One question and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RttSample {
    /// Our clock when the question left.
    pub(super) sent: Micros,
    /// Our clock when the answer came.
    pub(super) received: Micros,
    /// The node's clock in the answer.
    pub(super) node: Micros,
}

impl RttSample {
    fn length(&self) -> Micros {
        self.received.saturating_sub(self.sent)
    }

    /// RedisNode's clock less ours, in microseconds, right to half the length.
    fn offset(&self) -> i64 {
        let middle = self.sent.0 + self.length().0 / 2;
        i64::try_from(i128::from(self.node.0) - i128::from(middle)).unwrap_or(0)
    }
}

/// The last samples to one node.
#[derive(Clone, Debug, Default)]
pub(super) struct RttSamples {
    kept: [Option<RttSample>; KEPT],
    next: usize,
}

impl RttSamples {
    /// Takes one more sample, forgets the oldest, and says the offset that is known best now.
    pub(super) fn add(&mut self, sample: RttSample) -> i64 {
        self.kept[self.next] = Some(sample);
        self.next = (self.next + 1) % KEPT;
        let fastest = self.kept.iter().flatten().min_by_key(|sample| sample.length());
        fastest.map_or(0, RttSample::offset)
    }
}

/// `instant` moved by `offset` microseconds; stops at the epoch.
pub(super) fn shift(instant: Micros, offset: i64) -> Micros {
    Micros(instant.0.saturating_add_signed(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sent: u64, length: u64, node: u64) -> RttSample {
        RttSample { sent: Micros(sent), received: Micros(sent + length), node: Micros(node) }
    }

    #[test]
    fn the_fastest_of_the_last_trips_decides() {
        let mut samples = RttSamples::default();
        assert_eq!(samples.add(sample(1_000_000, 100, 1_000_050)), 0);
        assert_eq!(samples.add(sample(2_000_000, 900, 2_000_900)), 0, "a slower sample says less");
        assert_eq!(samples.add(sample(3_000_000, 40, 3_000_027)), 7, "a faster one says more");
        for second in 4..11 {
            assert_eq!(samples.add(sample(second * 1_000_000, 50, second * 1_000_000)), 7);
        }
        assert_eq!(
            samples.add(sample(11_000_000, 50, 11_000_000)),
            -25,
            "seven more and it is old"
        );
    }

    #[test]
    fn a_node_hours_away_in_either_direction_is_followed() {
        let mut samples = RttSamples::default();
        let hours = 7_200_000_000;
        assert_eq!(samples.add(sample(hours * 5, 10, hours * 4 + 5)), -7_200_000_000);
        assert_eq!(shift(Micros(hours * 5), -7_200_000_000), Micros(hours * 4));
        assert_eq!(shift(Micros(5), -6), Micros(0), "there is nothing before the epoch");
    }
}
