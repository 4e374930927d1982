//! The log of fallbacks: one line when a rule starts to use its fallback, and one when it stops.
//!
//! No line is written per request. A decision by a counter only reads one flag. A rule logs a start
//! at most every 60 s. All rules together log at most 20 starts per 60 s, and one line for the
//! others, because a failed Redis affects every rule at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::rules::{Rule, ShownRule};
use crate::store::StoreError;
use crate::time::Micros;

/// Time without a fallback after which a period may end.
const QUIET_PERIOD: Micros = Micros::from_secs(5);

/// Shortest time between two logged starts of one rule. Also the window of [`STARTS_MAX`].
const START_WINDOW: Micros = Micros::from_secs(60);

/// Most starts that all rules together log per window.
const STARTS_MAX: u32 = 20;

/// Resolution of the time of the last fallback. It bounds how often a fallback takes the lock.
const RESOLUTION: Micros = Micros::SECOND;

/// The period in which one rule uses its fallback.
#[derive(Debug, Default)]
pub(super) struct FallbackPeriod {
    is_open: AtomicBool,
    /// The instant of the last fallback in microseconds, at [`RESOLUTION`].
    last: AtomicU64,
    record: Mutex<Record>,
}

/// The period of one rule, and the rule, for the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelledPeriod<'a> {
    pub(super) period: &'a FallbackPeriod,
    pub(super) rule: &'a Rule,
}

/// The state of a period that only fallbacks and their end change.
#[derive(Debug, Default)]
struct Record {
    /// When the period began.
    began: Micros,
    /// Fallbacks of the rule before this period.
    before: u64,
    /// Whether the start of this period was logged.
    is_logged: bool,
    /// When a start was last logged, or was due but over the budget.
    last_start: Option<Micros>,
    /// When it was last checked whether the period has ended.
    checked: Micros,
}

/// The log line that a fallback writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartLine {
    /// No line.
    Silent,
    /// A line about the start of this rule's period.
    Rule,
    /// A line about the first start over the budget.
    More,
}

/// A period that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndedPeriod {
    fallbacks: u64,
    seconds: u64,
}

/// The budget of the starts that all rules log.
#[derive(Debug, Default)]
pub(super) struct FallbackLog {
    window: Mutex<StartWindow>,
}

/// The starts since `began`, for at most [`START_WINDOW`].
#[derive(Debug, Default)]
struct StartWindow {
    began: Micros,
    starts: u32,
}

impl FallbackLog {
    /// Records a decision by the fallback of the rule `of`. `total` returns the rule's fallbacks,
    /// this one included.
    #[cold]
    pub(super) fn fell_back(
        &self,
        of: LabelledPeriod<'_>,
        total: impl Fn() -> u64,
        error: StoreError,
        now: Micros,
    ) {
        let LabelledPeriod { period, rule } = of;
        match period.fell_back(now, total, self) {
            StartLine::Silent => {}
            StartLine::Rule => {
                let (domain, cause) = (&rule.domain, error.name());
                let ShownRule { name, selector } = ShownRule::of(rule);
                tracing::warn!(
                    %domain, rule = %name, selector, cause,
                    "fallback started: the store did not decide"
                );
            }
            StartLine::More => {
                tracing::warn!("fallback started for more rules; see weir_fallback_total");
            }
        }
    }

    /// Records a decision by a counter while the period of the rule `of` is open. `total` returns
    /// the rule's fallbacks. The period ends only if the decision `is_counted` by the store, because
    /// it may have come from memory.
    #[cold]
    pub(super) fn decided(
        &self,
        of: LabelledPeriod<'_>,
        total: impl Fn() -> u64,
        now: Micros,
        is_counted: impl Fn() -> bool,
    ) {
        let LabelledPeriod { period, rule } = of;
        if let Some(ended) = period.decided(now, total, is_counted) {
            let EndedPeriod { fallbacks, seconds } = ended;
            let domain = &rule.domain;
            let ShownRule { name, selector } = ShownRule::of(rule);
            tracing::info!(
                %domain, rule = %name, selector, fallbacks, seconds,
                "fallback ended: the store decides again"
            );
        }
    }

    /// Takes one start from the budget.
    fn take(&self, now: Micros) -> StartLine {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_sub(window.began) >= START_WINDOW {
            *window = StartWindow { began: now, starts: 0 };
        }
        window.starts = window.starts.saturating_add(1);
        match window.starts {
            ..=STARTS_MAX => StartLine::Rule,
            starts if starts == STARTS_MAX + 1 => StartLine::More,
            _ => StartLine::Silent,
        }
    }
}

