//! Capacity: how much Redis and how many instances rules need under a given load, by calculation.
//!
//! The parts, each with the derivation of its formulas:
//!
//! 1. `counters` distributes the calls over the counters of a rule.
//! 2. `counter_steps` turns the calls to a counter into steps in Redis, by the mode of the rule.
//! 3. `traffic` sums the steps of an instance.
//! 4. `primaries` packs them into script calls to each primary.
//! 5. `cores` bounds the cores that this takes.
//! 6. `bounds` compares the result with every bound, and names the setting to change.
//! 7. `advice` finds what to change if no number of primaries suffices.
//!
//! `measured` has the costs. A cost that no page states is left out.

use serde::Serialize;

mod advice;
mod bounds;
mod cores;
mod counter_steps;
mod counters;
mod inputs;
mod measured;
mod primaries;
mod traffic;

#[cfg(test)]
mod tests;

pub use bounds::BoundUse;
pub use cores::Cores;
pub use inputs::{Inputs, RuleLoad};
pub use primaries::PrimaryLoad;

use primaries::Primaries;
use traffic::Traffic;

/// The share of a core that instances and primaries may use, by the upper bounds of [`Cores`]. The rest is
/// for the load of a node that fails.
pub const UTILIZATION_MAX: f64 = 0.5;

/// The most instances that are tried.
pub const INSTANCES_MAX: u32 = 1_024;

/// The load on instances and on Redis.
#[derive(Clone, Debug, Serialize)]
pub struct CapacityPlan {
    /// Instances: those of the inputs, or the needed ones.
    pub instances: u32,
    /// Primaries: those of the inputs, or the needed ones.
    pub primaries: u32,
    /// The fewest instances that use at most [`UTILIZATION_MAX`] of their workers; `None` if they are more
    /// than [`INSTANCES_MAX`].
    pub instances_needed: Option<u32>,
    /// The fewest primaries of which the busiest uses at most [`UTILIZATION_MAX`] of a core; `None` if no
    /// number suffices.
    pub primaries_needed: Option<u32>,
    /// One instance.
    pub instance: InstanceLoad,
    /// All primaries together.
    pub redis: RedisLoad,
    /// What both tiers need, to multiply by prices.
    pub cost: DeploymentCost,
    /// The primary with the largest share.
    pub hottest_primary: PrimaryLoad,
    /// Each rule.
    pub rules: Vec<RuleTraffic>,
    /// Every bound, the most used first.
    pub bounds: Vec<BoundUse>,
}

/// The load on one instance.
#[derive(Clone, Debug, Serialize)]
pub struct InstanceLoad {
    /// Calls of proxies per second.
    pub calls_per_second: f64,
    /// Steps in Redis per second.
    pub steps_per_second: f64,
    /// Cores in use.
    pub cores: Cores,
    /// Credit pools of leased rules.
    pub credit_pools: f64,
    /// Replicas of synced rules.
    pub replicas: f64,
}

/// The load on all primaries together.
#[derive(Clone, Debug, Serialize)]
pub struct RedisLoad {
    /// Connections to one primary.
    pub connections_per_primary: f64,
    /// Connections to all primaries.
    pub connections: f64,
    /// Steps per second.
    pub steps_per_second: f64,
    /// Script calls per second.
    pub script_calls_per_second: f64,
    /// Bytes per second from the instances.
    pub request_bytes_per_second: f64,
    /// Bytes per second to the instances.
    pub reply_bytes_per_second: f64,
    /// The most counters that exist at the same time.
    pub counters_max: f64,
    /// The share of the steps that go to the hash slot with the most.
    pub hottest_slot_share: f64,
}

/// The cores in use and the memory of all instances and of all primaries.
#[derive(Clone, Debug, Serialize)]
pub struct DeploymentCost {
    /// Cores of all instances.
    pub instance_cores: Cores,
    /// Memory of all instances without rules, credit pools and replicas.
    pub instance_memory_bytes: f64,
    /// Cores of all primaries.
    pub redis_cores: Cores,
    /// Memory of all counters in Redis; `None` if a rule has another limit than a fixed window of one tier,
    /// whose bytes are not measured.
    pub redis_memory_bytes: Option<f64>,
}

