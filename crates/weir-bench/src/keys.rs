//! The keys of calls: uniformly distributed, by Zipf's law, or sequential.

use std::cell::Cell;

use crate::plan::KeyDistribution;

/// Reproducible random numbers: SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..end`.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number in `[0, 1)`.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Draws keys; the first key is 0.
#[derive(Clone, Debug)]
pub(crate) enum KeyPicker {
    Uniform(u64),
    Zipf(Zipf),
    Sequential { next: Cell<u64>, keys: u64 },
}

impl KeyPicker {
    pub(crate) fn new(keys: u64, distribution: KeyDistribution) -> KeyPicker {
        match distribution {
            KeyDistribution::Uniform => KeyPicker::Uniform(keys),
            KeyDistribution::Zipf(power) => KeyPicker::Zipf(Zipf::new(keys, power)),
            KeyDistribution::Sequential { from } => {
                KeyPicker::Sequential { next: Cell::new(from % keys), keys }
            }
        }
    }

    pub(crate) fn pick(&self, random: &mut SplitMix64) -> u64 {
        match self {
            KeyPicker::Uniform(keys) => random.below(*keys),
            KeyPicker::Zipf(zipf) => zipf.pick(random) - 1,
            KeyPicker::Sequential { next, keys } => next.replace((next.get() + 1) % keys),
        }
    }
}

/// Zipf's law without a table: W. Hoermann and G. Derflinger, "Rejection-inversion to generate
/// variates from monotone discrete distributions", 1996.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    keys: f64,
    power: f64,
    /// The integral of the hat function at its start and at its end.
    first: f64,
    last: f64,
    /// A draw this close to a whole number is accepted without a further check.
    accept_within: f64,
}

impl Zipf {
    fn new(keys: u64, power: f64) -> Zipf {
        let mut zipf = Zipf { keys: keys as f64, power, first: 0.0, last: 0.0, accept_within: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.keys + 0.5);
        zipf.accept_within = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.hat(2.0));
        zipf
    }

    fn hat(&self, x: f64) -> f64 {
        (-self.power * x.ln()).exp()
    }

    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        ratio(f64::exp_m1, (1.0 - self.power) * log) * log
    }

    fn inverse(&self, x: f64) -> f64 {
        let scaled = (x * (1.0 - self.power)).max(-1.0);
        (ratio(f64::ln_1p, scaled) * x).exp()
    }

    /// A rank from 1 to the number of keys.
    fn pick(&self, random: &mut SplitMix64) -> u64 {
        loop {
            let drawn = self.last + random.unit() * (self.first - self.last);
            let x = self.inverse(drawn);
            let whole = x.round().clamp(1.0, self.keys);
            let accepted = whole - x <= self.accept_within
                || drawn >= self.integral(whole + 0.5) - self.hat(whole);
            if accepted {
                return whole as u64;
            }
        }
    }
}

/// `function(x) / x`, for a function that is close to `x` near 0.
fn ratio(function: impl Fn(f64) -> f64, x: f64) -> f64 {
    if x.abs() < 1e-8 { 1.0 } else { function(x) / x }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    fn counts(keys: u64, distribution: KeyDistribution) -> Vec<u64> {
        let (picker, mut random) = (KeyPicker::new(keys, distribution), SplitMix64::new(1));
        let mut counts = vec![0; keys as usize];
        (0..DRAWS).for_each(|_| counts[picker.pick(&mut random) as usize] += 1);
        counts
    }

    /// The bound is six standard deviations. The seed is fixed, so the counts never change.
    fn assert_shares(counts: &[u64], weight: impl Fn(usize) -> f64, what: &str) {
        let total: f64 = (0..counts.len()).map(&weight).sum();
        for (index, count) in counts.iter().enumerate() {
            let expected = DRAWS as f64 * weight(index) / total;
            let off = (*count as f64 - expected).abs();
            assert!(off <= 6.0 * expected.sqrt() + 1.0, "{what}: key {index}: {count}, {expected}");
        }
    }

    #[test]
    fn uniform_keys_are_equally_frequent() {
        assert_shares(&counts(50, KeyDistribution::Uniform), |_| 1.0, "uniform");
        assert_eq!(counts(1, KeyDistribution::Uniform), [DRAWS]);
    }

    #[test]
    fn sequential_keys_start_at_from_and_wrap() {
        let (picker, mut random) =
            (KeyPicker::new(3, KeyDistribution::Sequential { from: 4 }), SplitMix64::new(1));
        let picked: Vec<u64> = (0..5).map(|_| picker.pick(&mut random)).collect();
        assert_eq!(picked, [1, 2, 0, 1, 2]);
    }

    #[test]
    fn zipf_keys_follow_the_power_of_their_rank() {
        for power in [0.5, 0.99, 1.0, 1.2, 3.0] {
            let law = |index: usize| ((index + 1) as f64).powf(-power);
            assert_shares(&counts(100, KeyDistribution::Zipf(power)), law, &power.to_string());
        }
        assert_eq!(counts(1, KeyDistribution::Zipf(1.0)), [DRAWS]);
    }

    #[test]
    fn zipf_stays_in_range_with_2_to_the_40_keys() {
        let (picker, mut random) =
            (KeyPicker::new(1 << 40, KeyDistribution::Zipf(0.01)), SplitMix64::new(7));
        assert!((0..DRAWS).all(|_| picker.pick(&mut random) < 1 << 40));
    }
}
