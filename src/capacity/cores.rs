//! Cores in use: their bounds, and how the cost of a call depends on the time that threads sleep.
//!
//! A thread that sleeps costs more per call than a busy one: it wakes up for the call, and its caches are
//! cold. At 8 calls per second, a call costs an instance tens of times what it costs under saturation.

use serde::Serialize;

/// The lower bound, relative to the measured costs: figures of other algorithms, numbers of instances
/// and rounds are as low.
const LOW: f64 = 0.5;
/// The upper bound, in the same way.
const HIGH: f64 = 1.5;

/// Bounds of the cores in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cores {
    /// The cheapest counters, and no more wake-ups than at the highest rate with a measured cost.
    pub low: f64,
    /// The costliest counters, and wake-ups as long as threads sleep. Over the number of cores, the load is
    /// too high.
    pub high: f64,
}

/// What a load needs, in cores: the work of busy threads, and the wake-ups if all threads slept.
#[derive(Clone, Copy)]
pub(super) struct CoreNeeds {
    pub(super) busy: f64,
    pub(super) wake_ups: f64,
}

impl Cores {
    /// The bounds of the use of `cores` cores.
    pub(super) fn of(low: CoreNeeds, high: CoreNeeds, cores: f64) -> Cores {
        Cores { low: low.times(LOW).used(cores), high: high.times(HIGH).used(cores) }
    }

    pub(super) fn times(self, factor: f64) -> Cores {
        Cores { low: self.low * factor, high: self.high * factor }
    }

    pub(super) fn plus(self, other: Cores) -> Cores {
        Cores { low: self.low + other.low, high: self.high + other.high }
    }
}

impl CoreNeeds {
    fn times(self, factor: f64) -> CoreNeeds {
        CoreNeeds { busy: self.busy * factor, wake_ups: self.wake_ups * factor }
    }

    /// The cores in use out of `cores`. Threads that are busy for the share `u` of the time sleep for
    /// `1 - u`, and only a call that finds its thread asleep wakes it up. So
    /// `u * cores = busy + wake_ups * (1 - u)`.
    fn used(self, cores: f64) -> f64 {
        self.busy.max((self.busy + self.wake_ups) / (1.0 + self.wake_ups / cores))
    }
}

/// The cost of a call that wakes its threads up, as it was measured at two rates per second.
pub(super) struct CostByRate {
    pub(super) rates: [f64; 2],
    pub(super) seconds: [f64; 2],
}

impl CostByRate {
    /// CPU seconds of a call at `rate` calls per second: the power of the rate that both costs have, which is
    /// a line in logarithms. Over the faster rate it is the cost of that rate, and under one call per
    /// second that of one.
    ///
    /// The power continues under the slower rate, because calls still get colder there, and the fixed work
    /// of a process, which is part of the cost, is shared by fewer calls.
    pub(super) fn at(&self, rate: f64) -> f64 {
        let ([slow, fast], [at_slow, at_fast]) = (self.rates, self.seconds);
        let share = (rate.clamp(1.0, fast) / slow).ln() / (fast / slow).ln();
        at_slow * (at_fast / at_slow).powf(share)
    }

    /// The highest rate with a measured cost.
    pub(super) fn fastest(&self) -> f64 {
        self.rates[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn cost_is_a_power_of_the_rate() {
        let cost = CostByRate { rates: [10.0, 1_000.0], seconds: [0.4, 0.1] };
        for (rate, expected) in
            [(0.0, 0.8), (1.0, 0.8), (10.0, 0.4), (100.0, 0.2), (1e3, 0.1), (1e9, 0.1)]
        {
            assert!(is_close(cost.at(rate), expected), "{rate}: {}", cost.at(rate));
        }
    }

    #[test]
    fn wake_ups_alone_never_fill_all_cores() {
        // Busy, wake-ups and cores, and the cores in use.
        for (busy, wake_ups, cores, expected) in [
            (0.0, 0.0, 1.0, 0.0),
            (0.5, 0.0, 1.0, 0.5),
            (0.0, 1.0, 1.0, 0.5),
            (0.5, 1.0, 1.0, 0.75),
            (1.0, 5.0, 1.0, 1.0),
            (3.0, 5.0, 2.0, 3.0),
        ] {
            let used = CoreNeeds { busy, wake_ups }.used(cores);
            assert!(is_close(used, expected), "{busy} {wake_ups} {cores}: {used}");
        }
    }
}
