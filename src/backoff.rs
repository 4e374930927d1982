//! The pauses between attempts to reach a server. Pure; the random number is an argument.

use std::time::Duration;

/// Pauses that double with each failed attempt, up to a bound.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    initial: Duration,
    max: Duration,
    /// The upper bound of the next pause.
    next: Duration,
}

impl Backoff {
    /// The first pause is at most `initial`. Later ones are at most `max`, or `initial` if that is
    /// longer.
    pub(crate) fn new(initial: Duration, max: Duration) -> Backoff {
        Backoff { initial, max: max.max(initial), next: initial }
    }

    /// The next pause: between half of its upper bound and all of it. All values of `random` must be
    /// equally likely, so that clients do not connect at the same time.
    pub(crate) fn pause(&mut self, random: u64) -> Duration {
        let bound = self.next;
        self.next = bound.saturating_mul(2).min(self.max);
        let share = random as f64 / u64::MAX as f64;
        bound.mul_f64(0.5 + share / 2.0).min(bound)
    }

    /// Starts again with the first pause.
    pub(crate) fn reset(&mut self) {
        self.next = self.initial;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn pauses_double_up_to_the_bound() {
        let mut backoff = Backoff::new(MS(500), MS(10_000));
        let longest = [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000].map(MS);
        assert_eq!(longest.map(|_| backoff.pause(u64::MAX)), longest);
        backoff.reset();
        assert_eq!([0; 3].map(|random| backoff.pause(random)), [250, 500, 1_000].map(MS));
    }

    proptest! {
        #[test]
        fn each_pause_is_in_the_upper_half_of_its_bound(
            (initial, max) in (1_u64..100_000, 1_u64..1_000_000),
            attempts in prop::collection::vec((any::<u64>(), prop::bool::weighted(0.1)), 1..100),
        ) {
            let mut backoff = Backoff::new(MS(initial), MS(max));
            let mut bound = initial;
            for (random, delivered) in attempts {
                if delivered {
                    backoff.reset();
                    bound = initial;
                }
                let pause = backoff.pause(random);
                prop_assert!(pause >= MS(bound) / 2 && pause <= MS(bound), "{pause:?} of {bound}");
                bound = (bound * 2).min(max.max(initial));
            }
        }
    }
}
