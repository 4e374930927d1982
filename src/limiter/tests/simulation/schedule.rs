//! Schedules: the instances, the network and the events of one run, all from one seed.

use super::rules::{self, Counter, Windows};
use crate::limit::Algorithm;
use crate::testing::Rng;
use crate::testing::network::Conditions;

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
    /// Redis nodes. A counter has one.
    pub(super) nodes: usize,
    /// The conditions on the link to every node at the beginning.
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
    pub(super) what: EventKind,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    /// A request with one descriptor per counter and number of hits; 0 hits peek. A counter may
    /// occur twice.
    Request { instance: usize, parts: Vec<(usize, u64)>, then: FollowUp },
    /// All instances load other rules.
    Reload { variant: usize },
    /// An operator deletes a counter.
    Delete { instance: usize, counter: usize },
    /// The link to a node changes.
    Conditions { node: usize, conditions: Conditions },
    /// All connections to a node end, or are there again.
    Down { node: usize, down: bool },
    /// A node answers no call, or answers again.
    Stalled { node: usize, stalled: bool },
    /// An instance ends in order.
    Drain { instance: usize },
}

impl EventKind {
    /// The node of an event on the link to a node; otherwise 0.
    pub(super) fn node(&self) -> usize {
        match self {
            EventKind::Conditions { node, .. } | EventKind::Down { node, .. } => *node,
            EventKind::Stalled { node, .. } => *node,
            _ => 0,
        }
    }
}

/// What follows a request that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowUp {
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
        let theme = rng.pick(&[0, 0, 1, 1, 1, 2, 2, 2, 3, 3]);
        let variant = rules::variant(theme, rng.next() as usize);
        let counters = counters(theme, &mut rng);
        let nodes = rng.pick(&[1, 1, 2, 3]);
        let latency = rng.pick(&[0, 0, 1, 3, 6, 30, 60]);
        let jitter = rng.pick(&[0, 0, 1, 3, 20]);
        let loss_percent = rng.pick(&[0, 0, 0, 5, 15]);
        let conditions = Conditions { latency, jitter, loss_percent, cut_percent: 0 };
        let longest = 2 * (latency + jitter);
        let timeout = (longest + rng.pick(&[1, 1, 10, 100])).max(rng.pick(&[10, 10, 100, 250]));
        let timeout = if rng.chance(8) { rng.pick(&[2, 10, 50]) } else { timeout };
        let offsets = (0..instances).map(|_| rng.below(600_000_000) as i64 - 300_000_000);
        let mut schedule = Schedule {
            seed,
            offsets: offsets.collect(),
            epoch: DAY * 20_000 + DAY / 4 + rng.below(DAY / 2) / 1_000 * 1_000,
            nodes,
            conditions,
            timeout,
            period: rng.pick(&[10, 20, 50]),
            counters,
            variant,
            events: Vec::new(),
        };
        schedule.traffic(&mut rng);
        // A long schedule with a short period would mostly simulate the background job.
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
        format!("{} {several}", rules::theme(self.variant))
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

    fn request(&self, rng: &mut Rng, instance: usize, most: u64, follows: bool) -> EventKind {
        let hits = |rng: &mut Rng| if rng.chance(4) { 0 } else { 1 + rng.below(most) };
        let first = rng.below(self.counters.len() as u64) as usize;
        let closes = |index: usize| {
            let Counter { algorithm, reserves, .. } = self.counters[index];
            reserves || algorithm == Algorithm::Concurrency
        };
        let mut parts = vec![(first, hits(rng))];
        for other in (0..self.counters.len()).filter(|&other| other != first) {
            if rng.chance(60) {
                parts.push((other, hits(rng)));
            }
        }
        if !closes(first) && rng.chance(5) {
            parts.push((first, hits(rng)));
        }
        let other = if rng.chance(60) { instance } else { self.any_instance(rng) };
        let after = rng.pick(&[1, 1, 30, 200, 1_000]);
        let then = if closes(first) && rng.chance(95) {
            FollowUp::Close { after, instance: other, hits: rng.below(2 * most + 1) }
        } else if follows && !closes(first) && parts.len() == 1 && rng.chance(25) {
            FollowUp::Refund { after, instance: other }
        } else {
            FollowUp::Nothing
        };
        EventKind::Request { instance, parts, then }
    }

    /// Reloads, deletions, drains, and outages of single nodes, in some schedules.
    fn disturbances(&mut self, rng: &mut Rng) {
        let length = self.length() + 1;
        let mut push = |at, what| self.events.push(Event { at, what });
        if rng.chance(15) {
            for _ in 0..=rng.below(2) {
                let theme = rng.below(4) as usize;
                let variant = rules::variant(theme, rng.next() as usize);
                push(rng.below(length), EventKind::Reload { variant });
            }
        }
        let instances = self.offsets.len() as u64;
        let any_node = |rng: &mut Rng| rng.below(self.nodes as u64) as usize;
        if rng.chance(10) {
            let (instance, counter) = (rng.below(instances) as usize, 0);
            push(rng.below(length), EventKind::Delete { instance, counter });
        }
        if rng.chance(15) {
            let (at, node, usual) = (rng.below(length), any_node(rng), self.conditions);
            let slow = Conditions { latency: usual.latency + 40, ..usual };
            push(at, EventKind::Conditions { node, conditions: slow });
            push(at + 1 + rng.below(600), EventKind::Conditions { node, conditions: usual });
        }
        if rng.chance(8) {
            let (at, node) = (rng.below(length), any_node(rng));
            push(at, EventKind::Down { node, down: true });
            push(at + 1 + rng.below(1_500), EventKind::Down { node, down: false });
        }
        if rng.chance(5) {
            let (at, node) = (rng.below(length), any_node(rng));
            push(at, EventKind::Stalled { node, stalled: true });
            push(at + 1 + rng.below(1_500), EventKind::Stalled { node, stalled: false });
        }
        if rng.chance(30) {
            let instance = rng.below(instances) as usize;
            push(rng.below(length), EventKind::Drain { instance });
        }
    }
}

/// The counters of a schedule, each of another rule.
fn counters(theme: usize, rng: &mut Rng) -> Vec<Counter> {
    let windows = rng.pick(&[Windows::Day, Windows::Day, Windows::Seconds, Windows::Two]);
    let free = rng.chance(20);
    let algorithm = |rng: &mut Rng| match theme {
        1 | 2 => rng.pick(&[
            Algorithm::FixedWindow,
            Algorithm::SlidingWindow,
            Algorithm::TokenBucket,
            Algorithm::TokenBucket,
            Algorithm::LeakyBucket,
        ]),
        _ => rng.pick(&Algorithm::ALL),
    };
    let first = algorithm(rng);
    let reserves = theme == 0 && first != Algorithm::Concurrency && rng.chance(30);
    let mut counters = vec![Counter { algorithm: first, windows, reserves, free }];
    // Further counters may be full when the first one is not.
    while counters.len() < 3 && rng.chance(if free || theme == 3 { 60 } else { 15 }) {
        let windows = if rng.chance(80) { windows } else { Windows::Day };
        let other = Counter { algorithm: algorithm(rng), windows, reserves: false, free };
        if counters.iter().all(|known| known.name() != other.name()) {
            counters.push(other);
        }
    }
    counters
}
