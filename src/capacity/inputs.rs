//! The inputs of the model: the load, the deployment, and what the rules and the settings determine.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::measured::ROUND_TRIP;
use crate::limit::{Algorithm, Limit, Mode};
use crate::rules::{Rule, RuleLimit};
use crate::settings::{FunctionChoice, Settings};

/// The workers of an instance if the settings leave them to the machine: those of the machine of
/// docs/design/performance.md.
const WORKERS_DEFAULT: u32 = 2;

/// The load, the deployment, the rules and the settings.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Calls per second to all instances.
    pub calls: f64,
    /// Descriptors of a call that match a rule with a limit.
    pub descriptors: f64,
    /// The share of the hits that are denied. Every counter is full for this share of the time.
    pub denied: f64,
    /// The exponent of Zipf's law for the calls to the counters of a rule; 0 for a uniform
    /// distribution.
    pub skew: f64,
    /// Instances; `None` for the fewest that suffice.
    pub instances: Option<u32>,
    /// Primaries of Redis, 1 for a single server; `None` for the fewest that suffice.
    pub primaries: Option<u32>,
    /// gRPC workers of an instance.
    pub workers: u32,
    /// The time from a call to Redis to its reply.
    pub round_trip: Duration,
    /// The rules.
    pub rules: Vec<RuleLoad>,
    /// Connections of a thread to a primary.
    pub(super) connections_per_thread: u32,
    /// The most steps in a script call.
    pub(super) batch_steps_max: f64,
    /// The longest wait for a reply.
    pub(super) timeout: Duration,
    /// Whether Redis runs functions.
    pub(super) uses_functions: bool,
    /// Whether full counters are denied from memory.
    pub(super) over_limit_cache: bool,
}

/// A rule and its part of the load.
#[derive(Clone, Debug)]
pub struct RuleLoad {
    /// The domain.
    pub domain: String,
    /// The rule name, which is unique in the domain.
    pub rule: String,
    /// The limit.
    pub limit: Limit,
    /// The what-if limit, which every call counts on by a step.
    pub what_if: Option<Limit>,
    /// The mode.
    pub mode: Mode,
    /// Counters that get hits.
    pub counters: u64,
    /// The part of the descriptors that match this rule, relative to the other rules.
    pub weight: f64,
    over_limit_cache: bool,
    leases: bool,
}

impl Inputs {
    /// `calls` per second without denials, of one descriptor each, that match `rules` as `settings`
    /// would serve them.
    pub fn new(calls: f64, rules: Vec<RuleLoad>, settings: &Settings) -> Inputs {
        let workers = settings.grpc.workers.map(NonZeroUsize::get);
        let workers =
            workers.map_or(WORKERS_DEFAULT, |workers| u32::try_from(workers).unwrap_or(u32::MAX));
        let mut inputs = Inputs {
            calls,
            descriptors: 1.0,
            denied: 0.0,
            skew: 0.0,
            instances: None,
            primaries: None,
            workers: 1,
            round_trip: Duration::from_secs_f64(ROUND_TRIP),
            rules,
            connections_per_thread: 1,
            batch_steps_max: settings.redis.max_batch_size as f64,
            timeout: settings.store.timeout,
            uses_functions: settings.redis.functions == FunctionChoice::Auto,
            over_limit_cache: settings.store.over_limit_cache,
        };
        inputs.set_workers(workers, settings);
        inputs
    }

    /// Sets the workers, which share the connections of an instance to a primary.
    pub fn set_workers(&mut self, workers: u32, settings: &Settings) {
        self.workers = workers.max(1);
        let connections = settings.redis.min_connections_per_node.div_ceil(self.workers as usize);
        self.connections_per_thread = u32::try_from(connections).unwrap_or(u32::MAX);
    }

    /// Descriptors per second on one of `instances` that match a rule of weight 1.
    pub(super) fn rate_per_weight(&self, instances: u32) -> f64 {
        let weights: f64 = self.rules.iter().map(|rule| rule.weight).sum();
        self.calls * self.descriptors / weights / f64::from(instances)
    }
}

impl RuleLoad {
    /// The part of `rule`, if requests choose among `counters` values; `None` without a limit. A rule
    /// that counts all values together has one counter.
    pub fn of(rule: &Rule, counters: u64) -> Option<RuleLoad> {
        let RuleLimit::Limit(limit) = &rule.limit else { return None };
        Some(RuleLoad {
            domain: rule.domain.to_string(),
            rule: rule.display_name.to_string(),
            limit: limit.clone(),
            what_if: rule.what_if.as_ref().map(|what_if| what_if.limit.clone()),
            mode: rule.mode,
            counters: if rule.counts_per_value() { counters.max(1) } else { 1 },
            weight: 1.0,
            over_limit_cache: rule.over_limit_cache || rule.mode != Mode::Exact,
            leases: rule.leases(),
        })
    }

    /// Whether an allowed request takes a lease, which a second step ends.
    pub(super) fn leases(&self) -> bool {
        self.leases
    }

    /// The rule in another mode; `None` if it has this mode already, or does not support it.
    pub(super) fn in_mode(&self, mode: Mode) -> Option<RuleLoad> {
        let is_exact_only =
            matches!(self.limit.algorithm, Algorithm::SlidingWindowLog | Algorithm::Concurrency);
        if self.mode.name() == mode.name() || is_exact_only || self.leases {
            return None;
        }
        let mut rule = RuleLoad { mode, over_limit_cache: true, ..self.clone() };
        rule.limit.count_denied = false;
        Some(rule)
    }

    /// The rule and its domain, as a part of a sentence.
    pub(super) fn place(&self) -> String {
        format!("{} in domain {}", self.rule, self.domain)
    }

    /// Steps per second to a full counter, if its denials are cached for one second: the step that is
    /// denied again and, if denied hits count, their report before it. `None` if denials are not
    /// cached: see docs/guides/modes.md.
    pub(super) fn full_counter_steps(&self, inputs: &Inputs) -> Option<f64> {
        if !self.over_limit_cache || !inputs.over_limit_cache {
            return None;
        }
        match (self.limit.algorithm, self.limit.count_denied) {
            (Algorithm::Concurrency, _) => None,
            (Algorithm::FixedWindow, true) if self.limit.tiers.len() == 1 => Some(2.0),
            (_, true) => None,
            (_, false) => Some(1.0),
        }
    }

    /// Whether the cores of Redis for a step were measured: those of one tier whose hits stay or leave by time.
    pub(super) fn has_known_cost(&self) -> bool {
        let is_known =
            |limit: &Limit| limit.algorithm != Algorithm::Concurrency && limit.tiers.len() == 1;
        is_known(&self.limit) && self.what_if.as_ref().is_none_or(is_known) && !self.leases
    }

    /// Whether the bytes of each counter in Redis were measured: those of a fixed window.
    pub(super) fn has_known_memory(&self) -> bool {
        let is_one_window =
            |limit: &Limit| limit.algorithm == Algorithm::FixedWindow && limit.tiers.len() == 1;
        is_one_window(&self.limit) && self.what_if.as_ref().is_none_or(is_one_window)
    }

    /// The shortest window in seconds.
    pub(super) fn window(&self) -> f64 {
        let windows = self.limit.tiers.iter().map(|tier| tier.window.0 as f64 / 1e6);
        windows.fold(f64::INFINITY, f64::min)
    }
}
