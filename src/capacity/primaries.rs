//! The primaries: their shares of the steps, and the script calls that carry these steps.

use serde::Serialize;

use super::cores::{CoreNeeds, Cores, CostByRate};
use super::inputs::Inputs;
use super::measured;
use super::traffic::{StepRates, Traffic, word_bytes};
use crate::limit::Mode;
use crate::modes::JOB_PERIOD;
use crate::store::redis::batch::ENTRY_STEPS_MAX;
use crate::store::redis::script::Script;
use crate::store::redis::{FLUSHERS_MAX, HASH_TAGS};

/// The fewest primaries of a Cluster.
pub(super) const CLUSTER_PRIMARIES_MIN: u32 = 3;

/// The most primaries with counters: the counters of a hash tag are on one primary.
pub(super) const PRIMARIES_MAX: u32 = HASH_TAGS as u32;

/// The load on one primary.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrimaryLoad {
    /// Its share of all steps.
    pub share: f64,
    /// Steps per second.
    pub steps_per_second: f64,
    /// Script calls per second.
    pub script_calls_per_second: f64,
    /// Steps in a script call; 0 without steps.
    pub steps_per_script_call: f64,
    /// Bytes per second from the instances.
    pub request_bytes_per_second: f64,
    /// Bytes per second to the instances.
    pub reply_bytes_per_second: f64,
    /// Use of the one core that runs scripts.
    pub cores: Cores,
}

/// All primaries.
pub(super) struct Primaries {
    /// One load per primary. The first one has the counter with most steps.
    pub(super) loads: Vec<PrimaryLoad>,
    /// Connections to one primary.
    pub(super) connections: f64,
}

/// Script calls and writes per second of one connection.
#[derive(Clone, Copy, Default)]
struct CallRates {
    calls: f64,
    writes: f64,
}

impl Primaries {
    /// The loads on `count` primaries.
    pub(super) fn of(inputs: &Inputs, traffic: &Traffic, count: u32) -> Primaries {
        let loads = shares(traffic, count).into_iter();
        let loads = loads.map(|(share, groups)| load(inputs, traffic, share, groups)).collect();
        let has_background = inputs.rules.iter().any(|rule| rule.mode != Mode::Exact);
        let threads = inputs.workers + u32::from(has_background);
        // Discovery has one more.
        let of_instance = f64::from(threads) * f64::from(inputs.connections_per_thread) + 1.0;
        Primaries { loads, connections: f64::from(traffic.instances) * of_instance }
    }

    /// The primary with the largest share.
    pub(super) fn hottest(&self) -> &PrimaryLoad {
        &self.loads[0]
    }
}

/// The share of the steps that go to the hash slot with the most: that of the first of as many primaries as
/// there are hash tags.
pub(super) fn hottest_slot_share(traffic: &Traffic) -> f64 {
    shares(traffic, PRIMARIES_MAX)[0].0
}

/// The load on the primary with the largest share, out of `count`.
pub(super) fn hottest(inputs: &Inputs, traffic: &Traffic, count: u32) -> PrimaryLoad {
    let (share, groups) = shares(traffic, count)[0];
    load(inputs, traffic, share, groups)
}

/// The share of the steps of each primary, and its number of groups: see [`load`].
///
/// Every hash tag has the same share of the counters, and primaries with equal parts of the hash slots
/// have numbers of tags that differ by one. The counter with most steps is on one of those with more tags.
fn shares(traffic: &Traffic, count: u32) -> Vec<(f64, f64)> {
    let count = count.max(1);
    let all = f64::from(traffic.instances) * traffic.steps();
    let hottest = if all > 0.0 { (traffic.hottest_counter.1 / all).min(1.0) } else { 0.0 };
    let share = |index: u32| {
        let tags = f64::from(PRIMARIES_MAX / count + u32::from(index < PRIMARIES_MAX % count));
        let even = (1.0 - hottest) * tags / f64::from(PRIMARIES_MAX);
        (if index == 0 { even + hottest } else { even }, if count == 1 { 1.0 } else { tags })
    };
    (0..count).map(share).collect()
}

