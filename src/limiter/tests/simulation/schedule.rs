//! Schedules: the instances, the network and the events of one run, all from one seed.

use super::network::Conditions;
use super::rng::Rng;
use super::rules::{self, Counter, Windows};
use crate::limit::Algorithm;

/// The length of a day in microseconds.
const DAY: u64 = 86_400_000_000;

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    /// The clocks of the instances, in microseconds ahead of Redis.
    pub(super) offsets: Vec<i64>,
    /// The clock of Redis at the beginning, in microseconds.
    pub(super) epoch: u64,
    pub(super) conditions: Conditions,
    /// The store's timeout in milliseconds.
    pub(super) timeout: u64,
    /// The period of the background job in milliseconds.
    pub(super) period: u64,
    /// The counters that requests use.
    pub(super) counters: Vec<Counter>,
    /// The rules at the beginning, see [`rules::variant`].
    pub(super) variant: usize,
    /// In the order of their instants.
    pub(super) events: Vec<Event>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Milliseconds since the beginning.
    pub(super) at: u64,
    pub(super) what: What,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A request with one descriptor per counter and number of hits; 0 hits peek.
    Request { instance: usize, parts: Vec<(usize, u64)>, then: Then },
    /// All instances load other rules.
    Reload { variant: usize },
    /// An operator deletes a counter.
    Delete { instance: usize, counter: usize },
    /// The network changes.
    Conditions(Conditions),
    /// All connections end, or are there again.
    Down(bool),
    /// An instance ends in order.
    Drain { instance: usize },
}

/// What follows a request that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// The hits are given back.
    Refund {
        after: u64,
        instance: usize,
    },
    /// The slots are released, or the reservation is settled with this number of hits.
    Close {
        after: u64,
        instance: usize,
        hits: u64,
    },
}

impl Schedule {
    /// The schedule of a seed.
    pub(super) fn random(seed: u64) -> Schedule {
        let mut rng = Rng::new(seed);
        let instances = rng.pick(&[1, 1, 2, 2, 3]);
        let (counters, mode) = counters(&mut rng);
        let latency = rng.pick(&[0, 0, 1, 3, 6, 30, 60]);
        let jitter = rng.pick(&[0, 0, 1, 3, 20]);
        let loses = rng.pick(&[0, 0, 0, 5, 15]);
        let conditions = Conditions { latency, jitter, loses };
        let longest = 2 * (latency + jitter);
        let timeout = (longest + rng.pick(&[1, 1, 10, 100])).max(rng.pick(&[10, 10, 100, 250]));
        let timeout = if rng.chance(8) { rng.pick(&[2, 10, 50]) } else { timeout };
        let offsets = (0..instances).map(|_| rng.below(600_000_000) as i64 - 300_000_000);
        let mut schedule = Schedule {
            seed,
            offsets: offsets.collect(),
            epoch: DAY * 20_000 + DAY / 4 + rng.below(DAY / 2) / 1_000 * 1_000,
            conditions,
            timeout,
            period: rng.pick(&[10, 20, 50]),
            counters,
            variant: rules::variant(mode, rng.next() as usize),
            events: Vec::new(),
        };
        schedule.traffic(&mut rng);
        // A long schedule with a short period would mostly simulate ticks.
        if schedule.length() > 1_500 {
            schedule.period = rng.pick(&[20, 50, 100, 100]);
        }
        schedule.disturbances(&mut rng);
        schedule.events.sort_by_key(|event| event.at);
        schedule
    }

    /// The mode, and whether requests have one instance or several.
    pub(super) fn theme(&self) -> String {
        let several = if self.offsets.len() > 1 { "several" } else { "one" };
        format!("{} {several}", rules::mode(self.variant))
    }

    /// The last instant of an event, in milliseconds.
    fn length(&self) -> u64 {
        self.events.iter().map(|event| event.at).max().unwrap_or(0)
    }

