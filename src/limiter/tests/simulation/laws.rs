//! The laws: guarantees of `docs/guides/modes.md`, checked on the history of one run.

use crate::algorithm;
use crate::limit::{Algorithm, Limit, Mode};
use crate::step::State;
use crate::time::Micros;

use super::history::{Decided, Disturbance, History, RequestKind, RequestRecord};
use super::rules::{self, Counter, Windows};
use super::schedule::{EventKind, Schedule};
use crate::descriptor::Entry;
use crate::key::CounterKey;
use crate::rules::{Found, RuleLimit};
use crate::testing::network::Conditions;
use crate::testing::simulated_store::LostCall;

mod conservation;
mod early;
mod floored;
mod leak;
mod order;
mod over;

/// A broken law.
#[derive(Clone, Debug)]
pub(super) struct Violation {
    pub(super) law: &'static str,
    /// What contradicts the law.
    pub(super) what: String,
}

/// One law.
pub(super) struct Law {
    pub(super) name: &'static str,
    /// Whether there is something in the history of a counter that the law restricts.
    applies: fn(&Facts<'_>) -> bool,
    /// What contradicts the law, where it applies.
    contradiction: fn(&Facts<'_>) -> Option<String>,
}

/// All laws, in the order of their checks.
pub(super) const LAWS: [Law; 10] = [
    leak::ANSWERED,
    conservation::WINDOWS,
    conservation::SLOTS,
    over::NEVER,
    over::WITH_REFUNDS,
    over::SYNCED,
    early::BESIDE_REDIS,
    early::BESIDE_HITS,
    early::BESIDE_CREDITS,
    leak::NOTHING_LEFT,
];

/// The number of counters to which each of [`LAWS`] applied.
pub(super) type Counts = [u64; LAWS.len()];

/// The first broken law of a run, and the number of counters to which each law applied until then.
pub(super) fn judge(schedule: &Schedule, history: &History) -> (Option<Violation>, Counts) {
    let mut counts = Counts::default();
    for index in 0..schedule.counters.len() {
        let facts = Facts::of(schedule, history, index);
        for (law, count) in LAWS.iter().zip(&mut counts) {
            if !(law.applies)(&facts) {
                continue;
            }
            *count += 1;
            if let Some(what) = (law.contradiction)(&facts) {
                let what = format!("c{index}: {what}");
                return (Some(Violation { law: law.name, what }), counts);
            }
        }
    }
    (None, counts)
}

/// What the laws need to know about one counter.
struct Facts<'a> {
    schedule: &'a Schedule,
    history: &'a History,
    counter: Counter,
    key: CounterKey,
    limit: Limit,
    mode: Mode,
    /// The requests to this counter.
    requests: Vec<&'a RequestRecord>,
    /// Every call had an outcome, and every request a decision.
    fault_free: bool,
    /// The rules stay the same.
    same_rules: bool,
    /// The counter is never deleted.
    never_deleted: bool,
    /// The calls to this counter without an outcome.
    lost: Vec<&'a LostCall>,
    /// The largest error of an estimate of the clock of Redis. A request counts at an instant
    /// that differs from its arrival by at most this.
    clock_error: Micros,
}

impl<'a> Facts<'a> {
    fn of(schedule: &'a Schedule, history: &'a History, index: usize) -> Facts<'a> {
        let counter = schedule.counters[index];
        let key = history.keys[index];
        let requests: Vec<&RequestRecord> =
            history.requests.iter().filter(|request| request.counter == index).collect();
        let (limit, mode) = rule(&counter, schedule.variant);
        let failed = |request: &RequestRecord| {
            matches!(request.decided, Decided::Failed(_) | Decided::Pending)
        };
        let down = schedule.events.iter().any(|event| matches!(event.what, EventKind::Down { .. }));
        let Conditions { loss_percent, cut_percent, .. } = schedule.conditions;
        let fault_free = !down && loss_percent + cut_percent == 0 && history.lost.is_empty();
        Facts {
            schedule,
            history,
            counter,
            key,
            limit,
            mode,
            fault_free: fault_free && !history.requests.iter().any(failed),
            same_rules: !history
                .disturbances
                .iter()
                .any(|(_, disturbance)| matches!(disturbance, Disturbance::Reload(_))),
            never_deleted: !history
                .disturbances
                .iter()
                .any(|(_, disturbance)| matches!(disturbance, Disturbance::Delete(_))),
            lost: history.lost.iter().filter(|lost| lost.key == key).collect(),
            clock_error: history.clock_error,
            requests,
        }
    }

    fn instances(&self) -> usize {
        self.schedule.offsets.len()
    }

