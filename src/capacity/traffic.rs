//! The steps of an instance in Redis: the sum over the counters of all rules.

use super::RuleTraffic;
use super::cores::{CoreNeeds, Cores, CostByRate};
use super::counter_steps::{self, CounterLoad, CounterSteps};
use super::counters::classes;
use super::inputs::{Inputs, RuleLoad};
use super::measured;
use crate::algorithm;
use crate::limit::{Limit, Mode};
use crate::modes::{CREDIT_POOLS_MAX, DENIALS_MAX, JOB_PERIOD, REPLICAS_MAX};
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
    pub(super) worker_steps: StepRates,
    /// Steps per second of the background thread.
    pub(super) background_steps: StepRates,
    /// Full counters, credit pools and replicas of one instance.
    pub(super) denials: f64,
    pub(super) credit_pools: f64,
    pub(super) replicas: f64,
    /// The rule with the busiest counter, and the steps per second of this counter on all instances.
    pub(super) hottest_counter: (usize, f64),
    /// The most counters at the same time.
    pub(super) counters_max: f64,
    /// Each rule, on all instances.
    pub(super) rules: Vec<RuleTraffic>,
}

/// Steps per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepRates {
    /// By script, in the order of [`Script::STEPS`].
    pub(super) by_script: [f64; 4],
    /// Bytes of the steps and of their replies, without those of their calls.
    pub(super) request_bytes: f64,
    pub(super) reply_bytes: f64,
}

impl StepRates {
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
        let of_rule = |rule| RuleSteps::of(inputs, rule, rate, instances);
        let rule_steps: Vec<RuleSteps> = inputs.rules.iter().map(of_rule).collect();
        let entries = |wanted: fn(Mode) -> bool| -> f64 {
            let rules = inputs.rules.iter().zip(&rule_steps).filter(|(rule, _)| wanted(rule.mode));
            // A sum of nothing is -0.0.
            rules.map(|(_, of_rule)| of_rule.all.entries).sum::<f64>() + 0.0
        };
        let mut traffic = Traffic {
            instances,
            calls: inputs.calls / f64::from(instances),
            worker_steps: StepRates::default(),
            background_steps: StepRates::default(),
            denials: entries(|mode| mode == Mode::Exact),
            credit_pools: entries(|mode| mode == Mode::Leased),
            replicas: entries(|mode| matches!(mode, Mode::Synced { .. })),
            hottest_counter: (0, 0.0),
            counters_max: 0.0,
            rules: Vec::new(),
        };
        for (index, (rule, of_rule)) in inputs.rules.iter().zip(&rule_steps).enumerate() {
            let (entries, max) = traffic.table(rule.mode);
            let covered = if entries > max { max / entries } else { 1.0 };
            let (workers, background) = of_rule.all.covered(covered);
            traffic.worker_steps.add(&rule.limit, workers);
            traffic.background_steps.add(&rule.limit, background);
            if let Some(limit) = &rule.what_if {
                traffic.worker_steps.add(limit, of_rule.what_if);
            }
            traffic.counters_max += of_rule.counters_max;
            let of_all = f64::from(instances);
            let hottest = of_rule.hottest.covered(covered);
            let hottest = of_all * (hottest.0 + hottest.1).max(of_rule.hottest_what_if);
            if hottest > traffic.hottest_counter.1 {
                traffic.hottest_counter = (index, hottest);
            }
            traffic.rules.push(RuleTraffic {
                domain: rule.domain.clone(),
                rule: rule.rule.clone(),
                mode: rule.mode.name(),
                steps_per_second: of_all * (workers + background + of_rule.what_if),
                credit_steps_per_second: of_all * of_rule.all.credits(covered),
                hottest_counter_steps_per_second: hottest,
                has_known_cost: rule.has_known_cost(),
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
        self.worker_steps.sum() + self.background_steps.sum()
    }

    /// Cores that an instance uses of those of its workers.
    ///
    /// A call wakes a worker up, and so does the reply to a step. The background thread wakes up at most once
    /// in its period for all steps. The lower bound has the wake-ups of the highest measured rate at most:
    /// over it, their cost is not known, and one wake-up serves several calls.
    pub(super) fn cores(&self, workers: u32) -> Cores {
        let of_step = measured::INSTANCE_CALL_WITH_STEP - measured::INSTANCE_CALL;
        let busy =
            measured::INSTANCE_IDLE + self.calls * measured::INSTANCE_CALL + self.steps() * of_step;
        let jobs = 1.0 / JOB_PERIOD.as_secs_f64();
        let steps = self.worker_steps.sum() + self.background_steps.sum().min(jobs);
        let needs = |lone_call: &CostByRate, rate_max: f64| {
            let more = (lone_call.at(self.calls) - measured::INSTANCE_CALL_WITH_STEP).max(0.0);
            let of_calls = self.calls.min(rate_max) * measured::MEMORY_SHARE;
            let of_steps = steps.min(rate_max) * (1.0 - measured::MEMORY_SHARE);
            CoreNeeds { busy, wake_ups: more * (of_calls + of_steps) }
        };
        let [least, most] = &measured::INSTANCE_LONE_CALL;
        let (low, high) = (needs(least, least.fastest()), needs(most, f64::INFINITY));
        Cores::of(low, high, f64::from(workers))
    }
}

/// The steps of one rule on one instance.
#[derive(Default)]
struct RuleSteps {
    /// All counters together.
    all: CounterSteps,
    /// The counter with most calls.
    hottest: CounterSteps,
    /// Steps per second on all counters of the what-if limit, and on the one with most calls.
    what_if: f64,
    hottest_what_if: f64,
    /// The most counters of all instances at the same time.
    counters_max: f64,
}

impl RuleSteps {
    fn of(inputs: &Inputs, rule: &RuleLoad, rate_per_weight: f64, instances: u32) -> RuleSteps {
        let rate = rate_per_weight * rule.weight;
        let lifetime = counter_steps::lifetime(&rule.limit);
        let mut of_rule = RuleSteps::default();
        for (index, class) in classes(rule.counters, inputs.skew).into_iter().enumerate() {
            let per_second = rate * class.share;
            let load =
                CounterLoad { per_second, denied: inputs.denied, instances: instances.into() };
            let one = CounterSteps::of(inputs, rule, load);
            if index == 0 {
                of_rule.hottest = one;
            }
            of_rule.all.add(class.counters, one);
            let of_all = per_second * f64::from(instances);
            of_rule.counters_max += class.counters * (1.0 - (-of_all * lifetime).exp());
            if let Some(limit) = &rule.what_if {
                of_rule.what_if += class.counters * per_second;
                of_rule.hottest_what_if = of_rule.hottest_what_if.max(per_second);
                let lifetime = counter_steps::lifetime(limit);
                of_rule.counters_max += class.counters * (1.0 - (-of_all * lifetime).exp());
            }
        }
        of_rule
    }
}

/// Every script has its place in [`StepRates::by_script`].
const _: () = assert!(Script::STEPS.len() == 4);
