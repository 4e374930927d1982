//! A histogram of durations: one atomic counter per bucket and shard.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sharded::Sharded;
use crate::time::Micros;

/// Upper bounds of the buckets in microseconds: from a decision in memory (10 us) to the longest
/// timeout of a caller (10 s). The bounds from 5 ms are those of envoyproxy/ratelimit's exporter.
const BOUNDS: [u64; 19] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
    500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// Durations counted by size.
#[derive(Debug, Default)]
pub struct Histogram(Sharded<Buckets>);

#[derive(Debug, Default)]
struct Buckets {
    /// Observations per bucket, not cumulative. The last bucket has no upper bound.
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
}

impl Histogram {
    /// Counts `duration`.
    pub fn record(&self, duration: Micros) {
        let bucket = BOUNDS.partition_point(|bound| *bound < duration.0);
        let buckets = self.0.local();
        buckets.counts[bucket].fetch_add(1, Ordering::Relaxed);
        buckets.sum.fetch_add(duration.0, Ordering::Relaxed);
    }

    /// The counts so far, with bounds and sum in seconds.
    pub fn distribution(&self) -> Distribution {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of = |bucket: usize| self.0.all().map(|one| read(&one.counts[bucket])).sum::<u64>();
        let mut count = 0;
        let mut buckets = Vec::with_capacity(BOUNDS.len());
        for (bucket, bound) in BOUNDS.iter().enumerate() {
            count += of(bucket);
            buckets.push((*bound as f64 / 1e6, count));
        }
        count += of(BOUNDS.len());
        let sum: u64 = self.0.all().map(|one| read(&one.sum)).sum();
        Distribution { buckets, count, sum: sum as f64 / 1e6 }
    }
}

/// Observations by size, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Upper bound of each bucket, and the observations up to it, smaller buckets included.
    pub buckets: Vec<(f64, u64)>,
    /// Number of observations.
    pub count: u64,
    /// Sum of the observations.
    pub sum: f64,
}

impl Distribution {
    /// The observations that were added since `before`, an earlier distribution of the same histogram.
    pub fn since(&self, before: &Distribution) -> Distribution {
        let earlier = |index: usize| before.buckets.get(index).map_or(0, |(_, count)| *count);
        let buckets = self.buckets.iter().enumerate();
        let added = buckets.map(|(index, (bound, count))| {
            // The counts are read one after the other, while threads add to them.
            (*bound, count.saturating_sub(earlier(index)))
        });
        Distribution {
            buckets: added.collect(),
            count: self.count.saturating_sub(before.count),
            sum: (self.sum - before.sum).max(0.0),
        }
    }

    /// The duration in seconds that the share `quantile` of the observations does not exceed, linear within
    /// a bucket. Over the last bound, it is that bound. `None` without observations.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let rank = quantile * self.count as f64;
        let (mut low, mut before) = (0.0, 0);
        for (bound, count) in &self.buckets {
            if *count as f64 >= rank && *count > before {
                let within = (rank - before as f64) / (*count - before) as f64;
                return Some(low + (bound - low) * within.max(0.0));
            }
            (low, before) = (*bound, *count);
        }
        Some(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_its_bucket_and_all_larger_ones() {
        let histogram = Histogram::default();
        for micros in [0, 10, 11, 4_999, 5_000, 5_001, 19_000_000] {
            histogram.record(Micros(micros));
        }
        let seen = histogram.distribution();
        let up_to = |end: f64| seen.buckets.iter().find(|bucket| bucket.0 == end).unwrap().1;
        assert_eq!([up_to(0.00001), up_to(0.000025), up_to(0.005), up_to(10.0)], [2, 3, 5, 6]);
        assert_eq!(seen.count, 7);
        assert_eq!(seen.sum, 19.015_021);
    }
    #[test]
    fn a_quantile_is_within_its_bucket() {
        let micros = |distribution: &Distribution, quantile: f64| {
            distribution.quantile(quantile).map(|seconds| (seconds * 1e6).round() as u64)
        };
        let histogram = Histogram::default();
        assert_eq!(histogram.distribution().quantile(0.5), None);
        (0..50).for_each(|_| histogram.record(Micros(20)));
        let first = histogram.distribution();
        assert_eq!(micros(&first, 1.0), Some(25));
        (0..100).for_each(|_| histogram.record(Micros(400)));
        let added = histogram.distribution().since(&first);
        assert_eq!(added.count, 100);
        assert_eq!(micros(&added, 0.5), Some(375), "half of the bucket from 250 to 500 us");
        (0..100).for_each(|_| histogram.record(Micros(60_000_000)));
        let slow = histogram.distribution().since(&first);
        assert_eq!(micros(&slow, 0.99), Some(10_000_000), "the last bound");
        assert_eq!(slow.since(&slow).quantile(0.99), None);
    }
}