impl FallbackPeriod {
    /// Whether the rule uses its fallback now.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Records a fallback at `now`. `total` returns the rule's fallbacks, this one included.
    fn fell_back(&self, now: Micros, total: impl Fn() -> u64, log: &FallbackLog) -> StartLine {
        if self.is_open() && self.since_last(now) < RESOLUTION {
            return StartLine::Silent;
        }
        let mut record = self.record();
        self.last.store(now.0, Ordering::Relaxed);
        if !self.is_open() {
            let before = total().saturating_sub(1);
            *record = Record { began: now, before, is_logged: false, ..*record };
            self.is_open.store(true, Ordering::Relaxed);
        }
        let is_recent = |start: Micros| now.saturating_sub(start) < START_WINDOW;
        if record.is_logged || record.last_start.is_some_and(is_recent) {
            return StartLine::Silent;
        }
        let start = log.take(now);
        record.last_start = Some(now);
        record.is_logged = start == StartLine::Rule;
        start
    }

    fn decided(
        &self,
        now: Micros,
        total: impl Fn() -> u64,
        is_counted: impl Fn() -> bool,
    ) -> Option<EndedPeriod> {
        if self.since_last(now) < QUIET_PERIOD {
            return None;
        }
        let mut record = self.record();
        if !self.is_open() || now.saturating_sub(record.checked) < RESOLUTION {
            return None;
        }
        record.checked = now;
        if !is_counted() {
            return None;
        }
        self.is_open.store(false, Ordering::Relaxed);
        let last = Micros(self.last.load(Ordering::Relaxed));
        record.is_logged.then(|| EndedPeriod {
            fallbacks: total().saturating_sub(record.before),
            seconds: last.saturating_sub(record.began).ceil_secs(),
        })
    }

    fn since_last(&self, now: Micros) -> Micros {
        now.saturating_sub(Micros(self.last.load(Ordering::Relaxed)))
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Micros {
        Micros::from_secs(1_000 + seconds)
    }

    #[test]
    fn a_period_is_logged_at_its_start_and_end() {
        let (log, period) = (FallbackLog::default(), FallbackPeriod::default());
        assert_eq!(period.fell_back(at(0), || 7, &log), StartLine::Rule);
        for second in 0..6 {
            assert_eq!(period.fell_back(at(second), || 500, &log), StartLine::Silent);
            assert_eq!(period.decided(at(second), || 500, || true), None, "second {second}");
        }
        assert_eq!(period.decided(at(9), || 501, || true), None, "4 s after the last");
        let ended = EndedPeriod { fallbacks: 495, seconds: 5 };
        assert_eq!(period.decided(at(10), || 501, || true), Some(ended));
        assert!(!period.is_open());
        assert_eq!(period.decided(at(20), || 501, || true), None);
    }

    #[test]
    fn a_period_stays_open_while_the_store_is_silent() {
        let (log, period) = (FallbackLog::default(), FallbackPeriod::default());
        assert_eq!(period.fell_back(at(0), || 1, &log), StartLine::Rule);
        assert_eq!(period.decided(at(100), || 1, || false), None, "decided from memory");
        assert_eq!(period.decided(at(100), || 1, || true), None, "checked once per second");
        assert!(period.decided(at(101), || 1, || true).is_some());
    }

    /// A rule with few requests, all of which fall back.
    #[test]
    fn a_pause_between_fallbacks_ends_no_period() {
        let (log, period) = (FallbackLog::default(), FallbackPeriod::default());
        assert_eq!(period.fell_back(at(0), || 1, &log), StartLine::Rule);
        for number in 1..100 {
            let line = period.fell_back(at(7 * number), || number + 1, &log);
            assert_eq!((line, period.is_open()), (StartLine::Silent, true), "{number}");
        }
        let ended = Some(EndedPeriod { fallbacks: 100, seconds: 693 });
        assert_eq!(period.decided(at(700), || 100, || true), ended);
    }

    #[test]
    fn a_flapping_rule_is_logged_once_a_minute() {
        let (log, period) = (FallbackLog::default(), FallbackPeriod::default());
        assert_eq!(period.fell_back(at(0), || 1, &log), StartLine::Rule);
        assert!(period.decided(at(10), || 1, || true).is_some());
        assert_eq!(period.fell_back(at(20), || 2, &log), StartLine::Silent);
        assert_eq!(period.decided(at(30), || 2, || true), None, "its start was not logged");
        assert!(!period.is_open());
        // A period that continues is logged as soon as the minute has passed.
        assert_eq!(period.fell_back(at(40), || 3, &log), StartLine::Silent);
        assert_eq!(period.fell_back(at(60), || 4, &log), StartLine::Rule);
        let ended = Some(EndedPeriod { fallbacks: 2, seconds: 20 });
        assert_eq!(period.decided(at(70), || 4, || true), ended);
    }

    #[test]
    fn many_rules_log_no_more_than_the_budget() {
        let log = FallbackLog::default();
        let starts = |now| {
            let starts = (0..1_000).map(|_| FallbackPeriod::default().fell_back(now, || 1, &log));
            let starts: Vec<StartLine> = starts.collect();
            let count = |of| starts.iter().filter(|start| **start == of).count();
            (count(StartLine::Rule), count(StartLine::More))
        };
        assert_eq!(starts(at(0)), (20, 1));
        assert_eq!(starts(at(59)), (0, 0));
        assert_eq!(starts(at(60)), (20, 1));
    }
}
