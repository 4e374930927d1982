//! The steps of an instance in Redis: those of each counter by the mode of its rule, summed over the
//! counters. Requests are independent of one another, and each has one hit.

use super::RuleTraffic;
use super::counters::classes;
use super::inputs::{Inputs, RuleLoad};
use super::measured::{CALL, Cores, INSTANCE_STEP};
use crate::algorithm;
use crate::limit::{Algorithm, Limit, Mode, Tier};
use crate::modes::{
    CREDIT_POOLS_MAX, DENIALS_MAX, DRAINED_MAX, DRAW_AHEAD, FILL_TIME_MIN, LOW_SHIFT, POOL_GAP_MAX,
    RATE_STALE, REPLICA_IDLE_MAX, REPLICAS_MAX,
};
use crate::store::redis::NAME_BYTES;
use crate::store::redis::script::{EncodedStep, Script};
use crate::time::Micros;

/// The steps of one instance, and of its tables.
pub(super) struct Traffic {
    /// Instances.
    pub(super) instances: u32,
    /// Calls per second of one instance.
    pub(super) calls: f64,
    /// Steps per second that gRPC workers send.
    pub(super) workers: Steps,
    /// Steps per second of the background thread.
    pub(super) background: Steps,
    /// Full counters, credit pools and replicas of one instance.
    pub(super) denials: f64,
    pub(super) credit_pools: f64,
    pub(super) replicas: f64,
    /// The rule with the busiest counter, and the steps per second of this counter on all instances.
    pub(super) hottest: (usize, f64),
    /// The most counters at the same time.
    pub(super) counters_max: f64,
    /// Each rule, on all instances.
    pub(super) rules: Vec<RuleTraffic>,
}

/// Steps per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    /// By script, in the order of [`Script::ALL`].
    pub(super) by_script: [f64; 4],
    /// Bytes of the steps and of their replies, without those of their calls.
    pub(super) request_bytes: f64,
    pub(super) reply_bytes: f64,
}

/// Steps per second of one counter on one instance.
#[derive(Clone, Copy, Debug, Default)]
struct CounterSteps {
    /// Those that workers send, and those of the background thread.
    workers: f64,
    background: f64,
    /// Those of a counter that has no place in the table of its mode. Workers send them.
    without_entry: f64,
    /// The expected entries of the counter in that table.
    entries: f64,
}

/// The calls to one counter on one instance.
#[derive(Clone, Copy)]
struct CounterLoad {
    per_second: f64,
    denied: f64,
    instances: f64,
}

impl Steps {
    /// The sum over all scripts.
    pub(super) fn sum(&self) -> f64 {
        self.by_script.iter().sum()
    }

    fn add(&mut self, limit: &Limit, steps: f64) {
        let encoded = EncodedStep::of(&algorithm::plan(limit, 1, Micros::SECOND));
        self.by_script[encoded.script as usize] += steps;
        let argument = encoded.head.len() + encoded.body.len();
        self.request_bytes += steps * (word_bytes(NAME_BYTES) + word_bytes(argument));
        self.reply_bytes += steps * encoded.reply_len as f64;
    }
}

/// Bytes of a string of this length in the protocol of Redis.
pub(super) fn word_bytes(length: usize) -> f64 {
    let digits = length.max(1).ilog10() as usize + 1;
    (1 + digits + 2 + length + 2) as f64
}

impl Traffic {
    /// The traffic of each of `instances`, which share the calls evenly.
    ///
    /// A table that is too small has a part of its counters, and the rest has a step per request.
    pub(super) fn of(inputs: &Inputs, instances: u32) -> Traffic {
        let rate = inputs.rate_per_weight(instances);
        let demand = |rule| RuleDemand::of(inputs, rule, rate, instances);
        let demands: Vec<RuleDemand> = inputs.rules.iter().map(demand).collect();
        let entries = |wanted: fn(Mode) -> bool| -> f64 {
            let rules = inputs.rules.iter().zip(&demands).filter(|(rule, _)| wanted(rule.mode));
            rules.map(|(_, demand)| demand.all.entries).sum()
        };
        let mut traffic = Traffic {
            instances,
            calls: inputs.calls / f64::from(instances),
            workers: Steps::default(),
            background: Steps::default(),
            denials: entries(|mode| mode == Mode::Exact),
            credit_pools: entries(|mode| mode == Mode::Leased),
            replicas: entries(|mode| matches!(mode, Mode::Synced { .. })),
            hottest: (0, 0.0),
            counters_max: 0.0,
            rules: Vec::new(),
        };
        for (index, (rule, demand)) in inputs.rules.iter().zip(&demands).enumerate() {
            let (entries, max) = traffic.table(rule.mode);
            let covered = if entries > max { max / entries } else { 1.0 };
            let (workers, background) = demand.all.covered(covered);
            traffic.workers.add(&rule.limit, workers);
            traffic.background.add(&rule.limit, background);
            traffic.counters_max += demand.counters_max;
            let of_all = f64::from(instances);
            let hottest = demand.hottest.covered(covered);
            let hottest = of_all * (hottest.0 + hottest.1);
            if hottest > traffic.hottest.1 {
                traffic.hottest = (index, hottest);
            }
            traffic.rules.push(RuleTraffic {
                name: rule.name.clone(),
                mode: rule.mode.name(),
                steps_per_second: of_all * (workers + background),
                hottest_counter_steps_per_second: hottest,
            });
        }
        traffic
    }

