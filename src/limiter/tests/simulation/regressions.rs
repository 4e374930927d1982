//! Schedules that once broke a promise. They stay in the tests, independent of the random ones.

use super::network::Conditions;
use super::rules::{self, Counter, Windows};
use super::schedule::{Event, Schedule, Then, What};
use super::{history, judge, laws, run};
use crate::limit::{Algorithm, Limit, Mode};

/// Milliseconds from one day's quarter to the instant of these schedules.
const EPOCH: u64 = 86_400_000_000 * 20_000 + 30_000_000_000;

/// A schedule of one counter with a rule that `fits`, and a network of this latency.
fn schedule(
    counter: Counter,
    mode: usize,
    fits: impl Fn(&Limit, Mode) -> bool,
    instances: usize,
    latency: u64,
) -> Schedule {
    let variants = (0..64).map(|limits| rules::variant(mode, limits));
    let variant = variants.into_iter().find(|&variant| {
        let (limit, mode) = laws::rule(&counter, variant);
        fits(&limit, mode)
    });
    Schedule {
        seed: 1,
        offsets: (0..instances as i64).map(|number| 90_000_000 * number - 45_000_123).collect(),
        epoch: EPOCH,
        conditions: Conditions { latency, jitter: 0, loses: 0 },
        timeout: 250,
        period: 10,
        counters: vec![counter],
        variant: variant.expect("a variant that fits"),
        events: Vec::new(),
    }
}

fn counter(algorithm: Algorithm) -> Counter {
    Counter { algorithm, windows: Windows::Day, reserves: false, free: false }
}

impl Schedule {
    fn hit(mut self, at: u64, instance: usize, hits: u64) -> Schedule {
        let (parts, then) = (vec![(0, hits)], Then::Nothing);
        self.events.push(Event { at, what: What::Request { instance, parts, then } });
        self
    }

    fn hits(self, count: u64, from: u64, gap: u64, instance: usize) -> Schedule {
        (0..count).fold(self, |schedule, number| schedule.hit(from + number * gap, instance, 1))
    }

    fn holds(self) {
        let (violation, _) = judge(&self);
        if std::env::var("WEIR_SIMULATION_SHOW").is_ok() {
            println!("{}", history::text(&self, &run::run(&self)));
        }
        if let Some(violation) = violation {
            let history = run::run(&self);
            panic!("{}: {}\n{}", violation.law, violation.what, history::text(&self, &history));
        }
    }
}

/// A settlement on one instance makes room on the others within one second.
#[test]
fn a_settlement_elsewhere_ends_cached_denials() {
    let algorithms = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::TokenBucket,
    ];
    for algorithm in algorithms {
        let counter = Counter { reserves: true, ..counter(algorithm) };
        let mut schedule = schedule(counter, 0, |limit, _| !limit.count_denied, 2, 1);
        let (limit, _) = laws::rule(&counter, schedule.variant);
        let bucket = matches!(algorithm, Algorithm::TokenBucket);
        let all = if bucket { limit.tiers[0].burst } else { limit.tiers[0].requests };
        let then = Then::Close { after: 300, instance: 0, hits: 0 };
        let what = What::Request { instance: 0, parts: vec![(0, all)], then };
        schedule.events.push(Event { at: 0, what });
        schedule.hit(100, 1, 1).hit(1_500, 1, 1).holds();
    }
}

/// One instance spends a leased bucket to the last token, at a rate at which tokens stay unspent.
#[test]
fn one_leased_instance_passes_what_exact_passes() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        for (gap, latency) in [(300, 0), (300, 3), (600, 1), (1_150, 1), (40, 6)] {
            let fits = |limit: &Limit, _| limit.tiers[0].burst >= 40;
            let schedule = schedule(counter(algorithm), 1, fits, 1, latency);
            schedule.hits(50, 0, gap, 0).holds();
        }
    }
}

/// One synced instance is never over its limit, although many requests arrive before its replica.
#[test]
fn one_synced_instance_is_not_over_a_cold_counter() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        for latency in [1, 3, 60] {
            let fits = |limit: &Limit, _| (5..20).contains(&limit.tiers[0].requests);
            let schedule = schedule(counter(algorithm), 2, fits, 1, latency);
            schedule.hits(40, 0, 1, 0).holds();
        }
    }
}

/// Requests before the replica do not disturb an exchange.
#[test]
fn synced_hits_are_sent_once_when_answers_cross() {
    for (interval, latency, gap) in [(10, 6, 4), (20, 6, 4), (100, 60, 20)] {
        let fits = |limit: &Limit, mode: Mode| {
            limit.tiers[0].requests >= 8 && rules::interval(mode) == interval * 1_000
        };
        let schedule = schedule(counter(Algorithm::FixedWindow), 2, fits, 1, latency);
        schedule.hits(3, 0, gap, 0).holds();
    }
}

/// A drain sends the hits of exchanges and returns the tokens of refills that are under way.
#[test]
fn a_drain_loses_nothing_that_is_under_way() {
    for mode in [1, 2] {
        for at in [20, 130, 210, 290, 350, 431, 470] {
            let fits = |limit: &Limit, mode: Mode| {
                limit.tiers[0].requests >= 60 && [0, 100_000].contains(&rules::interval(mode))
            };
            let schedule = schedule(counter(Algorithm::FixedWindow), mode, fits, 1, 60);
            let mut schedule = schedule.hits(50, 0, 10, 0);
            schedule.events.push(Event { at, what: What::Drain { instance: 0 } });
            schedule.events.sort_by_key(|event| event.at);
            schedule.holds();
        }
    }
}
