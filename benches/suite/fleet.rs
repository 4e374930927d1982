//! Small fleets: the CPU time per call of one Redis and of the instances that share it.
//!
//! An instance with few calls seldom batches its steps. So each decision costs Redis a separate script
//! call, and one Redis has that cost for all instances.

use std::path::Path;
use std::thread;
use std::time::Duration;

use weir_bench::{KeyDistribution, Pacing, Plan};

use crate::child::Server;
use crate::comparison::{Comparison, PacedService};
use crate::envoy_ratelimit::EnvoyRatelimit;
use crate::figures::{Figures, median};
use crate::redis::Redis;

mod service;

use service::{BEFORE, Builds, FIXED_WINDOW, Service};
pub(crate) use service::{ENVOY_RATELIMIT, SERVICES};

/// Counters of each fleet.
const KEYS: u64 = 10_000;
/// Load before the measured one. All connections are in use after it.
const WARM_UP: Duration = Duration::from_millis(500);

/// Instances that share one Redis, with equal load.
#[derive(Clone, Copy)]
pub(crate) struct Fleet {
    instances: u32,
    /// Calls per second to each instance.
    rate: u32,
}

/// The measured fleets.
pub(crate) const FLEETS: [Fleet; 5] = [
    Fleet { instances: 1, rate: 1_000 },
    // These two overload two cores with neither service.
    Fleet { instances: 8, rate: 50 },
    Fleet { instances: 50, rate: 8 },
    Fleet { instances: 8, rate: 500 },
    Fleet { instances: 50, rate: 100 },
];

/// Measures every service in every fleet, in turn, `rounds` times. `plan` has the descriptors and
/// the duration of a load. `before` is a build of weir, and `program` one of envoyproxy/ratelimit.
/// Services without their build are left out.
pub(crate) fn measure(
    folder: &Path,
    before: Option<&Path>,
    program: Option<&Path>,
    rounds: u16,
    plan: &Plan,
) -> anyhow::Result<Figures> {
    let plan = Plan { keys: KEYS, connections: 1, threads: Some(1), ..plan.clone() };
    let rules = crate::rules("fixed_window").replace(", algorithm: fixed_window", "");
    let envoy_ratelimit =
        program.map(|program| EnvoyRatelimit::new(program, folder, &rules)).transpose()?;
    let builds = Builds { before, envoy_ratelimit };
    let mut services = SERVICES.to_vec();
    services.retain(|(_, service)| service.has_build(&builds));
    for (_, service) in &services {
        // Before any instance starts, because weir reloads rule files that change.
        service.write_rules(folder)?;
    }
    let mut figures = Figures::default();
    for round in 1..=rounds {
        // No service is always the last one.
        services.reverse();
        println!("small fleets, round {round} of {rounds}");
        for fleet in FLEETS {
            for (name, service) in &services {
                let start = |redis: &Redis| service.start(folder, &builds, redis);
                let costs = fleet.run(&plan, service.is_weir(), start)?;
                figures.add(&fleet.redis_cpu_figure(name), 1e5 * costs.redis);
                figures.add(&fleet.instances_cpu_figure(name), 1e5 * costs.instances);
                figures.add(&fleet.latency_figure(name), costs.p50_us);
                figures.add(&fleet.achieved_figure(name), 100.0 * costs.achieved);
                if let Some(share) = costs.by_fallback {
                    figures.add(&fleet.fallback_figure(name), 100.0 * share);
                }
            }
        }
    }
    Ok(figures)
}

/// The costs of a load.
struct Costs {
    /// CPU seconds of Redis per call.
    redis: f64,
    /// CPU seconds of all instances per call.
    instances: f64,
    /// The median latency of the instance in the middle, in microseconds.
    p50_us: f64,
    /// The share of the offered calls that were decided.
    achieved: f64,
    /// The share of calls that the fallback decided, in the instance with the largest share; `None`
    /// without weir.
    by_fallback: Option<f64>,
}

impl Fleet {
    pub(crate) fn name(self) -> String {
        format!("{} x {}", self.instances, self.rate)
    }

    /// The name of the figure: CPU seconds of Redis.
    pub(crate) fn redis_cpu_figure(self, service: &str) -> String {
        format!("{}: Redis CPU s per 100 000: {service}", self.name())
    }

    /// The name of the figure: CPU seconds of all instances.
    pub(crate) fn instances_cpu_figure(self, service: &str) -> String {
        format!("{}: CPU s per 100 000: {service}", self.name())
    }

    /// The name of the figure: the median latency.
    pub(crate) fn latency_figure(self, service: &str) -> String {
        format!("{}: p50, us: {service}", self.name())
    }

    fn achieved_figure(self, service: &str) -> String {
        format!("{}: achieved, %: {service}", self.name())
    }

    fn fallback_figure(self, service: &str) -> String {
        format!("{}: by fallback, %: {service}", self.name())
    }

    /// The CPU time of Redis for `service`, divided by that for envoyproxy/ratelimit, without or
    /// with pipelines, whichever makes the ratio larger.
    pub(crate) fn comparison(self, figures: &Figures, service: &str) -> Comparison {
        self.compared(figures, self.ratio(figures, service), &[service])
    }

    /// The CPU time of Redis by this build, divided by that by the build before.
    pub(crate) fn of_before(self, figures: &Figures) -> Comparison {
        let [of, by] = [FIXED_WINDOW, BEFORE].map(|service| self.redis_cpu_figure(service));
        let [subject, reference] = [FIXED_WINDOW, BEFORE].map(|name| self.paced(figures, name));
        Comparison::new(figures.ratio(&of, &by), [subject], [reference])
    }