    /// The entries of the table of a mode, and its size.
    fn table(&self, mode: Mode) -> (f64, f64) {
        match mode {
            Mode::Exact => (self.denials, DENIALS_MAX as f64),
            Mode::Leased => (self.credit_pools, CREDIT_POOLS_MAX as f64),
            Mode::Synced { .. } => (self.replicas, REPLICAS_MAX as f64),
        }
    }

    /// Steps per second of one instance.
    pub(super) fn steps(&self) -> f64 {
        self.workers.sum() + self.background.sum()
    }

    /// Cores that an instance uses of those of its workers.
    pub(super) fn cores(&self, workers: u32) -> Cores {
        let (saturated, woken) = INSTANCE_STEP;
        let low = self.calls * CALL + self.steps() * saturated;
        Cores::new(low, self.steps() * (woken - saturated), f64::from(workers))
    }
}

/// The steps of one rule on one instance.
#[derive(Default)]
struct RuleDemand {
    all: CounterSteps,
    hottest: CounterSteps,
    counters_max: f64,
}

impl RuleDemand {
    fn of(inputs: &Inputs, rule: &RuleLoad, rate_per_weight: f64, instances: u32) -> RuleDemand {
        let rate = rate_per_weight * rule.weight;
        let kept = kept(&rule.limit);
        let mut demand = RuleDemand::default();
        for (index, class) in classes(rule.counters, inputs.skew).into_iter().enumerate() {
            let per_second = rate * class.share;
            let load =
                CounterLoad { per_second, denied: inputs.denied, instances: instances.into() };
            let one = match rule.mode {
                Mode::Exact => exact(inputs, rule, load),
                Mode::Leased => leased(inputs, rule, load),
                Mode::Synced { interval } => synced(rule, load, seconds(interval)),
            };
            if index == 0 {
                demand.hottest = one;
            }
            demand.all.add(class.counters, one);
            let of_all = per_second * f64::from(instances);
            demand.counters_max += class.counters * (1.0 - (-of_all * kept).exp());
        }
        demand
    }
}

impl CounterSteps {
    fn add(&mut self, counters: f64, one: CounterSteps) {
        self.workers += counters * one.workers;
        self.background += counters * one.background;
        self.without_entry += counters * one.without_entry;
        self.entries += counters * one.entries;
    }

    /// The steps of workers and of the background thread, if the table has this part of the counters.
    fn covered(&self, part: f64) -> (f64, f64) {
        (part * self.workers + (1.0 - part) * self.without_entry, part * self.background)
    }
}

impl CounterLoad {
    fn allowed(self) -> f64 {
        self.per_second * (1.0 - self.denied)
    }

    /// Steps for requests that are denied. Denials are cached for a second while the counter is full.
    fn denials(self, probes: Option<f64>) -> f64 {
        let all = self.per_second * self.denied;
        probes.map_or(all, |probes| all.min(probes * self.denied))
    }
}

/// `mode: exact`: a step for each allowed request, one more for each lease, and a few for denials.
fn exact(inputs: &Inputs, rule: &RuleLoad, load: CounterLoad) -> CounterSteps {
    let probes = rule.probes(inputs);
    let ends = if rule.leases() { load.allowed() } else { 0.0 };
    CounterSteps {
        workers: load.allowed() + ends + load.denials(probes),
        background: 0.0,
        without_entry: load.per_second + ends,
        entries: if probes.is_some() { load.denied } else { 0.0 },
    }
}

/// `mode: leased`: the refills of a credit pool. A counter with less than one request in two seconds
/// has none. A pool never needs more steps than the requests themselves.
fn leased(inputs: &Inputs, rule: &RuleLoad, load: CounterLoad) -> CounterSteps {
    let direct = exact(inputs, rule, load).workers;
    let without_pool =
        CounterSteps { workers: direct, background: 0.0, without_entry: direct, entries: 0.0 };
    if load.allowed() * seconds(POOL_GAP_MAX) < 1.0 {
        return without_pool;
    }
    let refills = if rule.limit.algorithm.has_burst() {
        bucket_refills(&rule.limit, load)
    } else {
        Some(window_refills(rule.window(), load) + load.denials(rule.probes(inputs)))
    };
    let workers = refills.map_or(direct, |refills| refills.min(direct));
    CounterSteps { workers, entries: 1.0, ..without_pool }
}

