//! The counts and latencies of one thread of the generator.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::response::{CallOutcome, OverallCode};

/// The longest latency in the histograms: one hour, in nanoseconds. Longer ones count as this.
const MAX_NANOS: u64 = 3_600_000_000_000;

/// A call is late when it is sent more than this after it was due.
pub(crate) const LATE_AFTER: Duration = Duration::from_millis(1);

/// Counts, and latencies in nanoseconds.
#[derive(Debug)]
pub(crate) struct Stats {
    /// Latencies of decided calls.
    pub(crate) latency: Histogram<u64>,
    /// From the instant a call was due to the instant it was sent; open loop only.
    pub(crate) lateness: Histogram<u64>,
    /// Calls sent more than [`LATE_AFTER`] after they were due.
    pub(crate) late: u64,
    pub(crate) ok: u64,
    pub(crate) over_limit: u64,
    pub(crate) unknown: u64,
    /// Decisions by a fallback.
    pub(crate) by_fallback: u64,
    /// Decisions with the header `x-weir-decision`, which shows whether a fallback decided.
    pub(crate) with_decision_header: u64,
    /// Calls without a decision, by reason.
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Stats {
    pub(crate) fn new() -> Stats {
        // Three significant digits: a figure is off by at most 0.1 %.
        let histogram =
            || Histogram::new_with_bounds(1, MAX_NANOS, 3).expect("bounds and digits are valid");
        Stats {
            latency: histogram(),
            lateness: histogram(),
            late: 0,
            ok: 0,
            over_limit: 0,
            unknown: 0,
            by_fallback: 0,
            with_decision_header: 0,
            errors: BTreeMap::new(),
        }
    }

    /// Counts a call that ended after `latency`.
    pub(crate) fn record(&mut self, outcome: CallOutcome, latency: Duration) {
        let summary = match outcome {
            CallOutcome::Decided(summary) => summary,
            CallOutcome::Failed(error) | CallOutcome::Disconnected(error) => {
                return self.record_errors(&error, 1);
            }
        };
        self.latency.saturating_record(nanos(latency));
        match summary.code {
            OverallCode::Ok => self.ok += 1,
            OverallCode::OverLimit => self.over_limit += 1,
            OverallCode::Unknown => self.unknown += 1,
        }
        if let Some(fallback) = summary.by_fallback {
            self.with_decision_header += 1;
            self.by_fallback += u64::from(fallback);
        }
    }

    /// Counts `calls` without a decision.
    pub(crate) fn record_errors(&mut self, error: &str, calls: u64) {
        if calls == 0 {
            return;
        }
        match self.errors.get_mut(error) {
            Some(count) => *count += calls,
            None => drop(self.errors.insert(error.to_owned(), calls)),
        }
    }

    /// Records how long after it was due a call was sent.
    pub(crate) fn record_lateness(&mut self, lateness: Duration) {
        self.lateness.saturating_record(nanos(lateness));
        self.late += u64::from(lateness > LATE_AFTER);
    }

    /// Adds the stats of another thread.
    pub(crate) fn add(&mut self, other: Stats) {
        let same = "both have the same bounds";
        self.latency.add(other.latency).expect(same);
        self.lateness.add(other.lateness).expect(same);
        self.late += other.late;
        self.ok += other.ok;
        self.over_limit += other.over_limit;
        self.unknown += other.unknown;
        self.by_fallback += other.by_fallback;
        self.with_decision_header += other.with_decision_header;
        for (error, calls) in other.errors {
            self.record_errors(&error, calls);
        }
    }
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::DecisionSummary;

    #[test]
    fn stats_of_threads_add_up() {
        let decided =
            |code, by_fallback| CallOutcome::Decided(DecisionSummary { code, by_fallback });
        let micros = Duration::from_micros;
        let mut sum = Stats::new();
        for _ in 0..2 {
            let mut one = Stats::new();
            one.record(decided(OverallCode::Ok, None), micros(100));
            one.record(decided(OverallCode::OverLimit, Some(true)), micros(300));
            one.record(decided(OverallCode::Unknown, Some(false)), Duration::from_secs(7200));
            one.record(CallOutcome::Failed("grpc ABORTED".into()), micros(1));
            one.record(CallOutcome::Disconnected("not connected".into()), micros(1));
            one.record_lateness(micros(1001));
            one.record_lateness(micros(1000));
            sum.add(one);
        }
        assert_eq!((sum.ok, sum.over_limit, sum.unknown), (2, 2, 2));
        assert_eq!((sum.by_fallback, sum.with_decision_header, sum.late), (2, 4, 2));
        assert_eq!(
            sum.errors.into_iter().collect::<Vec<_>>(),
            [("grpc ABORTED".to_owned(), 2), ("not connected".to_owned(), 2)]
        );
        assert_eq!(
            (sum.latency.len(), sum.lateness.len()),
            (6, 4),
            "only decisions have a latency"
        );
        assert!(sum.latency.max() >= MAX_NANOS, "a longer latency counts as the longest");
    }
}
