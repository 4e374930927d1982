//! What several Envoys admitted in each tenth of a second, and what must hold for it.

use std::ops::{Range, RangeInclusive};

use super::load::{PIECES, Sample};

/// The times in which the sum is judged, in seconds.
const WINDOWS: [usize; 3] = [1, 5, 30];

/// The samples of each Envoy. Seconds count from the start of the load.
pub(crate) struct Record {
    pub(crate) envoys: Vec<Vec<Sample>>,
}

impl Record {
    /// Requests admitted by all Envoys in each whole second.
    pub(crate) fn totals(&self, seconds: Range<usize>) -> Vec<u64> {
        let admitted =
            |second| (0..self.envoys.len()).map(|envoy| self.second(envoy, second).admitted).sum();
        seconds.map(admitted).collect()
    }

    /// What became of the requests to an Envoy in a whole second.
    pub(crate) fn second(&self, envoy: usize, second: usize) -> Sample {
        sum(&self.envoys[envoy], second * PIECES..(second + 1) * PIECES)
    }

    /// Requests that an Envoy admitted per second, on average.
    pub(crate) fn admitted(&self, envoy: usize, seconds: Range<usize>) -> f64 {
        let count = seconds.len() as f64;
        let admitted: u64 = seconds.map(|second| self.second(envoy, second).admitted).sum();
        admitted as f64 / count
    }

    /// The most requests that were admitted in any second, in steps of a tenth.
    pub(crate) fn most_in_any_second(&self, seconds: Range<usize>) -> u64 {
        self.most_in(1, seconds)
    }

    /// The same for `length` seconds.
    fn most_in(&self, length: usize, seconds: Range<usize>) -> u64 {
        let pieces = length * PIECES;
        let starts = seconds.start * PIECES..=(seconds.end * PIECES).saturating_sub(pieces);
        let admitted = |start: usize| -> u64 {
            let samples = self.envoys.iter().map(|envoy| sum(envoy, start..start + pieces));
            samples.map(|sample| sample.admitted).sum()
        };
        starts.map(admitted).max().unwrap_or_default()
    }

    /// No whole second has more than `max`.
    pub(crate) fn at_most(&self, max: u64, seconds: Range<usize>) -> Result<(), String> {
        let totals = self.totals(seconds.clone());
        let kept = totals.iter().all(|total| *total <= max);
        check(kept, || format!("over {max} in a second of {seconds:?}: {totals:?}"))
    }

    /// No second, wherever it starts, has more than `max`.
    pub(crate) fn at_most_in_any(&self, max: u64, seconds: Range<usize>) -> Result<(), String> {
        let most = self.most_in_any_second(seconds.clone());
        check(most <= max, || format!("{most} in one second of {seconds:?}, at most {max}"))
    }

    /// In no second, and in no 5 s and 30 s, more was admitted than the quota of that time, the burst, and in
    /// the longer times a tenth of the burst per second: a raise of a share adds a part of it.
    pub(crate) fn within(
        &self,
        quota: u64,
        burst: u64,
        seconds: Range<usize>,
    ) -> Result<(), String> {
        for window in WINDOWS.into_iter().filter(|window| *window <= seconds.len()) {
            let raised = if window == 1 { 0 } else { burst * window as u64 / 10 };
            let max = quota * window as u64 + burst + raised;
            let most = self.most_in(window, seconds.clone());
            check(most <= max, || format!("{most} in {window} s of {seconds:?}, at most {max}"))?;
        }
        Ok(())
    }

    /// The mean of the totals is in a range.
    pub(crate) fn mean(
        &self,
        range: RangeInclusive<f64>,
        seconds: Range<usize>,
    ) -> Result<(), String> {
        let totals = self.totals(seconds.clone());
        let mean = totals.iter().sum::<u64>() as f64 / totals.len() as f64;
        let kept = range.contains(&mean);
        check(kept, || format!("a mean of {mean:.1} in {seconds:?}, not in {range:?}: {totals:?}"))
    }

    /// An Envoy denied at most one request of a hundred.
    pub(crate) fn served(&self, envoy: usize, seconds: Range<usize>) -> Result<(), String> {
        let (from, to) = (seconds.start * PIECES, seconds.end * PIECES);
        let all = sum(&self.envoys[envoy], from..to);
        let kept = all.sent > 0 && all.denied * 100 <= all.sent;
        check(kept, || format!("Envoy {envoy} in {seconds:?}: {all:?}"))
    }

    /// An Envoy admitted at least this number per second, on average.
    pub(crate) fn at_least(
        &self,
        envoy: usize,
        rate: f64,
        seconds: Range<usize>,
    ) -> Result<(), String> {
        let admitted = self.admitted(envoy, seconds.clone());
        let kept = admitted >= rate;
        check(kept, || {
            format!("Envoy {envoy}: {admitted:.1} per second in {seconds:?}, not {rate}")
        })
    }
}

/// `Ok`, or an error with a text.
pub(crate) fn check(kept: bool, error: impl FnOnce() -> String) -> Result<(), String> {
    if kept { Ok(()) } else { Err(error()) }
}

fn sum(samples: &[Sample], pieces: Range<usize>) -> Sample {
    let pieces = samples.iter().skip(pieces.start).take(pieces.len());
    pieces.fold(Sample::default(), |sum, one| Sample {
        sent: sum.sent + one.sent,
        admitted: sum.admitted + one.admitted,
        denied: sum.denied + one.denied,
    })
}

#[test]
fn each_check_fails_on_what_it_forbids() {
    let steady = |admitted| vec![Sample { sent: 40, admitted, denied: 40 - admitted }; 40];
    let mut record = Record { envoys: vec![steady(40), steady(20)] };
    assert_eq!(record.totals(1..3), [600, 600]);
    assert_eq!(record.at_most(600, 0..4), Ok(()));
    assert!(record.at_most(599, 0..4).is_err());
    assert_eq!(record.mean(599.0..=601.0, 0..4), Ok(()));
    assert!(record.mean(601.0..=700.0, 0..4).is_err());
    assert_eq!(record.served(0, 0..4), Ok(()));
    assert!(record.served(1, 0..4).is_err());
    assert!(record.served(0, 9..10).is_err(), "no requests");
    assert_eq!(record.at_least(1, 200.0, 0..4), Ok(()));
    assert!(record.at_least(1, 201.0, 0..4).is_err());
    // A burst around the end of a second is in no whole second.
    for piece in [19, 20] {
        record.envoys[0][piece].admitted = 60;
    }
    assert_eq!(record.at_most(620, 0..4), Ok(()));
    assert!(record.at_most_in_any(620, 0..4).is_err());
    assert_eq!(record.at_most_in_any(640, 0..4), Ok(()));
    // 600 per second, for 40 s, and some more in one of them.
    let mut record =
        Record { envoys: vec![vec![Sample { admitted: 60, ..Sample::default() }; 400]] };
    assert_eq!(record.within(600, 60, 0..40), Ok(()));
    assert!(record.within(560, 60, 0..40).is_err(), "in 5 s");
    assert!(record.within(590, 60, 0..40).is_err(), "in 30 s");
    record.envoys[0][100].admitted = 121;
    assert!(record.within(600, 60, 0..40).is_err(), "in a second");
}
