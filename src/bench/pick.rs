//! Which key the next call is about: uniform, or few of them most of the time.

use std::cell::Cell;

use super::plan::Spread;

/// Random numbers that are the same in every run (SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to but without `end`.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// From 0 up to but without 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Draws keys from 0 on.
#[derive(Clone, Debug)]
pub(super) enum Picker {
    Uniform(u64),
    Zipf(Zipf),
    InTurn { next: Cell<u64>, keys: u64 },
}

impl Picker {
    pub(super) fn new(keys: u64, spread: Spread) -> Picker {
        match spread {
            Spread::Uniform => Picker::Uniform(keys),
            Spread::Zipf(power) => Picker::Zipf(Zipf::new(keys, power)),
            Spread::InTurn { from } => Picker::InTurn { next: Cell::new(from % keys), keys },
        }
    }

    pub(super) fn pick(&self, random: &mut Random) -> u64 {
        match self {
            Picker::Uniform(keys) => random.below(*keys),
            Picker::Zipf(zipf) => zipf.pick(random) - 1,
            Picker::InTurn { next, keys } => next.replace((next.get() + 1) % keys),
        }
    }
}

/// Zipf's law, without a table: rejection-inversion of W. Hoermann and G. Derflinger, "Rejection-
/// inversion to generate variates from monotone discrete distributions", 1996.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    keys: f64,
    power: f64,
    /// The integral of the hat from its start to its end.
    first: f64,
    last: f64,
    /// Within so much of a whole number nothing needs to be rejected.
    sure: f64,
}

impl Zipf {
    fn new(keys: u64, power: f64) -> Zipf {
        let mut zipf = Zipf { keys: keys as f64, power, first: 0.0, last: 0.0, sure: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.keys + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.hat(2.0));
        zipf
    }

    fn hat(&self, x: f64) -> f64 {
        (-self.power * x.ln()).exp()
    }

    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        over(f64::exp_m1, (1.0 - self.power) * log) * log
    }

    fn inverse(&self, x: f64) -> f64 {
        let scaled = (x * (1.0 - self.power)).max(-1.0);
        (over(f64::ln_1p, scaled) * x).exp()
    }

    /// From 1 to the number of keys.
    fn pick(&self, random: &mut Random) -> u64 {
        loop {
            let drawn = self.last + random.unit() * (self.first - self.last);
            let x = self.inverse(drawn);
            let whole = x.round().clamp(1.0, self.keys);
            let accepted =
                whole - x <= self.sure || drawn >= self.integral(whole + 0.5) - self.hat(whole);
            if accepted {
                return whole as u64;
            }
        }
    }
}

/// `function(x) / x` for a function that is as good as `x` near 0.
fn over(function: impl Fn(f64) -> f64, x: f64) -> f64 {
    if x.abs() < 1e-8 { 1.0 } else { function(x) / x }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    fn counts(keys: u64, spread: Spread) -> Vec<u64> {
        let (picker, mut random) = (Picker::new(keys, spread), Random::new(1));
        let mut counts = vec![0; keys as usize];
        (0..DRAWS).for_each(|_| counts[picker.pick(&mut random) as usize] += 1);
        counts
    }

    /// The seed is fixed, so the counts are: the bound is six standard deviations.
    fn assert_shares(counts: &[u64], weight: impl Fn(usize) -> f64, what: &str) {
        let total: f64 = (0..counts.len()).map(&weight).sum();
        for (index, count) in counts.iter().enumerate() {
            let expected = DRAWS as f64 * weight(index) / total;
            let off = (*count as f64 - expected).abs();
            assert!(off <= 6.0 * expected.sqrt() + 1.0, "{what}: key {index}: {count}, {expected}");
        }
    }

    #[test]
    fn uniform_keys_come_equally_often() {
        assert_shares(&counts(50, Spread::Uniform), |_| 1.0, "uniform");
        assert_eq!(counts(1, Spread::Uniform), [DRAWS]);
    }

    #[test]
    fn keys_in_turn_begin_where_they_shall_and_start_again() {
        let (picker, mut random) = (Picker::new(3, Spread::InTurn { from: 4 }), Random::new(1));
        let picked: Vec<u64> = (0..5).map(|_| picker.pick(&mut random)).collect();
        assert_eq!(picked, [1, 2, 0, 1, 2]);
    }

    #[test]
    fn zipf_keys_come_in_proportion_to_a_power_of_their_rank() {
        for power in [0.5, 0.99, 1.0, 1.2, 3.0] {
            let law = |index: usize| ((index + 1) as f64).powf(-power);
            assert_shares(&counts(100, Spread::Zipf(power)), law, &power.to_string());
        }
        assert_eq!(counts(1, Spread::Zipf(1.0)), [DRAWS]);
    }

    #[test]
    fn a_zipf_key_of_many_is_one_of_them() {
        let (picker, mut random) = (Picker::new(1 << 40, Spread::Zipf(0.01)), Random::new(7));
        assert!((0..DRAWS).all(|_| picker.pick(&mut random) < 1 << 40));
    }
}
