//! A study of sliding_window: each decision and estimate compared with the exact one.

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use weir::algorithm::{plan, report};
use weir::decision::Decision;
use weir::limit::{Algorithm, Limit, Tier};
use weir::step::State;
use weir::time::Micros;

use super::traffic::{Source, Traffic, Volume, shares};

/// The unit of relative errors. Integers make the sum independent of the order.
const PARTS: f64 = 1e9;
/// One of this many sources also runs weir's log, which checks the model of a log.
const LOGGED: usize = 16;

/// Statistics over the requests of some sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Requests.
    pub(crate) requests: u64,
    /// Requests whose real rate was within 20 % of the limit.
    pub(crate) near_limit: u64,
    /// If every request counts: wrong decisions farther than 20 % from the limit.
    pub(crate) wrong_elsewhere: u64,
    /// If every request counts: allowed with more than the limit in the last window.
    pub(crate) wrongly_allowed: u64,
    /// If every request counts: denied with at most the limit in the last window.
    pub(crate) wrongly_limited: u64,
    /// Sum of |estimate - real rate| / real rate, in parts of 1e-9.
    error: u64,
    /// Sum of |reported - real rate| / real rate, in parts of 1e-9. The reported estimate is in
    /// whole hits, rounded up.
    reported_error: u64,
    /// Sources that exceeded the limit and were never denied.
    pub(crate) missed_sources: u64,
    /// The maximum that a missed source sent in one window.
    pub(crate) missed_most: u64,
    /// Sources that were denied and never exceeded the limit.
    pub(crate) blamed_sources: u64,
    /// Sources that exceeded the limit.
    pub(crate) over_sources: u64,
    /// If denied hits do not count: allowed although the limit had passed in the last window.
    pub(crate) over_admitted: u64,
    /// If denied hits do not count: denied although fewer than the limit had passed in the last
    /// window.
    pub(crate) under_admitted: u64,
    /// If denied hits do not count: allowed requests.
    pub(crate) admitted: u64,
    /// Requests that an exact log allows.
    pub(crate) log_admitted: u64,
    /// The maximum allowed in any window.
    pub(crate) most_admitted: u64,
    /// Decisions or numbers that differ from the formula or the exact log. Each is a bug.
    pub(crate) contradictions: u64,
}

impl Tally {
    /// Mean of |estimate - real rate| / real rate over all requests.
    pub(crate) fn mean_error(&self) -> f64 {
        self.error as f64 / PARTS / self.requests as f64
    }

    /// Mean of |reported - real rate| / real rate over all requests, for the estimate that weir
    /// reports.
    pub(crate) fn mean_reported_error(&self) -> f64 {
        self.reported_error as f64 / PARTS / self.requests as f64
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.requests += other.requests;
        self.near_limit += other.near_limit;
        self.wrong_elsewhere += other.wrong_elsewhere;
        self.wrongly_allowed += other.wrongly_allowed;
        self.wrongly_limited += other.wrongly_limited;
        self.error += other.error;
        self.reported_error += other.reported_error;
        self.missed_sources += other.missed_sources;
        self.missed_most = self.missed_most.max(other.missed_most);
        self.blamed_sources += other.blamed_sources;
        self.over_sources += other.over_sources;
        self.over_admitted += other.over_admitted;
        self.under_admitted += other.under_admitted;
        self.admitted += other.admitted;
        self.log_admitted += other.log_admitted;
        self.most_admitted = self.most_admitted.max(other.most_admitted);
        self.contradictions += other.contradictions;
    }
}

/// Simulates all sources of `traffic`, with one thread per core.
pub(crate) fn run(traffic: Traffic, volume: Volume) -> Tally {
    let shares = shares(traffic, &volume);
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Tally::default());
    let play = || {
        let mut tally = Tally::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&requests) = shares.get(index) else { break };
            let source = Source::new(traffic, volume, index as u64, requests);
            tally += of_source(source, volume, index.is_multiple_of(LOGGED));
        }
        *total.lock().expect("no thread panics while it adds") += tally;
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(play);
        }
    });
    total.into_inner().expect("no thread panics while it adds")
}

