//! What a thread of the generator has counted.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::answer::{Code, Outcome};

/// Longest latency that is told apart: an hour, in nanoseconds.
const LONGEST: u64 = 3_600_000_000_000;

/// A call that is sent so much after it was due is late.
pub(super) const LATE: Duration = Duration::from_millis(1);

/// Counts and distributions, in nanoseconds.
#[derive(Debug)]
pub(super) struct Tally {
    /// Of decided calls.
    pub(super) latency: Histogram<u64>,
    /// From the instant a call was due to the instant it was sent; open loop only.
    pub(super) lateness: Histogram<u64>,
    pub(super) late: u64,
    pub(super) ok: u64,
    pub(super) over_limit: u64,
    pub(super) unknown: u64,
    /// Decisions by a fallback, and decisions that tell whether they were.
    pub(super) by_fallback: u64,
    pub(super) telling: u64,
    /// Calls without a decision, by what happened instead.
    pub(super) errors: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn new() -> Tally {
        // Three digits: a figure is off by a thousandth at most.
        let histogram =
            || Histogram::new_with_bounds(1, LONGEST, 3).expect("bounds and digits are valid");
        Tally {
            latency: histogram(),
            lateness: histogram(),
            late: 0,
            ok: 0,
            over_limit: 0,
            unknown: 0,
            by_fallback: 0,
            telling: 0,
            errors: BTreeMap::new(),
        }
    }

    /// Counts what a call came to after `took`.
    pub(super) fn count(&mut self, outcome: Outcome, took: Duration) {
        let said = match outcome {
            Outcome::Decided(said) => said,
            Outcome::Failed(error) | Outcome::Broken(error) => return self.fail(&error, 1),
        };
        self.latency.saturating_record(nanos(took));
        match said.code {
            Code::Ok => self.ok += 1,
            Code::OverLimit => self.over_limit += 1,
            Code::Unknown => self.unknown += 1,
        }
        if let Some(fallback) = said.by_fallback {
            self.telling += 1;
            self.by_fallback += u64::from(fallback);
        }
    }

    /// Counts `calls` that came to nothing.
    pub(super) fn fail(&mut self, error: &str, calls: u64) {
        if calls == 0 {
            return;
        }
        match self.errors.get_mut(error) {
            Some(count) => *count += calls,
            None => drop(self.errors.insert(error.to_owned(), calls)),
        }
    }

    /// Counts that a call was sent so long after it was due.
    pub(super) fn sent(&mut self, after: Duration) {
        self.lateness.saturating_record(nanos(after));
        self.late += u64::from(after > LATE);
    }

    /// Adds what another thread has counted.
    pub(super) fn add(&mut self, other: Tally) {
        let same = "both have the same bounds";
        self.latency.add(other.latency).expect(same);
        self.lateness.add(other.lateness).expect(same);
        self.late += other.late;
        self.ok += other.ok;
        self.over_limit += other.over_limit;
        self.unknown += other.unknown;
        self.by_fallback += other.by_fallback;
        self.telling += other.telling;
        for (error, calls) in other.errors {
            self.fail(&error, calls);
        }
    }
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::answer::Said;

    #[test]
    fn two_threads_add_up_and_only_decisions_have_a_latency() {
        let said = |code, by_fallback| Outcome::Decided(Said { code, by_fallback });
        let micros = Duration::from_micros;
        let mut sum = Tally::new();
        for _ in 0..2 {
            let mut one = Tally::new();
            one.count(said(Code::Ok, None), micros(100));
            one.count(said(Code::OverLimit, Some(true)), micros(300));
            one.count(said(Code::Unknown, Some(false)), Duration::from_secs(7200));
            one.count(Outcome::Failed("grpc ABORTED".into()), micros(1));
            one.count(Outcome::Broken("not connected".into()), micros(1));
            one.sent(micros(1001));
            one.sent(micros(1000));
            sum.add(one);
        }
        assert_eq!((sum.ok, sum.over_limit, sum.unknown), (2, 2, 2));
        assert_eq!((sum.by_fallback, sum.telling, sum.late), (2, 4, 2));
        assert_eq!(
            sum.errors.into_iter().collect::<Vec<_>>(),
            [("grpc ABORTED".to_owned(), 2), ("not connected".to_owned(), 2)]
        );
        assert_eq!((sum.latency.len(), sum.lateness.len()), (6, 4));
        assert!(sum.latency.max() >= LONGEST, "what is longer is counted as the longest");
    }
}
