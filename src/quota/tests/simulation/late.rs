//! Messages to Envoys that need longer than the grace. An Envoy uses its old share until then, and a late
//! assignment longer than its holding lasts.

use std::collections::{BTreeMap, VecDeque};

use crate::quota::DueAssignment;
use crate::testing::simulated_bucket::{self, Rate};
use crate::time::Micros;

/// The largest difference of two clocks.
const CLOCK_DIFFERENCE: Micros = Micros::from_millis(100);

/// What an Envoy uses above what it should have, while messages to it are late.
#[derive(Debug, Default)]
struct LateBucket {
    /// The messages on their way, with their stream, their instant and their rate.
    sent: VecDeque<(usize, Micros, Rate)>,
    rate: Rate,
    /// Until when the last assignment would be valid without a delay, and a grace longer.
    reserved: Micros,
}

/// The Envoys of a quota.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// Whether any message may be slow.
    pub(super) is_judged: bool,
    grace: Micros,
    buckets: BTreeMap<usize, LateBucket>,
}

impl Late {
    /// Of a world with this grace, of which the difference of two clocks may take a part.
    pub(super) fn new(grace: Micros) -> Late {
        let grace = grace.saturating_sub(CLOCK_DIFFERENCE);
        Late { is_judged: true, grace, buckets: BTreeMap::new() }
    }

    /// An assignment leaves its instance.
    pub(super) fn send(&mut self, envoy: usize, stream: usize, now: Micros, due: &DueAssignment) {
        if self.is_judged {
            let rate = simulated_bucket::rate(due.assignment);
            self.buckets.entry(envoy).or_default().sent.push_back((stream, now, rate));
        }
    }

    /// The assignment of `sent` arrives, or its stream has ended. Its rate is that of the bucket, which
    /// [`note`](Late::note) sets.
    pub(super) fn arrived(&mut self, envoy: usize, stream: usize, sent: Micros, ttl: Micros) {
        let Some(bucket) = self.buckets.get_mut(&envoy) else { return };
        // Messages of a stream arrive in their order.
        if let Some(first) = bucket.sent.iter().position(|(of, _, _)| *of == stream) {
            bucket.sent.remove(first);
        }
        bucket.reserved = sent.saturating_add(ttl).saturating_add(self.grace);
    }

    /// The rate that an Envoy uses now.
    pub(super) fn note(&mut self, envoy: usize, rate: Rate) {
        if let Some(bucket) = self.buckets.get_mut(&envoy) {
            bucket.rate = rate;
        }
    }

    /// By how much the sum may exceed the quota.
    pub(super) fn most(&self, now: Micros) -> Rate {
        self.buckets.values().map(|bucket| bucket.excess(now, self.grace)).sum()
    }
}

impl LateBucket {
    fn excess(&self, now: Micros, grace: Micros) -> Rate {
        let late = self.sent.iter().filter(|(_, at, _)| at.saturating_add(grace) <= now);
        let meant = late.map(|(_, _, rate)| *rate).min();
        let meant = if now >= self.reserved { Some(0) } else { meant };
        meant.map_or(0, |meant| (self.rate - meant).max(0))
    }
}