    /// Whether the limit holds without exceptions: one instance decides, or none by a replica.
    fn is_strict(&self) -> bool {
        self.instances() == 1 || !matches!(self.mode, Mode::Synced { .. })
    }

    /// Whether the counter has this mode under any rules of the run: 0 exact, 1 leased, 2 synced.
    fn ever_has(&self, mode: usize) -> bool {
        let reloads =
            self.history.disturbances.iter().filter_map(|(_, disturbance)| match disturbance {
                Disturbance::Reload(variant) => Some(*variant),
                _ => None,
            });
        let mut variants = reloads.chain([self.schedule.variant]);
        variants.any(|variant| self.counter.mode(variant) == mode)
    }

    /// Hits that an instance had drawn until `at`, and had not spent.
    fn held(&self, instance: usize, at: Micros) -> i64 {
        let applied = self.history.applied.iter();
        let applied = applied.filter(|one| one.key == self.key && one.instance == instance);
        let drawn = applied.filter(|one| one.allowed && one.at <= at).map(|one| one.added());
        let requests = self.requests.iter().filter(|one| one.instance == instance && one.end <= at);
        drawn.sum::<i64>() - requests.map(|one| one.passed() - one.returned()).sum::<i64>()
    }

    /// Whether a hit passed.
    fn passes(&self) -> bool {
        self.requests.iter().any(|request| request.passed() > 0)
    }

    /// Whether no hit leaves the counter during the run.
    fn counts_all(&self) -> bool {
        let windows = [Algorithm::FixedWindow, Algorithm::SlidingWindow];
        let lists = self.limit.algorithm == Algorithm::SlidingWindowLog && !self.counter.reserves;
        self.counter.windows == Windows::Day && (windows.contains(&self.limit.algorithm) || lists)
    }

    /// Whether hits are given back or settled.
    fn gives_back(&self) -> bool {
        let back = |request: &&&RequestRecord| {
            request.hits < 0
                || matches!(request.kind, RequestKind::Closes(_))
                || request.decided == Decided::Freed
        };
        self.requests.iter().any(|request| back(&request))
    }

    /// The counter at `now`, in hits.
    fn used(&self, state: &Option<State>, now: Micros) -> i64 {
        let step = algorithm::plan(&self.limit, 0, now);
        let outcome = step.apply(&mut state.clone());
        algorithm::report(&self.limit, &step, &outcome).used as i64
    }

    /// Whether a counter in `state` allows `hits` at `now`.
    fn allows(&self, state: &Option<State>, hits: i64, now: Micros) -> bool {
        algorithm::plan(&self.limit, hits, now).apply(&mut state.clone()).allowed
    }

    /// The earliest and the latest instant at which a request that arrived at `begun` counts.
    fn around(&self, begun: Micros) -> [Micros; 2] {
        [begun.saturating_sub(self.clock_error), begun.saturating_add(self.clock_error)]
    }

    /// The longest time until the other synced instances know of a hit: the interval or two batches
    /// of exchanges, two calls, each as slow as any, and two periods of the job. 0 in other modes.
    fn propagation_time(&self) -> Micros {
        let Mode::Synced { interval } = self.mode else { return Micros::ZERO };
        let changes = self.schedule.events.iter().filter_map(|event| match event.what {
            EventKind::Conditions { conditions, .. } => Some(conditions),
            _ => None,
        });
        let all = changes.chain([self.schedule.conditions]);
        let slowest = all.map(|one| one.latency + one.jitter).max().unwrap_or(0);
        let call = 2 * slowest;
        // An exchange needs a second call if a window has ended.
        let long = |counter: &Counter| counter.windows == Windows::Day;
        let batch = if self.schedule.counters.iter().all(long) { call } else { 2 * call };
        let slack = Micros::from_millis(2 * call + 2 * self.schedule.period + 4);
        interval.max(Micros::from_millis(2 * batch)).saturating_add(slack)
    }

    /// An instant as milliseconds since the beginning, for messages.
    fn ms(&self, at: Micros) -> u64 {
        at.0.saturating_sub(self.schedule.epoch) / 1_000
    }
}

/// The limit and the mode of a counter's rule.
pub(super) fn rule(counter: &Counter, variant: usize) -> (Limit, Mode) {
    let rules = rules::rules(variant);
    let name = counter.name();
    let entries = [Entry { key: &name, value: "" }];
    let Found::Rule(rule) = rules.find(counter.domain(), &entries) else { panic!("a rule") };
    let RuleLimit::Limit(limit) = &rule.limit else { panic!("a limit") };
    (limit.clone(), rule.mode)
}
