//! The demand of a holder, from its reports.

use super::super::division::{Want, want_of};
use super::super::share::Quota;
use crate::time::Micros;

/// The shortest time that is measured. Reports that follow each other faster are added up: three hits in
/// 10 ms, when Envoy's timer follows the first report of a bucket, are not 300 per second.
const MEASURED_MIN: Micros = Micros::SECOND;

/// Fewer hits say little about a rate: reports have whole hits. So a slow rate is measured over several
/// reports, up to [`MEASURED_MAX`].
const HITS_MIN: u64 = 8;

/// The longest time that is measured.
const MEASURED_MAX: Micros = Micros::from_secs(20);

/// Measures hits per time by the clock of this instance. Envoy's own `time_elapsed` is cut to seconds.
#[derive(Debug, Default)]
pub(super) struct DemandMeter {
    /// The report from which hits are counted.
    since: Option<Micros>,
    hits: u64,
    /// The last measurement: hits in a time.
    measured: Option<(u64, Micros)>,
}

impl DemandMeter {
    /// Adds a report. The hits of the first one have no duration, so they do not count.
    pub(super) fn add(&mut self, hits: u64, now: Micros) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.hits = self.hits.saturating_add(hits);
        let elapsed = now.saturating_sub(since);
        let expected = self.measured.is_none_or(|(hits, time)| {
            u128::from(hits) * u128::from(elapsed.0) >= u128::from(HITS_MIN) * u128::from(time.0)
        });
        let enough = expected || self.hits >= HITS_MIN || elapsed >= MEASURED_MAX;
        if elapsed >= MEASURED_MIN && enough {
            self.measured = Some((self.hits, elapsed));
            self.since = Some(now);
            self.hits = 0;
        }
    }

    /// The want of the last measurement, [`Want::Fair`] before the first one.
    pub(super) fn want(&self, quota: &Quota) -> Want {
        let want = |(hits, elapsed)| want_of(quota.share_of(hits, elapsed));
        self.measured.map_or(Want::Fair, want)
    }
}