    /// Requests in one to three phases, each with its own rate.
    fn traffic(&mut self, rng: &mut Rng) {
        let mut at = 0;
        let most = rng.pick(&[1, 1, 2, 6]);
        let follows = rng.chance(50);
        for _ in 0..=rng.below(3) {
            let gap = rng.pick(&[0, 1, 4, 20, 100, 400, 1_000]);
            let count = rng.below(if gap > 100 { 12 } else { 40 });
            let only = rng.chance(30).then(|| rng.below(self.offsets.len() as u64) as usize);
            for _ in 0..count {
                at += rng.below(2 * gap + 1);
                let instance = only.unwrap_or_else(|| self.any_instance(rng));
                let what = self.request(rng, instance, most, follows);
                self.events.push(Event { at, what });
            }
            at += rng.pick(&[0, 10, 500, 1_100, 3_000]);
        }
    }

    fn any_instance(&self, rng: &mut Rng) -> usize {
        rng.below(self.offsets.len() as u64) as usize
    }

    fn request(&self, rng: &mut Rng, instance: usize, most: u64, follows: bool) -> What {
        let hits = |rng: &mut Rng| if rng.chance(4) { 0 } else { 1 + rng.below(most) };
        let first = rng.below(self.counters.len() as u64) as usize;
        let mut parts = vec![(first, hits(rng))];
        if self.counters.len() > 1 && rng.chance(60) {
            parts.push((1 - first, hits(rng)));
        }
        let other = if rng.chance(60) { instance } else { self.any_instance(rng) };
        let after = rng.pick(&[1, 1, 30, 200, 1_000]);
        let closes = self.counters[first].reserves
            || self.counters[first].algorithm == Algorithm::Concurrency;
        let then = if closes && rng.chance(95) {
            Then::Close { after, instance: other, hits: rng.below(2 * most + 1) }
        } else if follows && !closes && parts.len() == 1 && rng.chance(25) {
            // A synced instance can give back only what it has, so hits return where they passed.
            let synced = rules::mode(self.variant) == "synced";
            Then::Refund { after, instance: if synced { instance } else { other } }
        } else {
            Then::Nothing
        };
        What::Request { instance, parts, then }
    }

    /// Reloads, deletions, outages and drains, in some schedules.
    fn disturbances(&mut self, rng: &mut Rng) {
        let length = self.length() + 1;
        let mut push = |at, what| self.events.push(Event { at, what });
        if rng.chance(15) {
            for _ in 0..=rng.below(2) {
                let mode = rng.below(3) as usize;
                let variant = rules::variant(mode, rng.next() as usize);
                push(rng.below(length), What::Reload { variant });
            }
        }
        let instances = self.offsets.len() as u64;
        if rng.chance(10) {
            let (instance, counter) = (rng.below(instances) as usize, 0);
            push(rng.below(length), What::Delete { instance, counter });
        }
        if rng.chance(15) {
            let at = rng.below(length);
            let slow = Conditions { latency: self.conditions.latency + 40, ..self.conditions };
            push(at, What::Conditions(slow));
            push(at + 1 + rng.below(600), What::Conditions(self.conditions));
        }
        if rng.chance(8) {
            let at = rng.below(length);
            push(at, What::Down(true));
            push(at + 1 + rng.below(1_500), What::Down(false));
        }
        if rng.chance(30) {
            let instance = rng.below(instances) as usize;
            push(rng.below(length), What::Drain { instance });
        }
    }
}

/// The counters of a schedule, and the mode of their rules.
fn counters(rng: &mut Rng) -> (Vec<Counter>, usize) {
    let mode = rng.pick(&[0, 0, 1, 1, 1, 2, 2, 2]);
    let windows = rng.pick(&[Windows::Day, Windows::Day, Windows::Seconds, Windows::Two]);
    let free = rng.chance(20);
    let algorithm = |rng: &mut Rng| match mode {
        0 => rng.pick(&Algorithm::ALL),
        _ => rng.pick(&[
            Algorithm::FixedWindow,
            Algorithm::SlidingWindow,
            Algorithm::TokenBucket,
            Algorithm::TokenBucket,
            Algorithm::LeakyBucket,
        ]),
    };
    let first = algorithm(rng);
    let reserves = mode == 0 && first != Algorithm::Concurrency && rng.chance(30);
    let mut counters = vec![Counter { algorithm: first, windows, reserves, free }];
    let second = algorithm(rng);
    if free || rng.chance(15) {
        // Another counter, which may be full when the first one is not.
        let second = if second == first { Algorithm::FixedWindow } else { second };
        if second != first {
            counters.push(Counter { algorithm: second, windows, reserves: false, free });
        }
    }
    (counters, mode)
}
