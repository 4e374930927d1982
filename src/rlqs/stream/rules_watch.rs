//! New versions of the rules: a stream places its buckets again without waiting for their reports.
//!
//! All streams begin at the same reload, and a worker serves many of them. So each begins at a random instant
//! of a time that is as long as all buckets need, and takes a slice at a time.

use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::super::bucket_id::BucketKey;
use super::super::engine::random;
use super::super::usage_report::ordered_pairs;
use super::{EnvoyStream, ReportScope};
use crate::time::Micros;

/// Most buckets of a slice. A lookup takes a few microseconds.
const SLICE: usize = 64;

/// The time between two slices.
const PAUSE: Micros = Micros::from_millis(1);

/// The time in which all streams begin, for each bucket of this process.
const MICROS_PER_BUCKET: u64 = 4;

/// The versions of the rules, and the buckets that wait for their new place.
#[derive(Debug)]
pub(super) struct RulesWatch {
    /// The version that the quotas have.
    applied: watch::Receiver<u64>,
    waiting: Vec<BucketKey>,
    /// When the next slice is due, by the local clock.
    due: Micros,
}

impl RulesWatch {
    pub(super) fn new(applied: watch::Receiver<u64>) -> RulesWatch {
        RulesWatch { applied, waiting: Vec::new(), due: Micros::ZERO }
    }

    /// Completes with the next version. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        if self.applied.changed().await.is_err() {
            // The engine has ended, which this stream keeps from happening.
            pending::<()>().await;
        }
    }
}

/// Waits; for ever without a time.
pub(super) async fn wait(time: Option<Micros>) {
    match time {
        Some(time) => sleep(Duration::from_micros(time.0)).await,
        None => pending().await,
    }
}

impl EnvoyStream {
    /// Notes the buckets that were placed by other rules.
    pub(super) fn begin_placing(&mut self) {
        let engine = &self.engine;
        let version = engine.rules.version();
        let old = self.buckets.iter().filter(|(_, bucket)| bucket.version != version);
        self.rules.waiting = old.map(|(key, _)| *key).collect();
        let spread = engine.metrics.buckets.get().saturating_mul(MICROS_PER_BUCKET) / 1_000;
        let [number, _] = random();
        let delay = Micros::from_millis(number.checked_rem(spread).unwrap_or(0));
        self.rules.due = engine.clock.now().saturating_add(delay);
    }

    /// Places a slice of the waiting buckets if it is due. Returns the time until the next one.
    pub(super) fn place_slice(&mut self) -> Option<Micros> {
        if self.rules.waiting.is_empty() {
            return None;
        }
        let (engine, domain) = (self.engine.clone(), self.domain.clone().unwrap_or_default());
        let now = engine.clock.now();
        if now < self.rules.due {
            return Some(self.rules.due.saturating_sub(now));
        }
        // Before the rules are read, so that a change in between is noticed.
        let version = engine.rules.version();
        let at = ReportScope { engine: &engine, domain: &domain, version, now };
        let rest = self.rules.waiting.len().saturating_sub(SLICE);
        for key in self.rules.waiting.split_off(rest) {
            self.place_again(&at, key);
        }
        if rest == 0 {
            self.rules.waiting = Vec::new();
            return None;
        }
        self.rules.due = now.saturating_add(PAUSE);
        Some(PAUSE)
    }

    /// Places a bucket again, unless a report did.
    fn place_again(&mut self, at: &ReportScope<'_>, key: BucketKey) {
        let Some(bucket) = self.buckets.get_mut(&key) else { return };
        if bucket.version == at.version || bucket.place.is_abandoned() {
            return;
        }
        let id = std::mem::take(&mut bucket.id);
        if let Ok(pairs) = ordered_pairs(&id) {
            self.place_bucket(at, key, &pairs, None);
        }
        if let Some(bucket) = self.buckets.get_mut(&key) {
            bucket.id = id;
        }
    }
}