/// The steps of one rule.
#[derive(Clone, Debug, Serialize)]
pub struct RuleTraffic {
    /// The domain.
    pub domain: String,
    /// The rule name, which is unique in the domain.
    pub rule: String,
    /// The mode.
    pub mode: &'static str,
    /// Steps in Redis per second, of all instances.
    pub steps_per_second: f64,
    /// Those of them that draw and return the credits of a leased rule. The others are calls to counters
    /// without credits.
    pub credit_steps_per_second: f64,
    /// Those of the counter with most calls.
    pub hottest_counter_steps_per_second: f64,
    /// Whether the cores of Redis for a step of this rule were measured.
    pub has_known_cost: bool,
}

/// Computes the load.
pub fn calculate(inputs: &Inputs) -> CapacityPlan {
    let instances_needed = instances_needed(inputs);
    let instances = inputs.instances.or(instances_needed).unwrap_or(INSTANCES_MAX);
    let traffic = Traffic::of(inputs, instances);
    let primaries_needed = primaries_needed(inputs, &traffic);
    let count = inputs.primaries.or(primaries_needed).unwrap_or(primaries::CLUSTER_PRIMARIES_MIN);
    let primaries = Primaries::of(inputs, &traffic, count);
    let sum = |of: fn(&PrimaryLoad) -> f64| primaries.loads.iter().map(of).sum::<f64>();
    let hottest_primary = primaries.hottest().clone();
    let bounds = bounds::uses(inputs, &traffic, &primaries, primaries_needed);
    CapacityPlan {
        instances,
        primaries: count,
        instances_needed,
        primaries_needed,
        instance: InstanceLoad {
            calls_per_second: traffic.calls,
            steps_per_second: traffic.steps(),
            cores: traffic.cores(inputs.workers),
            credit_pools: traffic.credit_pools,
            replicas: traffic.replicas,
        },
        redis: RedisLoad {
            connections_per_primary: primaries.connections,
            connections: primaries.connections * f64::from(count),
            steps_per_second: sum(|one| one.steps_per_second),
            script_calls_per_second: sum(|one| one.script_calls_per_second),
            request_bytes_per_second: sum(|one| one.request_bytes_per_second),
            reply_bytes_per_second: sum(|one| one.reply_bytes_per_second),
            counters_max: traffic.counters_max,
            hottest_slot_share: primaries::hottest_slot_share(&traffic),
        },
        cost: cost(inputs, &traffic, &primaries),
        hottest_primary,
        rules: traffic.rules,
        bounds,
    }
}

/// The cores and the memory of both tiers.
fn cost(inputs: &Inputs, traffic: &Traffic, primaries: &Primaries) -> DeploymentCost {
    let instances = f64::from(traffic.instances);
    let is_known = inputs.rules.iter().all(RuleLoad::has_known_memory);
    DeploymentCost {
        instance_cores: traffic.cores(inputs.workers).times(instances),
        instance_memory_bytes: instances * measured::INSTANCE_RESIDENT,
        redis_cores: primaries.loads.iter().fold(Cores::default(), |sum, one| sum.plus(one.cores)),
        redis_memory_bytes: is_known
            .then_some(traffic.counters_max * measured::REDIS_COUNTER_BYTES),
    }
}

/// The fewest instances. All instances together never need less if there are more of them, so the
/// search may skip the numbers that the present total rules out.
fn instances_needed(inputs: &Inputs) -> Option<u32> {
    let available = UTILIZATION_MAX * f64::from(inputs.workers);
    let mut instances = 1;
    while instances <= INSTANCES_MAX {
        let used = Traffic::of(inputs, instances).cores(inputs.workers).high / available;
        if used <= 1.0 {
            return Some(instances);
        }
        instances = ((f64::from(instances) * used).ceil() as u32).max(instances + 1);
    }
    None
}

/// The fewest primaries: one server, or a Cluster.
fn primaries_needed(inputs: &Inputs, traffic: &Traffic) -> Option<u32> {
    let mut counts =
        std::iter::once(1).chain(primaries::CLUSTER_PRIMARIES_MIN..=primaries::PRIMARIES_MAX);
    counts.find(|count| primaries::hottest(inputs, traffic, *count).cores.high <= UTILIZATION_MAX)
}
