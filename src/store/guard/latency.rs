//! How long a store's answers took: a histogram of plain atomics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::Micros;

/// Upper ends of the buckets in microseconds; the last one has none. Doubling tells a round trip in
/// a rack from one between zones, and both from trouble.
const ENDS: [u64; 12] =
    [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072];

/// A histogram of answers.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; ENDS.len() + 1],
    sum: AtomicU64,
}

impl Latency {
    /// Counts one answer.
    pub fn record(&self, took: Micros) {
        let bucket = ENDS.iter().position(|end| took.0 <= *end).unwrap_or(ENDS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(took.0, Ordering::Relaxed);
    }

    /// Upper end of each bucket (the last: none) and answers up to it, the last with all of them.
    pub fn cumulative(&self) -> Vec<(Option<Micros>, u64)> {
        let mut total = 0;
        let ends = ENDS.iter().map(|end| Some(Micros(*end))).chain([None]);
        ends.zip(&self.buckets)
            .map(|(end, bucket)| {
                total += bucket.load(Ordering::Relaxed);
                (end, total)
            })
            .collect()
    }

    /// All answers' time together.
    pub fn sum(&self) -> Micros {
        Micros(self.sum.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_in_its_bucket_and_in_all_longer_ones() {
        let latency = Latency::default();
        for took in [0, 64, 65, 200_000] {
            latency.record(Micros(took));
        }
        let counts: Vec<u64> = latency.cumulative().iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4]);
        assert_eq!(latency.sum(), Micros(200_129));
    }
}