/// The load on a primary with this share. Steps of one group may share a call: those of a hash tag, or
/// all of them without a Cluster.
fn load(inputs: &Inputs, traffic: &Traffic, share: f64, groups: f64) -> PrimaryLoad {
    let connections = f64::from(inputs.connections_per_thread);
    let round_trip = inputs.round_trip.as_secs_f64();
    let of_workers = f64::from(inputs.workers) * connections;
    let rate = share * traffic.worker_steps.sum() / of_workers;
    // Busy: each flusher has one write on its way, and meanwhile the next steps arrive. Idle: a write has
    // the steps of one request.
    let waiting = rate * round_trip / FLUSHERS_MAX as f64;
    let per_write = waiting.max(steps_of_one_call(traffic, share));
    let by_worker = call_rates(inputs, &traffic.worker_steps, rate, per_write, groups);
    let rate = share * traffic.background_steps.sum() / connections;
    let per_write = (rate * round_trip.max(JOB_PERIOD.as_secs_f64())).max(1.0);
    let by_background = call_rates(inputs, &traffic.background_steps, rate, per_write, groups);

    let instances = f64::from(traffic.instances);
    let sum = |of: fn(CallRates) -> f64| {
        instances * (of_workers * of(by_worker) + connections * of(by_background))
    };
    let (calls, writes) = (sum(|rates| rates.calls), sum(|rates| rates.writes));
    let steps = instances * share * traffic.steps();
    let bytes = |of: fn(&StepRates) -> f64| {
        instances * share * (of(&traffic.worker_steps) + of(&traffic.background_steps))
    };
    PrimaryLoad {
        share,
        steps_per_second: steps,
        script_calls_per_second: calls,
        steps_per_script_call: if calls > 0.0 { steps / calls } else { 0.0 },
        request_bytes_per_second: bytes(|steps| steps.request_bytes)
            + calls * request_bytes(inputs),
        reply_bytes_per_second: bytes(|steps| steps.reply_bytes) + calls * reply_bytes(),
        cores: cores(calls, steps, writes, inputs.uses_functions),
    }
}

/// The use of a primary by `calls` with `steps` in `writes`, all per second.
///
/// The cost of a call includes its first step. A further step costs less, and least on a counter that the
/// call has already. A write wakes Redis up. Steps collect into one write while Redis is busy, so the lower
/// bound has a wake-up for each write of one step, and at most those of the highest measured rate.
pub(super) fn cores(calls: f64, steps: f64, writes: f64, uses_functions: bool) -> Cores {
    let ratio = measured::form_ratio(uses_functions);
    let call = ratio * measured::REDIS_FUNCTION_CALL;
    let further_steps = (steps - calls).max(0.0);
    let needs = |step: f64, lone_call: &CostByRate, wake_ups: f64| {
        let more = (ratio * lone_call.at(writes) - call).max(0.0);
        CoreNeeds { busy: calls * call + further_steps * step, wake_ups: wake_ups * more }
    };
    let [least, most] = &measured::REDIS_LONE_CALL;
    let alone = if steps > 0.0 { writes / steps } else { 0.0 };
    let low = needs(measured::REDIS_STEP_CHEAPEST, least, writes.min(least.fastest()) * alone);
    Cores::of(low, needs(measured::REDIS_STEP_COSTLIEST, most, writes), 1.0)
}

/// Steps of one call of a proxy to a primary with this share, if there is at least one: of `k` steps,
/// `k * share` go to the primary, and with the probability `1 - (1 - share)^k` at least one.
fn steps_of_one_call(traffic: &Traffic, share: f64) -> f64 {
    let steps = traffic.worker_steps.sum() / traffic.calls;
    if steps <= 1.0 || share <= 0.0 {
        return 1.0;
    }
    steps * share / (1.0 - (1.0 - share).powf(steps))
}

/// The script calls for `rate` steps per second of which a write has `steps_per_write`.
///
/// Steps of the same script and group share a call. Of `n` steps that have a group with the probability
/// `p` each, at least one has it with the probability `1 - (1 - p)^n`. The groups are equally likely, so
/// the calls of a write are the sum of that over all groups and scripts. A call with too many steps is
/// split.
fn call_rates(
    inputs: &Inputs,
    steps: &StepRates,
    rate: f64,
    steps_per_write: f64,
    groups: f64,
) -> CallRates {
    if rate <= 0.0 {
        return CallRates::default();
    }
    let of_script = |script: Script| {
        let share = steps.by_script[script as usize] / steps.sum();
        let max = match script {
            Script::Entries => inputs.batch_steps_max.min(ENTRY_STEPS_MAX as f64),
            _ => inputs.batch_steps_max,
        };
        let calls = groups * (1.0 - (1.0 - share / groups).powf(steps_per_write));
        calls.max(steps_per_write * share / max)
    };
    let writes = rate / steps_per_write;
    let calls = Script::STEPS.into_iter().map(of_script).sum::<f64>();
    CallRates { calls: writes * calls, writes }
}

/// Bytes of a call without its steps: `FCALL name count`, or `EVALSHA hash count`.
fn request_bytes(inputs: &Inputs) -> f64 {
    let (command, name) = match inputs.uses_functions {
        true => ("FCALL", Script::FixedWindow.function()),
        false => ("EVALSHA", Script::FixedWindow.sha1()),
    };
    let head = "*5\r\n".len() as f64;
    head + word_bytes(command.len()) + word_bytes(name.len()) + word_bytes("1".len())
}

/// Bytes of a reply without its steps.
fn reply_bytes() -> f64 {
    word_bytes(10) - 10.0
}
