//! A simulated bucket of an Envoy, as Envoy 1.40 fills and changes it. Requests are a steady flow.

use crate::quota::{Assignment, DueAssignment, HolderId};
use crate::time::Micros;

/// A rate in billionths of a hit per second.
pub(crate) type Rate = i128;

/// What passes without an assignment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Fallback {
    /// Nothing.
    #[default]
    DenyAll,
    /// Everything.
    AllowAll,
    /// This number of requests per second, which a token bucket saves up for a second.
    Rate(f64),
}

/// What an Envoy does without a valid assignment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fallbacks {
    /// `no_assignment_behavior`.
    pub(crate) unassigned: Fallback,
    /// `expired_assignment_behavior`.
    pub(crate) expired: Fallback,
    /// Its timeout. After it `no_assignment_behavior` decides.
    pub(crate) expired_for: Micros,
}

/// An assignment that was received.
#[derive(Clone, Copy, Debug)]
struct Active {
    assignment: Assignment,
    generation: u32,
}

/// One bucket.
#[derive(Debug, Default)]
pub(crate) struct SimBucket {
    /// Requests per second.
    pub(crate) demand: f64,
    pub(crate) fallbacks: Fallbacks,
    /// Its Envoy.
    pub(crate) envoy: usize,
    /// Whether other Envoys have the same name.
    pub(crate) shares_name: bool,
    /// Whether callers of an instance use it: its tokens stay when its size changes.
    pub(crate) is_local: bool,
    /// Reports in a row without a request, of local callers.
    pub(crate) idle_reports: u32,
    /// The instance that gave the assignment, and its holder.
    pub(crate) given: Option<(usize, HolderId)>,
    /// The largest rate since the last report.
    pub(crate) highest: Rate,
    active: Option<Active>,
    /// When the last assignment expired, if no other one followed.
    expired: Option<Micros>,
    /// Of the assignment, or of the fallback after it.
    tokens: f64,
    at: Micros,
    /// Requests since the last report, and how many of them passed.
    asked: f64,
    passed: f64,
    /// Requests that passed by assignments, since the last call of `take_admitted`.
    admitted: f64,
    /// All requests that passed without an assignment.
    pub(crate) by_fallback: f64,
    /// The last report of this process, if there was one.
    pub(crate) reported: Option<Micros>,
    /// Counts assignments, for their expiry.
    pub(crate) serial: u64,
    /// Whether its stream ended since the last assignment.
    pub(crate) lost_stream: bool,
    /// The lowest rate of a message that did not arrive since the last one that did.
    pub(crate) missed: Option<Rate>,
    /// Since when it has demand, an open stream, and no tokens.
    pub(crate) starved: Option<Micros>,
    /// Since when it has an open stream and no assignment.
    pub(crate) unassigned: Option<Micros>,
}

/// The rate of an assignment.
pub(crate) fn rate(assignment: Assignment) -> Rate {
    match assignment {
        Assignment::Bucket { tokens_per_fill, fill_seconds, .. } => {
            i128::from(tokens_per_fill) * 1_000_000_000 / i128::from(fill_seconds)
        }
        Assignment::AllowAll | Assignment::DenyAll => 0,
    }
}

fn size(assignment: Assignment) -> u32 {
    match assignment {
        Assignment::Bucket { max_tokens, .. } => max_tokens,
        Assignment::AllowAll | Assignment::DenyAll => 0,
    }
}

impl SimBucket {
    pub(crate) fn new(envoy: usize, fallbacks: Fallbacks) -> SimBucket {
        SimBucket { envoy, fallbacks, ..SimBucket::default() }
    }

    /// The rate that is in use.
    pub(crate) fn rate(&self) -> Rate {
        self.active.map_or(0, |active| rate(active.assignment))
    }

    /// The size of the token bucket.
    pub(crate) fn size(&self) -> u32 {
        self.active.map_or(0, |active| size(active.assignment))
    }

    /// Whether it has a valid assignment.
    pub(crate) fn is_assigned(&self) -> bool {
        self.active.is_some()
    }

