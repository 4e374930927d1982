//! Simulated traffic: the instants at which each source sends its requests.
//!
//! Every source has its own generator, seeded by its number, so that the traffic does not depend on
//! the number of threads.

use weir::splitmix64;

/// The distribution of requests over sources and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Random, independent requests (Poisson) over one day. The busiest source sends twice as many
    /// as the second and three times as many as the third (Zipf).
    Steady,
    /// The same numbers per source, in bursts of 20 requests on average, exponentially distributed,
    /// 200 ms apart or at four times the source's mean rate, whichever is faster. At night a source
    /// sends a quarter of its mean rate, by day seven quarters, with linear transitions.
    Bursty,
    /// Poisson, with every source near the limit: its mean rate is uniform between half the limit
    /// and one and a half times the limit.
    Near,
    /// The worst case: sources that know the window edges. They send the limit in the last
    /// microseconds of one window, and in the next window one more as soon as it fits.
    Edge,
}

/// The volume of traffic, and the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Volume {
    /// Requests of all sources; at least one per source.
    pub(crate) requests: u64,
    /// Sources.
    pub(crate) sources: u64,
    /// Requests per window that are allowed.
    pub(crate) limit: u64,
    /// Length of the window in microseconds.
    pub(crate) window: u64,
}

/// The start: 2026-01-01, in microseconds since the epoch.
const START: u64 = 1_767_225_600_000_000;
const DAY: u64 = 86_400_000_000;
const SEED: u64 = 20_170_607;

const BURST: f64 = 20.0;
const BURST_GAP: f64 = 200_000.0;

/// The number of requests per source, the busiest first.
pub(crate) fn shares(traffic: Traffic, volume: &Volume) -> Vec<u64> {
    let weight = |rank: u64| match traffic {
        Traffic::Steady | Traffic::Bursty => 1.0 / rank as f64,
        Traffic::Near | Traffic::Edge => 1.0,
    };
    let total: f64 = (1..=volume.sources).map(weight).sum();
    let share = |rank| (volume.requests as f64 * weight(rank) / total) as u64;
    let mut shares: Vec<u64> = (1..=volume.sources).map(share).collect();
    let missing = volume.requests.saturating_sub(shares.iter().sum());
    let count = shares.len() as u64;
    for (index, share) in shares.iter_mut().enumerate() {
        *share += missing / count + u64::from((index as u64) < missing % count);
    }
    shares
}

/// The instants of one source's requests, in microseconds since the epoch, never decreasing.
pub(crate) struct Source {
    traffic: Traffic,
    volume: Volume,
    random: Random,
    now: u64,
    /// Requests so far and in all.
    sent: u64,
    requests: u64,
    /// Mean time between two requests, in microseconds.
    gap: f64,
    /// Requests left in the current burst.
    burst: u64,
}

impl Source {
    /// Source number `index` with `requests` requests.
    pub(crate) fn new(traffic: Traffic, volume: Volume, index: u64, requests: u64) -> Source {
        let mut random = Random(SEED ^ index.wrapping_mul(0xd134_2543_de82_ef95));
        let gap = match traffic {
            Traffic::Steady | Traffic::Bursty => DAY as f64 / requests as f64,
            Traffic::Near | Traffic::Edge => {
                volume.window as f64 / (volume.limit as f64 * (0.5 + random.share()))
            }
        };
        let first = START / volume.window * volume.window;
        let now = if traffic == Traffic::Edge { first } else { first + random.exponential(gap) };
        Source { traffic, volume, random, now, sent: 0, requests, gap, burst: 0 }
    }

    fn next_in_burst(&mut self) -> u64 {
        let within = BURST_GAP.min(self.gap / 4.0);
        if self.burst > 0 {
            self.burst -= 1;
            return self.random.exponential(within);
        }
        self.burst = self.random.exponential(BURST);
        // A triangle: 0 at midnight, 1 at noon.
        let noon = (self.now % DAY).abs_diff(DAY / 2) as f64 / (DAY / 2) as f64;
        let pace = 0.25 + 1.5 * (1.0 - noon);
        self.random.exponential((self.gap / pace - within) * BURST)
    }

    /// The instant of request `number` of an attack on the window edges.
    fn at_edge(&self, number: u64) -> u64 {
        let Volume { limit, window, .. } = self.volume;
        let (round, turn) = (number / (2 * limit - 1), number % (2 * limit - 1));
        let edge = self.now + (2 * round + 1) * window;
        if turn < limit {
            edge - limit + turn
        } else {
            edge + ((turn - limit + 1) * window).div_ceil(limit)
        }
    }
}

impl Iterator for Source {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.sent == self.requests {
            return None;
        }
        let number = self.sent;
        self.sent += 1;
        if self.traffic == Traffic::Edge {
            return Some(self.at_edge(number));
        }
        let now = self.now;
        self.now += match self.traffic {
            Traffic::Bursty => self.next_in_burst(),
            _ => self.random.exponential(self.gap),
        };
        Some(now)
    }
}

/// A generator of random numbers.
struct Random(u64);

impl Random {
    /// Uniform over 0..1, without either end.
    fn share(&mut self) -> f64 {
        let number = splitmix64::next(&mut self.0);
        ((number >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Exponentially distributed around `mean`, rounded down.
    fn exponential(&mut self, mean: f64) -> u64 {
        (-self.share().ln() * mean) as u64
    }
}