/// Simulates one source, and weir's log too if `with_logs`.
fn of_source(source: Source, volume: Volume, with_logs: bool) -> Tally {
    let Volume { limit: max, window, .. } = volume;
    let mut tally = Tally::default();
    let mut counted = Counter::new(Algorithm::SlidingWindow, volume, true);
    let mut admitting = Counter::new(Algorithm::SlidingWindow, volume, false);
    // weir's log, with and without denied hits, to check the model.
    let log = |count_denied| Counter::new(Algorithm::SlidingWindowLog, volume, count_denied);
    let mut logs = with_logs.then(|| (log(true), log(false)));
    let (mut sent, mut admitted) = (Truth::new(window), Truth::new(window));
    let mut log_admitted = Truth::new(window);
    let (mut most_sent, mut denied) = (0, false);
    for now in source {
        tally.requests += 1;

        let decision = counted.decide(now);
        let fits = sent.fits(now, max);
        sent.add(now);
        let (real, estimate) = (sent.last_window(now), sent.estimate(now));
        let truth = real <= max;
        let near = real.abs_diff(max) * 5 <= max;
        tally.near_limit += u64::from(near);
        tally.wrong_elsewhere += u64::from(decision.allowed != truth && !near);
        tally.wrongly_allowed += u64::from(decision.allowed && !truth);
        tally.wrongly_limited += u64::from(!decision.allowed && truth);
        tally.error += relative(estimate, real * window);
        tally.reported_error += relative(decision.used, real);
        let mut consistent = decision.allowed == fits && decision.used == estimate.div_ceil(window);
        most_sent = most_sent.max(real);
        denied |= !decision.allowed;

        let allowed = admitting.allows(now);
        consistent &= allowed == admitted.fits(now, max);
        let full = admitted.last_window(now) >= max;
        tally.over_admitted += u64::from(allowed && full);
        tally.under_admitted += u64::from(!allowed && !full);
        if allowed {
            admitted.add(now);
            tally.admitted += 1;
            tally.most_admitted = tally.most_admitted.max(admitted.last_window(now));
        }

        let passes = log_admitted.last_window(now) < max;
        if passes {
            log_admitted.add(now);
            tally.log_admitted += 1;
        }
        if let Some((counting, admitting)) = &mut logs {
            consistent &= counting.allows(now) == truth && admitting.allows(now) == passes;
        }
        tally.contradictions += u64::from(!consistent);
    }
    let over = most_sent > max;
    tally.over_sources = u64::from(over);
    tally.blamed_sources = u64::from(denied && !over);
    if over && !denied {
        (tally.missed_sources, tally.missed_most) = (1, most_sent);
    }
    tally
}

/// `|a - b| / b` in parts of 1e-9.
fn relative(a: u64, b: u64) -> u64 {
    (a.abs_diff(b) as f64 / b as f64 * PARTS) as u64
}

/// A counter of weir.
struct Counter {
    limit: Limit,
    state: Option<State>,
}

impl Counter {
    fn new(algorithm: Algorithm, volume: Volume, count_denied: bool) -> Counter {
        let Volume { limit: requests, window, .. } = volume;
        let tier = Tier { requests, window: Micros(window), burst: requests, calendar: None };
        let limit = Limit { algorithm, tiers: Box::new([tier]), count_denied };
        limit.check().expect("a limit that weir can count");
        Counter { limit, state: None }
    }

    /// Takes one hit.
    fn decide(&mut self, now: u64) -> Decision {
        let step = plan(&self.limit, 1, Micros(now));
        let outcome = step.apply(&mut self.state);
        report(&self.limit, &step, &outcome)
    }

    /// Takes one hit, and returns only whether it is allowed.
    fn allows(&mut self, now: u64) -> bool {
        plan(&self.limit, 1, Micros(now)).apply(&mut self.state).allowed
    }
}

/// The exact history: every instant of the last window, and counts per aligned window.
struct Truth {
    window: u64,
    /// Instants, oldest first. Expired ones are removed at the next read.
    instants: VecDeque<u64>,
    /// Number of the aligned window that `current` counts.
    number: u64,
    current: u64,
    previous: u64,
}

impl Truth {
    fn new(window: u64) -> Truth {
        Truth { window, instants: VecDeque::new(), number: 0, current: 0, previous: 0 }
    }

    /// Events in `(now - window, now]`.
    fn last_window(&mut self, now: u64) -> u64 {
        while self.instants.front().is_some_and(|&at| at + self.window <= now) {
            self.instants.pop_front();
        }
        self.instants.len() as u64
    }

    fn add(&mut self, now: u64) {
        self.turn(now);
        self.current += 1;
        self.instants.push_back(now);
        self.last_window(now);
    }

    /// The formula of the sliding window counter, multiplied by the window to avoid rounding.
    fn estimate(&mut self, now: u64) -> u64 {
        self.turn(now);
        self.previous * (self.window - now % self.window) + self.current * self.window
    }

    /// Whether the formula allows one more.
    fn fits(&mut self, now: u64, max: u64) -> bool {
        self.estimate(now) + self.window <= max * self.window
    }

    fn turn(&mut self, now: u64) {
        let number = now / self.window;
        if number != self.number {
            self.previous = if number == self.number + 1 { self.current } else { 0 };
            self.current = 0;
            self.number = number;
        }
    }
}