/// The seconds between two refills of a counter whose credits last for `DRAW_AHEAD`: the next refill
/// starts when an eighth is left.
fn refill_interval() -> f64 {
    seconds(DRAW_AHEAD) * spent_share()
}

/// The share of the credits that is spent when the next refill starts.
fn spent_share() -> f64 {
    1.0 - 0.5_f64.powi(LOW_SHIFT as i32)
}

/// Refills and returns per second of a window of `window` seconds.
///
/// - At a steady rate, a refill takes place every [`refill_interval`] until the counter is full, and at
///   least one per window, because credits end with it.
/// - If the counter does not fill up, the credits that are left at the end of the window are returned.
/// - If it does, a refill takes at most half of the remaining hits. So refills shrink when the counter
///   has room for less than two of them, and from there on all instances together need the binary
///   logarithm of that room. One more refill is denied.
/// - After a long denial the rate is unknown, and the first refills grow threefold.
fn window_refills(window: f64, load: CounterLoad) -> f64 {
    let steady = (window * (1.0 - load.denied) / refill_interval()).max(1.0);
    let full = window * load.denied;
    let more = if full == 0.0 {
        1.0
    } else {
        let room = 2.0 * refill_interval() * load.per_second;
        let wanted = seconds(DRAW_AHEAD) * load.per_second;
        let is_forgotten = full >= seconds(RATE_STALE);
        let growth = if is_forgotten { wanted.max(1.0).ln() / 3.0_f64.ln() } else { 0.0 };
        1.0 + room.max(1.0).log2() / load.instances + growth
    };
    (steady + more) / window
}

/// Refills per second of a bucket; `None` if each request needs a step.
///
/// Credits last for half of the time in which the bucket fills, and at most for `DRAW_AHEAD`. They
/// drain at the rate of the bucket while they wait, so a refill also draws what drains, up to
/// `DRAINED_MAX` times the wanted credits. A bucket that denies has too little room to draw ahead, and
/// one that fills fast has no use for credits.
fn bucket_refills(limit: &Limit, load: CounterLoad) -> Option<f64> {
    let fill = |tier: &Tier| tier.burst as f64 * seconds(tier.window) / tier.requests as f64;
    let fill = limit.tiers.iter().map(fill).fold(f64::INFINITY, f64::min);
    let rate = limit.tiers.iter().map(|tier| tier.requests as f64 / seconds(tier.window));
    let rate = rate.fold(0.0, f64::max);
    let is_blocked = limit.tiers.iter().any(|tier| tier.requests == 0);
    if is_blocked || fill < seconds(FILL_TIME_MIN) || load.denied > 0.0 {
        return None;
    }
    let ahead = seconds(DRAW_AHEAD);
    let wanted = load.per_second * ahead.min(fill / 2.0);
    let drawn = wanted.max((rate * ahead.min(fill)).min(DRAINED_MAX as f64 * wanted));
    Some(rate.max(load.per_second) / (drawn * spent_share()))
}

/// `mode: synced`: two exchanges per interval while there is a replica. A request without one is a step.
///
/// A replica is removed after two intervals without a request, and at most ten seconds. So with
/// independent requests it exists with the probability of a request in that time. A sliding window, and
/// a rule with several windows, need one more step when a window ends.
fn synced(rule: &RuleLoad, load: CounterLoad, interval: f64) -> CounterSteps {
    let kept = (2.0 * interval).min(seconds(REPLICA_IDLE_MAX));
    let exists = 1.0 - (-load.per_second * kept).exp();
    let ends = rule.limit.algorithm == Algorithm::SlidingWindow || rule.limit.tiers.len() > 1;
    let ends = if ends { 1.0 / rule.window() } else { 0.0 };
    CounterSteps {
        workers: load.per_second * (1.0 - exists),
        background: exists * (2.0 / interval + ends),
        without_entry: load.per_second,
        entries: exists,
    }
}

/// The longest time in seconds from a hit until its counter expires, with the second that Redis keeps it
/// longer.
fn kept(limit: &Limit) -> f64 {
    let of_tier = |tier: &Tier| match limit.algorithm {
        Algorithm::SlidingWindow => 2.0 * seconds(tier.window),
        Algorithm::TokenBucket | Algorithm::LeakyBucket if tier.requests > 0 => {
            tier.burst as f64 * seconds(tier.window) / tier.requests as f64
        }
        _ => seconds(tier.window),
    };
    1.0 + limit.tiers.iter().map(of_tier).fold(0.0, f64::max)
}

fn seconds(length: Micros) -> f64 {
    length.0 as f64 / 1e6
}

/// Every script has its place in [`Steps::by_script`].
const _: () = assert!(Script::ALL.len() == 4);
