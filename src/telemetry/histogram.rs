//! A histogram of lengths of time: plain atomics, one per bucket.

use std::sync::atomic::{AtomicU64, Ordering};

use super::exposition::Distribution;
use super::sharded::Sharded;
use crate::time::Micros;

/// Upper ends of the buckets in microseconds. From a decision in memory to a caller that gave up;
/// from 5 ms on those that envoyproxy/ratelimit's exporter has too.
pub(super) const ENDS: [u64; 19] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
    500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// Lengths of time, by length.
#[derive(Debug, Default)]
pub struct Histogram(Sharded<Buckets>);

#[derive(Debug, Default)]
struct Buckets {
    /// Not cumulative; the last one has no end.
    counts: [AtomicU64; ENDS.len() + 1],
    sum: AtomicU64,
}

impl Histogram {
    /// Counts one.
    pub fn record(&self, length: Micros) {
        let bucket = ENDS.partition_point(|end| *end < length.0);
        let buckets = self.0.local();
        buckets.counts[bucket].fetch_add(1, Ordering::Relaxed);
        buckets.sum.fetch_add(length.0, Ordering::Relaxed);
    }

    /// What was counted, in seconds.
    pub fn distribution(&self) -> Distribution {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of = |bucket: usize| self.0.all().map(|one| read(&one.counts[bucket])).sum::<u64>();
        let mut count = 0;
        let mut buckets = Vec::with_capacity(ENDS.len());
        for (bucket, end) in ENDS.iter().enumerate() {
            count += of(bucket);
            buckets.push((*end as f64 / 1e6, count));
        }
        count += of(ENDS.len());
        let sum: u64 = self.0.all().map(|one| read(&one.sum)).sum();
        Distribution { buckets, count, sum: sum as f64 / 1e6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_in_its_bucket_and_in_all_longer_ones() {
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
}
