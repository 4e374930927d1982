//! Metrics of the memory store and of Redis.

use crate::store::guarded::{BreakerState, GuardSnapshot};
use crate::store::redis::NodeSnapshot;
use crate::store::{GuardedStore, MemoryStore, RedisStore, StoreError};
use crate::telemetry::Exposition;
use crate::time::SystemClock;

pub(super) fn expose_memory(counters: &MemoryStore, max: usize, page: &mut Exposition) {
    let stats = counters.snapshot();
    let help = "Counters in the memory of this process.";
    page.gauge("weir_memory_counters", help).single(stats.counters);
    let help = "Maximum number of counters in memory (store.max_counters).";
    page.gauge("weir_memory_counters_max", help).single(max as u64);
    let help = "Memory of counter states of more than one number: logs, leases, several tiers.";
    page.gauge("weir_memory_large_states_bytes", help).single(stats.large_bytes);
    let help = "Counters removed from memory, by reason; evicted: over store.max_counters.";
    page.counter("weir_memory_dropped_counters_total", help)
        .sample(&[("reason", "expired")], stats.reclaimed)
        .sample(&[("reason", "evicted")], stats.evicted);
    let help = "Steps refused because no counter could be evicted for a new one.";
    page.counter("weir_memory_refused_steps_total", help).single(stats.refused);
}

pub(super) fn expose_redis(guarded: &GuardedStore<RedisStore, SystemClock>, page: &mut Exposition) {
    let names = guarded.store().nodes();
    let nodes: Vec<(&str, GuardSnapshot)> =
        names.iter().map(|(node, name)| (&**name, guarded.snapshot(*node))).collect();
    let help = "1 while at least one node of Redis is connected, else 0.";
    let reachable = guarded.store().is_reachable();
    page.gauge("weir_redis_reachable", help).single(u64::from(reachable));
    let help = "State of the circuit breaker of a Redis node: 0 closed, 1 open, 2 probing.";
    let family = page.gauge("weir_redis_breaker_state", help);
    for (name, health) in &nodes {
        let state = match health.breaker {
            BreakerState::Closed => 0,
            BreakerState::Open => 1,
            BreakerState::Probing => 2,
        };
        family.sample(&[("node", name)], state);
    }
    let help = "How often the circuit breaker of a Redis node opened.";
    let family = page.counter("weir_redis_breaker_opened_total", help);
    for (name, health) in &nodes {
        family.sample(&[("node", name)], health.opened);
    }
    let stats: Vec<(&str, NodeSnapshot)> =
        names.iter().map(|(node, name)| (&**name, guarded.store().node_snapshot(*node))).collect();
    let mut each = |name: &'static str, help: &'static str, of: fn(&NodeSnapshot) -> u64| {
        let family = page.counter(name, help);
        for (node, stats) in &stats {
            family.sample(&[("node", node)], of(stats));
        }
    };
    let help = "Script calls sent to a Redis node. A call has one or more steps.";
    each("weir_redis_calls_total", help, |one| one.calls);
    let help = "Script calls by a function of weir's library, not by EVALSHA.";
    each("weir_redis_function_calls_total", help, |one| one.function_calls);
    let help = "Steps sent to a Redis node. A step is one operation on one counter.";
    each("weir_redis_steps_total", help, |one| one.steps);
    let help = "Steps that shared one read and one write of their counter with others in a call.";
    each("weir_redis_combined_steps_total", help, |one| one.combined);
    let help = "Steps that wait for the reply of a Redis node.";
    let family = page.gauge("weir_redis_steps_in_flight", help);
    for (name, health) in &nodes {
        family.sample(&[("node", name)], health.in_flight as u64);
    }
    let help = "Steps to a Redis node that failed, by cause.";
    let family = page.counter("weir_redis_step_errors_total", help);
    for (name, health) in &nodes {
        for (error, count) in StoreError::ALL.iter().zip(health.errors) {
            if count > 0 {
                family.sample(&[("node", name), ("cause", error.name())], count);
            }
        }
    }
    let help = "Duration of successful steps in Redis, including the wait for a batch.";
    page.histogram("weir_redis_step_duration_seconds", help)
        .single(guarded.latency().distribution());
}
