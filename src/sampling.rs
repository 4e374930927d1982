//! Chooses a share of requests at random.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::splitmix64;

/// A share of requests: from none to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SampledShare {
    /// A request is chosen if its random number is below this.
    Below(u64),
    /// All requests.
    All,
}

impl SampledShare {
    /// The share `part`, from 0 to 1.
    pub(crate) fn new(part: f64) -> SampledShare {
        if part >= 1.0 {
            return SampledShare::All;
        }
        // The conversion saturates.
        SampledShare::Below((part * 2.0_f64.powi(64)) as u64)
    }
}

/// Chooses requests. Threads share it.
#[derive(Debug)]
pub(crate) struct Sampler(AtomicU64);

impl Sampler {
    /// A sampler whose choices depend on `seed`.
    pub(crate) fn new(seed: u64) -> Sampler {
        Sampler(AtomicU64::new(seed))
    }

    /// Whether the next request is one of `share`.
    pub(crate) fn takes(&self, share: SampledShare) -> bool {
        match share {
            SampledShare::All => true,
            SampledShare::Below(end) => {
                // Each number is the first one of another seed.
                let mut seed = self.0.fetch_add(1, Ordering::Relaxed);
                splitmix64::next(&mut seed) < end
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_chosen() {
        let sampler = Sampler::new(7);
        let chosen = |part: f64| {
            let share = SampledShare::new(part);
            (0..100_000).filter(|_| sampler.takes(share)).count()
        };
        assert_eq!((chosen(0.0), chosen(1.0)), (0, 100_000));
        // The standard deviation is 137.
        let quarter = chosen(0.25);
        assert!((24_000..26_000).contains(&quarter), "{quarter}");
        assert!(SampledShare::new(0.5) < SampledShare::All);
        assert!(SampledShare::new(0.5) > SampledShare::new(0.25));
    }
}
