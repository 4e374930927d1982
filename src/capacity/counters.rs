//! The counters of a rule, in classes of counters with nearly the same share of the calls.

/// Counters with the most calls that have classes for themselves.
const SINGLE_COUNTER_CLASSES: u64 = 64;

/// The size of a further class, relative to all counters before it.
const CLASS_GROWTH: f64 = 0.25;

/// Some counters of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CounterClass {
    /// The number of counters.
    pub(super) counters: f64,
    /// The share of the rule's calls of each of them.
    pub(super) share: f64,
}

/// The classes of `counters` counters, the busiest first. By Zipf's law, the counter of rank `k` has
/// calls in proportion to `k^-skew`; 0 is the uniform distribution.
///
/// A class of the ranks `from..to` has the integral of `x^-skew` from `from - 1/2` to `to - 1/2`. The
/// shares of all classes are scaled to 1.
pub(super) fn classes(counters: u64, skew: f64) -> Vec<CounterClass> {
    let counters = counters.max(1);
    if skew == 0.0 {
        let all = counters as f64;
        return vec![CounterClass { counters: all, share: 1.0 / all }];
    }
    let mut classes = Vec::new();
    let mut from = 1;
    while from <= counters {
        let length =
            if from <= SINGLE_COUNTER_CLASSES { 1 } else { (from as f64 * CLASS_GROWTH) as u64 };
        let to = (from + length).min(counters + 1);
        let count = (to - from) as f64;
        let share = match length {
            1 => (from as f64).powf(-skew),
            _ => integral(from as f64 - 0.5, to as f64 - 0.5, skew) / count,
        };
        classes.push(CounterClass { counters: count, share });
        from = to;
    }
    let total: f64 = classes.iter().map(|class| class.counters * class.share).sum();
    for class in &mut classes {
        class.share /= total;
    }
    classes
}

/// The integral of `x^-skew` from `from` to `to`.
fn integral(from: f64, to: f64, skew: f64) -> f64 {
    let power = 1.0 - skew;
    if power.abs() < 1e-9 { (to / from).ln() } else { (to.powf(power) - from.powf(power)) / power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classes_have_all_counters_and_calls() {
        for (counters, skew) in
            [(0, 0.0), (1, 0.0), (1, 1.0), (64, 1.0), (65, 0.5), (100_000, 1.0), (1 << 40, 1.5)]
        {
            let classes = classes(counters, skew);
            let sum = |of: fn(&CounterClass) -> f64| classes.iter().map(of).sum::<f64>();
            assert_eq!(sum(|class| class.counters), counters.max(1) as f64, "{counters} {skew}");
            let calls = sum(|class| class.counters * class.share);
            assert!((calls - 1.0).abs() < 1e-9, "{counters} {skew}: {calls}");
            assert!(classes.is_sorted_by(|a, b| a.share >= b.share), "{counters} {skew}");
            assert!(classes.len() < 300, "{}", classes.len());
        }
    }

    /// Against the sum over all ranks.
    #[test]
    fn the_busiest_counter_has_its_share_by_zipf() {
        for skew in [0.5, 1.0, 1.2] {
            let exact: f64 = (1..=100_000).map(|rank| f64::from(rank).powf(-skew)).sum();
            let share = classes(100_000, skew)[0].share;
            assert!((share * exact - 1.0).abs() < 1e-3, "{skew}: {share} {exact}");
        }
    }
}
