//! A simulated Envoy: its buckets, as Envoy 1.40 fills and changes them. Requests are a steady flow.

use std::collections::BTreeMap;

use crate::quota::{Assignment, DueAssignment, HolderId};
use crate::time::Micros;

/// A rate in billionths of a hit per second.
pub(super) type Rate = i128;

/// An assignment that was received.
#[derive(Clone, Copy, Debug)]
struct Active {
    assignment: Assignment,
    generation: u32,
}

/// One bucket.
#[derive(Debug, Default)]
pub(super) struct SimBucket {
    /// Requests per second.
    pub(super) demand: f64,
    /// Requests per second that pass without an assignment.
    pub(super) fallback: f64,
    /// Its Envoy.
    pub(super) envoy: usize,
    /// Whether other Envoys have the same name.
    pub(super) shares_name: bool,
    /// Whether callers of an instance use it: its tokens stay when its size changes.
    pub(super) is_local: bool,
    /// Reports in a row without a request, of local callers.
    pub(super) idle_reports: u32,
    /// The instance that gave the assignment, and its holder.
    pub(super) given: Option<(usize, HolderId)>,
    /// The largest rate since the last report.
    pub(super) highest: Rate,
    active: Option<Active>,
    tokens: f64,
    at: Micros,
    /// Requests since the last report, and how many of them passed.
    asked: f64,
    passed: f64,
    /// Requests that passed by assignments, since the last call of `take_admitted`.
    admitted: f64,
    /// The last report of this process, if there was one.
    pub(super) reported: Option<Micros>,
    /// Counts assignments, for their expiry.
    pub(super) serial: u64,
    /// The lowest rate of a message that did not arrive since the last one that did.
    pub(super) missed: Option<Rate>,
    /// Since when it has demand, an open stream, and no tokens.
    pub(super) starved: Option<Micros>,
}

/// One Envoy.
#[derive(Debug)]
pub(super) struct SimEnvoy {
    /// Its address.
    pub(super) client: u64,
    /// The name that it sends, so that its shares follow it.
    pub(super) name: Option<u64>,
    /// The instance whose local callers it stands for.
    pub(super) home: Option<usize>,
    /// Counts processes.
    pub(super) epoch: u64,
    /// When its timer fires, within the report interval.
    pub(super) phase: Micros,
    /// Its stream, if it has one.
    pub(super) stream: Option<usize>,
    /// By quota.
    pub(super) buckets: BTreeMap<usize, SimBucket>,
}

/// The rate of an assignment.
pub(super) fn rate(assignment: Assignment) -> Rate {
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
    pub(super) fn new(envoy: usize, fallback: f64) -> SimBucket {
        SimBucket { envoy, fallback, ..SimBucket::default() }
    }

    /// The rate that is in use.
    pub(super) fn rate(&self) -> Rate {
        self.active.map_or(0, |active| rate(active.assignment))
    }

    /// The size of the token bucket.
    pub(super) fn size(&self) -> u32 {
        self.active.map_or(0, |active| size(active.assignment))
    }

    /// The requests per second that pass in the long run.
    pub(super) fn flow(&self) -> f64 {
        self.demand.min(self.rate() as f64 / 1e9)
    }

    /// Lets time pass.
    pub(super) fn advance(&mut self, now: Micros) {
        let seconds = now.saturating_sub(self.at).0 as f64 / 1e6;
        self.at = now;
        self.asked += self.demand * seconds;
        if self.active.is_none() {
            self.passed += self.demand.min(self.fallback) * seconds;
            return;
        }
        let (rate, size) = (self.rate() as f64 / 1e9, f64::from(self.size()));
        let passed = (self.demand * seconds).min(self.tokens + rate * seconds);
        self.tokens = (self.tokens + rate * seconds - passed).min(size);
        self.passed += passed;
        self.admitted += passed;
    }

    /// Takes an assignment of `instance`. Returns the tokens that it added. A changed bucket keeps its fill
    /// ratio, and a new one is full. A change of the seconds alone is none.
    pub(super) fn assign(&mut self, due: &DueAssignment, instance: usize, now: Micros) -> f64 {
        self.advance(now);
        self.given = Some((instance, due.holder));
        self.serial += 1;
        self.missed = None;
        let before = self.active;
        let active = Active { assignment: due.assignment, generation: due.generation };
        if before.is_some_and(|before| before.generation == due.generation) {
            assert_eq!(before.map(|before| before.assignment), Some(due.assignment), "generation");
            return 0.0;
        }
        let (old_size, new_size) = (f64::from(self.size()), f64::from(size(active.assignment)));
        self.active = Some(active);
        self.highest = self.highest.max(self.rate());
        let old = self.tokens;
        self.tokens = match old_size > 0.0 {
            true if self.is_local => old.min(new_size),
            true => (old / old_size * new_size).floor(),
            false => new_size,
        };
        (self.tokens - old).max(0.0)
    }

    /// The assignment expires.
    pub(super) fn expire(&mut self, now: Micros) {
        self.advance(now);
        self.active = None;
        self.given = None;
        self.tokens = 0.0;
    }

    /// A process without requests or assignments.
    pub(super) fn restart(&mut self, now: Micros) {
        self.advance(now);
        let (demand, fallback) = (self.demand, self.fallback);
        let (serial, admitted) = (self.serial + 1, self.admitted);
        let SimBucket { envoy, shares_name, is_local, .. } = *self;
        *self = SimBucket {
            demand,
            fallback,
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
    pub(super) fn report(&mut self, now: Micros) -> (u64, u64) {
        self.advance(now);
        let (asked, passed) = (self.asked.floor(), self.passed.floor());
        self.asked -= asked;
        self.passed -= passed;
        self.reported = Some(now);
        self.highest = self.rate();
        (asked as u64, passed as u64)
    }

    /// Requests that passed by assignments since the last call.
    pub(super) fn take_admitted(&mut self, now: Micros) -> f64 {
        self.advance(now);
        std::mem::take(&mut self.admitted)
    }
}