    /// The comparison of `services` with envoyproxy/ratelimit that has this ratio.
    fn compared(self, figures: &Figures, ratio: Option<f64>, services: &[&str]) -> Comparison {
        let peers = ENVOY_RATELIMIT.iter().filter(|peer| !services.contains(peer));
        let paced = |name: &&str| self.paced(figures, name);
        Comparison::new(ratio, services.iter().map(paced), peers.map(paced))
    }

    fn paced(self, figures: &Figures, service: &str) -> Option<PacedService> {
        let p50_us = figures.get(&self.latency_figure(service))?;
        let achieved = figures.get(&self.achieved_figure(service))?;
        Some(PacedService { name: service.to_owned(), p50_ms: p50_us / 1e3, achieved })
    }

    fn ratio(self, figures: &Figures, service: &str) -> Option<f64> {
        let of = self.redis_cpu_figure(service);
        let [without, with] =
            ENVOY_RATELIMIT.map(|by| figures.ratio(&of, &self.redis_cpu_figure(by)));
        Some(without?.max(with?))
    }

    /// Starts a Redis and the instances, loads them, and ends them.
    fn run(
        self,
        plan: &Plan,
        is_weir: bool,
        start: impl Fn(&Redis) -> anyhow::Result<Server>,
    ) -> anyhow::Result<Costs> {
        let redis = Redis::start();
        let started = (0..self.instances).map(|_| start(&redis));
        let instances = started.collect::<anyhow::Result<Vec<Server>>>()?;
        create_counters(&instances[0], plan)?;
        let plan = Plan { pacing: Pacing::Open(self.rate.into()), ..plan.clone() };
        load(&instances, &Plan { duration: WARM_UP, ..plan.clone() })?;
        let before = redis.cpu()?;
        let Loads { calls, cpu_seconds, p50_us } = load(&instances, &plan)?;
        let after = redis.cpu()?;
        let mut by_fallback = None;
        for instance in instances.iter().filter(|_| is_weir) {
            let share = instance.fallback_share()?;
            by_fallback = Some(share.max(by_fallback.unwrap_or_default()));
        }
        let (redis, instances) = ((after - before) / calls, cpu_seconds / calls);
        let due = f64::from(self.instances) * f64::from(self.rate) * plan.duration.as_secs_f64();
        Ok(Costs { redis, instances, p50_us, achieved: calls / due, by_fallback })
    }
}

/// Creates every counter, so that no measured call does.
fn create_counters(server: &Server, plan: &Plan) -> anyhow::Result<()> {
    let mut filled = 0;
    while filled < KEYS {
        let next = Plan {
            pacing: Pacing::Closed,
            distribution: KeyDistribution::Sequential { from: filled },
            duration: WARM_UP,
            ..plan.clone()
        };
        filled += server.load(&next)?.0.decided;
    }
    Ok(())
}

/// The loads of all instances.
struct Loads {
    calls: f64,
    /// The CPU seconds of the instances.
    cpu_seconds: f64,
    /// The median of the instances' median latencies, in microseconds.
    p50_us: f64,
}

/// Loads all instances at the same time.
fn load(instances: &[Server], plan: &Plan) -> anyhow::Result<Loads> {
    thread::scope(|scope| {
        let mut loads = Vec::new();
        // With the same seed, all instances would have the same keys at the same time.
        for (instance, seed) in instances.iter().zip(1..) {
            let plan = Plan { seed, ..plan.clone() };
            loads.push(scope.spawn(move || instance.paced_load(&plan)));
        }
        let (mut calls, mut cpu_seconds, mut medians) = (0.0, 0.0, Vec::new());
        for load in loads {
            let (report, seconds) =
                load.join().map_err(|_| anyhow::anyhow!("a thread of the load panicked"))??;
            calls += report.decided as f64;
            cpu_seconds += seconds;
            medians.push(report.latency_us.p50);
        }
        Ok(Loads { calls, cpu_seconds, p50_us: median(&mut medians) })
    })
}

/// The targets of every fleet: the name, the ratio, and its upper bound. There are none without
/// figures of envoyproxy/ratelimit.
pub(crate) fn targets(figures: &Figures) -> Vec<(String, Comparison, f64)> {
    let mut targets = Vec::new();
    for fleet in FLEETS {
        let with_functions =
            |service: &Service| matches!(service, Service::Weir { functions: "auto", .. });
        let all = SERVICES.iter().filter(|(_, service)| with_functions(service));
        let all: Vec<&str> = all.map(|(name, _)| *name).collect();
        let largest = all.iter().filter_map(|name| fleet.ratio(figures, name)).reduce(f64::max);
        if largest.is_none() {
            continue;
        }
        let what = |algorithm: &str| {
            let name = fleet.name();
            format!("{name}: Redis CPU per call by {algorithm}, of envoyproxy/ratelimit's")
        };
        targets.push((what("fixed_window"), fleet.comparison(figures, FIXED_WINDOW), 1.1));
        let largest = fleet.compared(figures, largest, &all);
        targets.push((what("the algorithm of one tier that costs most"), largest, 1.5));
    }
    targets
}

/// The largest share of calls of a fleet that the fallback decided, in percent.
pub(crate) fn largest_fallback_share(figures: &Figures) -> Option<f64> {
    let names =
        FLEETS.iter().flat_map(|fleet| SERVICES.map(|(name, _)| fleet.fallback_figure(name)));
    names.filter_map(|name| figures.get(&name)).reduce(f64::max)
}
