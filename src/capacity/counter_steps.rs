//! The steps of one counter in Redis, by the mode of its rule. Requests are independent of one another,
//! and each has one hit.

use super::inputs::{Inputs, RuleLoad};
use crate::limit::{Algorithm, Calendar, Limit, Mode, Tier};
use crate::modes::{
    DRAINED_MAX, DRAW_AHEAD, FILL_TIME_MIN, LOW_SHIFT, POOL_GAP_MAX, RATE_STALE, REPLICA_IDLE_MAX,
};
use crate::time::Micros;

/// Steps per second of one counter on one instance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CounterSteps {
    /// Those that workers send, and those of the background thread.
    workers: f64,
    background: f64,
    /// Those of a counter that has no place in the table of its mode. Workers send them.
    without_entry: f64,
    /// Those of workers that draw and return credits.
    credits: f64,
    /// The expected entries of the counter in that table.
    pub(super) entries: f64,
}

/// The calls to one counter on one instance.
#[derive(Clone, Copy)]
pub(super) struct CounterLoad {
    /// Calls per second.
    pub(super) per_second: f64,
    /// The share of them that is denied.
    pub(super) denied: f64,
    /// All instances that call the counter.
    pub(super) instances: f64,
}

impl CounterSteps {
    /// The steps of a counter of `rule` for `load`.
    pub(super) fn of(inputs: &Inputs, rule: &RuleLoad, load: CounterLoad) -> CounterSteps {
        match rule.mode {
            Mode::Exact => exact(inputs, rule, load),
            Mode::Leased => leased(inputs, rule, load),
            Mode::Synced { interval } => synced(rule, load, seconds(interval)),
        }
    }

    /// Adds the steps of `counters` counters that are like `one`.
    pub(super) fn add(&mut self, counters: f64, one: CounterSteps) {
        self.workers += counters * one.workers;
        self.background += counters * one.background;
        self.without_entry += counters * one.without_entry;
        self.credits += counters * one.credits;
        self.entries += counters * one.entries;
    }

    /// The steps of workers and of the background thread, if the table has this part of the counters.
    pub(super) fn covered(&self, part: f64) -> (f64, f64) {
        (part * self.workers + (1.0 - part) * self.without_entry, part * self.background)
    }

    /// The steps that draw and return credits, if the table has this part of the counters.
    pub(super) fn credits(&self, part: f64) -> f64 {
        part * self.credits
    }
}

impl CounterLoad {
    fn allowed(self) -> f64 {
        self.per_second * (1.0 - self.denied)
    }

    /// Steps for requests that are denied. Denials are cached for a second while the counter is full.
    fn denials(self, full_counter_steps: Option<f64>) -> f64 {
        let all = self.per_second * self.denied;
        full_counter_steps.map_or(all, |steps| all.min(steps * self.denied))
    }
}

/// `mode: exact`: a step for each allowed request, one more for each lease, and a few for denials.
fn exact(inputs: &Inputs, rule: &RuleLoad, load: CounterLoad) -> CounterSteps {
    let full_counter_steps = rule.full_counter_steps(inputs);
    let ends = if rule.leases() { load.allowed() } else { 0.0 };
    CounterSteps {
        workers: load.allowed() + ends + load.denials(full_counter_steps),
        background: 0.0,
        without_entry: load.per_second + ends,
        credits: 0.0,
        entries: if full_counter_steps.is_some() { load.denied } else { 0.0 },
    }
}

/// `mode: leased`: the refills of a credit pool. A counter with less than one request in two seconds
/// has none. A pool never needs more steps than the requests themselves.
fn leased(inputs: &Inputs, rule: &RuleLoad, load: CounterLoad) -> CounterSteps {
    let direct = exact(inputs, rule, load).workers;
    let without_pool =
        CounterSteps { workers: direct, without_entry: direct, ..CounterSteps::default() };
    if load.allowed() * seconds(POOL_GAP_MAX) < 1.0 {
        return without_pool;
    }
    let refills = if rule.limit.algorithm.has_burst() {
        bucket_refills(&rule.limit, load)
    } else {
        Some(window_refills(rule.window(), load) + load.denials(rule.full_counter_steps(inputs)))
    };
    let workers = refills.map_or(direct, |refills| refills.min(direct));
    CounterSteps { workers, credits: workers, entries: 1.0, ..without_pool }
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
    let idle_max = (2.0 * interval).min(seconds(REPLICA_IDLE_MAX));
    let exists = 1.0 - (-load.per_second * idle_max).exp();
    let ends = rule.limit.algorithm == Algorithm::SlidingWindow || rule.limit.tiers.len() > 1;
    let ends = if ends { 1.0 / rule.window() } else { 0.0 };
    CounterSteps {
        workers: load.per_second * (1.0 - exists),
        background: exists * (2.0 / interval + ends),
        without_entry: load.per_second,
        credits: 0.0,
        entries: exists,
    }
}

/// The longest time in seconds from a hit until its counter expires, with the second that Redis keeps it
/// longer.
pub(super) fn lifetime(limit: &Limit) -> f64 {
    let window = |tier: &Tier| tier.calendar.as_ref().map_or(tier.window, Calendar::longest);
    let of_tier = |tier: &Tier| match limit.algorithm {
        Algorithm::SlidingWindow => 2.0 * seconds(tier.window),
        Algorithm::TokenBucket | Algorithm::LeakyBucket if tier.requests > 0 => {
            tier.burst as f64 * seconds(tier.window) / tier.requests as f64
        }
        Algorithm::FixedWindow
        | Algorithm::SlidingWindowLog
        | Algorithm::TokenBucket
        | Algorithm::LeakyBucket
        | Algorithm::Concurrency => seconds(window(tier)),
    };
    1.0 + limit.tiers.iter().map(of_tier).fold(0.0, f64::max)
}

fn seconds(length: Micros) -> f64 {
    length.0 as f64 / 1e6
}
