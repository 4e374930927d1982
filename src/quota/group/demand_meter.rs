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
    /// The last report.
    reported: Micros,
    /// The last measurement: hits in a time.
    measured: Option<(u64, Micros)>,
}

impl DemandMeter {
    /// Adds a report. The hits of the first one have no duration, so they do not count.
    pub(super) fn add(&mut self, hits: u64, now: Micros) {
        let last = std::mem::replace(&mut self.reported, now);
        let Some(mut since) = self.since else {
            self.since = Some(now);
            return;
        };
        // Enough for a measurement of the last report alone. An idle time before it would lower the rate.
        if hits >= HITS_MIN && now.saturating_sub(last) >= MEASURED_MIN {
            (since, self.hits) = (last, 0);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Quota = Quota { requests: 100, window: Micros::SECOND, burst: 1 };

    /// Reports of `hits`, one in 5 s.
    fn meter(hits: &[u64]) -> DemandMeter {
        let mut meter = DemandMeter::default();
        for (report, hits) in (1..).zip(hits) {
            meter.add(*hits, Micros::from_secs(5 * report));
        }
        meter
    }

    #[test]
    fn demands_are_measured() {
        let rate = |hits, secs| want_of(QUOTA.share_of(hits, Micros::from_secs(secs)));
        let table: [(&str, &[u64], Want); 8] = [
            ("the first report has no duration", &[50], Want::Fair),
            ("the last report counts", &[50, 100, 200], rate(200, 5)),
            ("few hits after none", &[1, 0, 3], rate(0, 5)),
            ("a slow rate over several reports", &[1, 0, 3, 3, 3], rate(9, 15)),
            ("for 20 s at most", &[1, 0, 1, 1, 1, 1], rate(4, 20)),
            ("a fast rate after an idle time", &[1, 0, 0, 0, 30], rate(30, 5)),
            ("the same, after few hits", &[1, 0, 2, 1, 30], rate(30, 5)),
            ("no demand after a fast rate", &[1, 100, 0], rate(0, 5)),
        ];
        for (what, hits, expected) in table {
            assert_eq!(meter(hits).want(&QUOTA), expected, "{what}");
        }
    }

    #[test]
    fn a_report_within_a_second_is_not_measured() {
        let mut meter = meter(&[1]);
        meter.add(30, Micros(5_010_000));
        assert_eq!(meter.want(&QUOTA), Want::Fair);
        meter.add(20, Micros::from_secs(10));
        assert_eq!(meter.want(&QUOTA), want_of(QUOTA.share_of(20, Micros(4_990_000))));
    }
}