    /// The requests per second that pass in the long run.
    pub(crate) fn flow(&self) -> f64 {
        self.demand.min(self.rate() as f64 / 1e9)
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, now: Micros) {
        while self.at < now {
            let (fallback, until) = self.fallback_at(self.at);
            let until = if self.is_assigned() { now } else { until.min(now) };
            let seconds = until.saturating_sub(self.at).0 as f64 / 1e6;
            self.at = until;
            self.asked += self.demand * seconds;
            if self.is_assigned() {
                let passed = self.take(self.rate() as f64 / 1e9, f64::from(self.size()), seconds);
                self.passed += passed;
                self.admitted += passed;
                continue;
            }
            let passed = match fallback {
                Fallback::DenyAll => 0.0,
                Fallback::AllowAll => self.demand * seconds,
                Fallback::Rate(rate) => self.take(rate, rate, seconds),
            };
            self.passed += passed;
            self.by_fallback += passed;
        }
    }

    /// The requests of a time that a token bucket passes.
    fn take(&mut self, rate: f64, size: f64, seconds: f64) -> f64 {
        let passed = (self.demand * seconds).min(self.tokens + rate * seconds);
        self.tokens = (self.tokens + rate * seconds - passed).min(size);
        passed
    }

    /// What passes without an assignment at `now`, and until when.
    fn fallback_at(&self, now: Micros) -> (Fallback, Micros) {
        let ends = self.expired.map(|since| since.saturating_add(self.fallbacks.expired_for));
        match ends {
            Some(ends) if now < ends => (self.fallbacks.expired, ends),
            _ => (self.fallbacks.unassigned, Micros(u64::MAX)),
        }
    }

    /// Takes an assignment of `instance`. Returns the tokens that it added. A changed bucket keeps its fill
    /// ratio, and a new one is full. A change of the seconds alone is none.
    pub(crate) fn assign(&mut self, due: &DueAssignment, instance: usize, now: Micros) -> f64 {
        self.advance(now);
        self.given = Some((instance, due.holder));
        self.serial += 1;
        self.missed = None;
        self.lost_stream = false;
        let before = self.active;
        let active = Active { assignment: due.assignment, generation: due.generation };
        if before.is_some_and(|before| before.generation == due.generation) {
            assert_eq!(before.map(|before| before.assignment), Some(due.assignment), "generation");
            return 0.0;
        }
        let (old_size, new_size) = (f64::from(self.size()), f64::from(size(active.assignment)));
        let old = if before.is_some() { self.tokens } else { 0.0 };
        self.active = Some(active);
        self.expired = None;
        self.highest = self.highest.max(self.rate());
        self.tokens = match old_size > 0.0 {
            true if self.is_local => old.min(new_size),
            true => (old / old_size * new_size).floor(),
            false => new_size,
        };
        (self.tokens - old).max(0.0)
    }

    /// The assignment expires.
    pub(crate) fn expire(&mut self, now: Micros) {
        self.advance(now);
        self.active = None;
        self.given = None;
        self.expired = Some(now);
        self.tokens = match self.fallbacks.expired {
            Fallback::Rate(rate) => rate,
            Fallback::DenyAll | Fallback::AllowAll => 0.0,
        };
    }

    /// A process without requests or assignments.
    pub(crate) fn restart(&mut self, now: Micros) {
        self.advance(now);
        let (demand, fallbacks, by_fallback) = (self.demand, self.fallbacks, self.by_fallback);
        let (serial, admitted) = (self.serial + 1, self.admitted);
        let SimBucket { envoy, shares_name, is_local, .. } = *self;
        *self = SimBucket {
            demand,
            fallbacks,
            by_fallback,
            envoy,
            shares_name,
            is_local,
            at: now,
            serial,
            admitted,
            ..SimBucket::default()
        };
    }

    /// Whole requests since the last report, all and passed ones. The rest stays for the next report.
    pub(crate) fn report(&mut self, now: Micros) -> (u64, u64) {
        self.advance(now);
        let (asked, passed) = (self.asked.floor(), self.passed.floor());
        self.asked -= asked;
        self.passed -= passed;
        self.reported = Some(now);
        self.highest = self.rate();
        (asked as u64, passed as u64)
    }

    /// Requests that passed by assignments since the last call.
    pub(crate) fn take_admitted(&mut self, now: Micros) -> f64 {
        self.advance(now);
        std::mem::take(&mut self.admitted)
    }
}
