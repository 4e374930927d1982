//! One run: three instances in one mode, their load, and its cost.

use std::collections::HashMap;
use std::time::Duration;

use super::load::{Call, EDGE, Load};
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::resp::Reply;
use crate::support::weir::Weir;

const TENANTS: usize = 25;
const INSTANCES: usize = 3;

/// The modes of a run. `memory` is first: three independent instances.
pub(crate) const MODES: [&str; 4] = ["memory", "exact", "leased", "synced"];

/// The parameters of one run.
pub(crate) struct Plan {
    pub(crate) rate: u32,
    pub(crate) window: Duration,
    pub(crate) windows: u32,
}

/// The figures of one run.
pub(crate) struct Figures {
    /// Script calls of all nodes.
    calls_per_second: f64,
    /// All commands of all nodes, without replication and cluster traffic.
    commands_per_second: f64,
    /// Share of the limits that was allowed over them, and that was denied before they were
    /// reached.
    overrun: f64,
    early: f64,
    admitted: u64,
    limit: u64,
    fallbacks: usize,
    took: [Duration; 3],
}

impl Figures {
    pub(crate) const HEAD: &str = "mode,rate,script_calls_per_second,commands_per_second,\
        admitted,limit,overrun_percent,early_denial_percent,fallbacks,p50_us,p95_us,p99_us\n";

    pub(crate) fn line(&self, mode: &str, rate: u32) -> String {
        let [p50, p95, p99] = self.took.map(|took| took.as_micros());
        format!(
            "{mode},{rate},{:.1},{:.1},{},{},{:.2},{:.2},{},{p50},{p95},{p99}\n",
            self.calls_per_second,
            self.commands_per_second,
            self.admitted,
            self.limit,
            100.0 * self.overrun,
            100.0 * self.early,
            self.fallbacks,
        )
    }
}

/// Runs the plan in `mode`.
pub(crate) fn run(cluster: &Cluster, mode: &str, plan: &Plan) -> Figures {
    let load =
        Load { tenants: TENANTS, rate: plan.rate, window: plan.window, windows: plan.windows };
    // Every tenant sends a third more than its limit.
    let limit = load.offered() * 3 / 4;
    let weirs = start(cluster, mode, limit, plan.window);
    let instances: Vec<_> = weirs.iter().map(|weir| weir.grpc).collect();
    let before = commands(cluster);
    let calls = load.send(&format!("{mode}-{}-{}", plan.rate, plan.window.as_secs()), &instances);
    let after = commands(cluster);
    let seconds = (plan.window * plan.windows - 2 * EDGE).as_secs_f64();
    let per_second = |wanted: fn(&str) -> bool| {
        let total = |of: &HashMap<String, u64>| -> u64 {
            of.iter().filter(|(name, _)| wanted(name)).map(|(_, calls)| calls).sum()
        };
        (total(&after) - total(&before)) as f64 / seconds
    };
    Figures {
        calls_per_second: per_second(|name| name.starts_with("eval") || name == "fcall"),
        commands_per_second: per_second(|name| {
            !["replconf", "info", "cluster|", "ping"].iter().any(|own| name.starts_with(own))
        }),
        ..judged(&calls, u64::from(limit), plan.windows)
    }
}

/// The latencies, and the allowed calls of every tenant and window compared with the limit.
fn judged(calls: &[Call], limit: u64, windows: u32) -> Figures {
    let mut admitted = HashMap::<(usize, u32), u64>::new();
    for call in calls.iter().filter(|call| call.passed) {
        *admitted.entry((call.tenant, call.window)).or_default() += 1;
    }
    let of = |tenant, window| admitted.get(&(tenant, window)).copied().unwrap_or_default();
    let all: Vec<u64> = (0..TENANTS)
        .flat_map(|t| (0..windows).map(move |w| (t, w)))
        .map(|(t, w)| of(t, w))
        .collect();
    let limits = limit * all.len() as u64;
    let share = |hits: u64| hits as f64 / limits as f64;
    let mut took: Vec<Duration> = calls.iter().map(|call| call.took).collect();
    took.sort_unstable();
    let at = |part: f64| took[((took.len() as f64 * part) as usize).min(took.len() - 1)];
    Figures {
        calls_per_second: 0.0,
        commands_per_second: 0.0,
        overrun: share(all.iter().map(|hits| hits.saturating_sub(limit)).sum()),
        early: share(all.iter().map(|hits| limit.saturating_sub(*hits)).sum()),
        admitted: all.iter().sum(),
        limit: limits,
        fallbacks: calls.iter().filter(|call| call.fallback).count(),
        took: [at(0.5), at(0.95), at(0.99)],
    }
}

fn start(cluster: &Cluster, mode: &str, limit: u32, window: Duration) -> Vec<Weir> {
    let written = if mode == "memory" { "exact" } else { mode };
    let rules = format!(
        "domain: tenants\ndescriptors:\n  - key: tenant\n    rate_limit: \
         {{ requests: {limit}, window: {}s, mode: {written} }}\n",
        window.as_secs()
    );
    let url = cluster_url(cluster);
    let weirs: Vec<Weir> = (0..INSTANCES)
        .map(|_| match mode {
            "memory" => Weir::start(&rules),
            // A long timeout: a fallback on a busy machine would look like an overshoot.
            _ => over(&url, &rules).store_timeout("250ms").start(),
        })
        .collect();
    if mode != "memory" {
        weirs.iter().for_each(ready);
    }
    weirs
}

/// Calls per command, on all nodes.
fn commands(cluster: &Cluster) -> HashMap<String, u64> {
    let mut all = HashMap::new();
    for node in &cluster.nodes {
        let Reply::Bulk(text) = node.client().run(&["INFO", "commandstats"]) else {
            panic!("INFO answers with text")
        };
        for line in String::from_utf8_lossy(&text).lines() {
            // cmdstat_get:calls=3,usec=...
            let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|l| l.split_once(':'))
            else {
                continue;
            };
            let calls = rest.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
            let calls = calls.and_then(|calls| calls.parse::<u64>().ok()).unwrap_or_default();
            *all.entry(name.to_owned()).or_default() += calls;
        }
    }
    all
}
