//! Estimates the offset of a node's clock from the local clock, by the fastest of the last round
//! trips.
//!
//! The node reads its clock between the sending of the command and the arrival of its reply, so
//! half the round-trip time bounds the error (Cristian's algorithm: F. Cristian, Probabilistic
//! clock synchronization, 1989). The fastest round trip has the smallest bound. Old samples are
//! dropped, because clocks drift.

use crate::time::{ClockOffset, Micros};

/// Samples that are kept.
const SAMPLES_MAX: usize = 8;

/// One round trip of the `TIME` command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RttSample {
    /// The local clock when the command was sent.
    pub(crate) sent: Micros,
    /// The local clock when the reply arrived.
    pub(crate) received: Micros,
    /// The node's clock in the reply.
    pub(crate) node: Micros,
}

impl RttSample {
    fn rtt(&self) -> Micros {
        self.received.saturating_sub(self.sent)
    }

    /// The offset of the node's clock, exact to half the round-trip time.
    fn offset(&self) -> ClockOffset {
        let middle = self.sent.saturating_add(Micros(self.rtt().0 / 2));
        ClockOffset::between(middle, self.node)
    }
}

/// The last samples of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct RttSamples {
    kept: [Option<RttSample>; SAMPLES_MAX],
    next: usize,
}

impl RttSamples {
    /// Adds a sample in place of the oldest, and returns the best estimate of the offset.
    pub(crate) fn add(&mut self, sample: RttSample) -> ClockOffset {
        self.kept[self.next] = Some(sample);
        self.next = (self.next + 1) % SAMPLES_MAX;
        let fastest = self.kept.iter().flatten().min_by_key(|sample| sample.rtt());
        fastest.map(RttSample::offset).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sent: u64, length: u64, node: u64) -> RttSample {
        RttSample { sent: Micros(sent), received: Micros(sent + length), node: Micros(node) }
    }

    #[test]
    fn the_fastest_recent_round_trip_wins() {
        let mut samples = RttSamples::default();
        let mut add = |sent, length, node| samples.add(sample(sent, length, node)).micros();
        assert_eq!(add(1_000_000, 100, 1_000_050), 0);
        assert_eq!(add(2_000_000, 900, 2_000_900), 0, "a slower round trip changes nothing");
        assert_eq!(add(3_000_000, 40, 3_000_027), 7, "a faster one replaces it");
        for second in 4..11 {
            assert_eq!(add(second * 1_000_000, 50, second * 1_000_000), 7);
        }
        assert_eq!(add(11_000_000, 50, 11_000_000), -25, "after eight more it is dropped");
    }

    #[test]
    fn an_offset_of_hours_is_measured() {
        let mut samples = RttSamples::default();
        let hours = 7_200_000_000;
        let offset = samples.add(sample(hours * 5, 10, hours * 4 + 5));
        assert_eq!(offset.remote(Micros(hours * 5)), Micros(hours * 4));
    }
}
