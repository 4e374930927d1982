//! Requests through a real Envoy: what the call of a rate limit service adds to each of them.
//!
//! All services run at the same time, and one Envoy has a listener for each. The load is on one
//! listener at a time.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use weir_bench::HttpLoad;
use weir_charts::{ChartFile, short};

use crate::child::{OVERLOAD_ERRORS, Server, scheduled};
use crate::envoy_config::{KEY_HEADER, config, listener_name};
use crate::envoy_ratelimit::EnvoyRatelimit;
use crate::figures::Figures;
use crate::redis::Redis;
use crate::support::envoy::{Envoy, NEWEST};
use crate::upstream;

mod targets;

pub(crate) use targets::targets;

/// Requests per second of the loads.
const RATES: [u32; 3] = [500, 2_000, 5_000];
/// The rate of the summary. It overloads no service on a slow machine.
pub(crate) const SUMMARY_RATE: u32 = RATES[0];

/// Counters. Each has enough requests for credits drawn ahead, as in `make modes`.
const KEYS: u64 = 25;
/// Connections of the load.
const CONNECTIONS: usize = 8;
/// Loads of a service at a rate in a round, each in turn with the other services. The machine changes from second
/// to second, so a ratio of short loads that follow each other says more than one of long loads.
const LOADS: u16 = 3;
/// Load before the measured one. Leased credits are drawn again in it, because unused ones go back
/// while other services have their turn.
const WARM_UP: Duration = Duration::from_secs(1);

/// Requests without a rate limit.
const ALONE: &str = "Envoy alone";
const BASELINE: &str = "baseline";
const MEMORY: &str = "weir from memory";
const EXACT: &str = "weir, exact";
const LEASED: &str = "weir, leased";
const SYNCED: &str = "weir, synced";
const ENVOY_RATELIMIT: &str = "envoyproxy/ratelimit";

/// Everything that is measured, in the order of the tables.
const NAMES: [&str; 7] = [ALONE, BASELINE, MEMORY, EXACT, LEASED, SYNCED, ENVOY_RATELIMIT];

/// A running rate limit service.
struct Service {
    name: &'static str,
    server: Server,
    /// The Redis that only this service counts in.
    redis: Option<Redis>,
}

/// A listener of Envoy, and the load on it.
struct Route<'a> {
    name: &'static str,
    /// `None` without a rate limit.
    service: Option<&'a Service>,
    load: HttpLoad,
}

/// The result of a load. CPU seconds are per 100 000 requests.
struct Costs {
    p50: f64,
    p99: f64,
    late_p99: f64,
    /// The share of the offered requests with a response.
    achieved: f64,
    envoy: f64,
    service: f64,
    redis: f64,
}

/// Measures every service at every rate, in turn, [`LOADS`] times in each of `rounds`, for `seconds` in all of a
/// round. Without `with_redis`, only services without Redis. `program` is a build of envoyproxy/ratelimit.
pub(crate) fn measure(
    folder: &Path,
    program: Option<&Path>,
    with_redis: bool,
    rounds: u16,
    seconds: Duration,
) -> anyhow::Result<Figures> {
    let services = start(folder, program, with_redis)?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for service in &services {
        addresses.push(service.server.address.parse()?);
    }
    let envoy = Envoy::start(NEWEST, &config(upstream::start()?, &addresses));
    let mut routes = vec![Route::open(ALONE, None, envoy.ingress)?];
    for (index, service) in services.iter().enumerate() {
        let address = envoy.listener(&listener_name(index));
        routes.push(Route::open(service.name, Some(service), address)?);
    }
    let mut figures = Figures::default();
    let (turns, seconds) = (rounds * LOADS, seconds / u32::from(LOADS));
    for turn in 1..=turns {
        println!("through Envoy, turn {turn} of {turns}");
        for rate in RATES {
            let mut all = Vec::new();
            for route in &routes {
                all.push((route, route.measure(&envoy, rate, seconds)?));
            }
            let alone = all.iter().find(|(route, _)| route.service.is_none());
            let (_, alone) = alone.context("Envoy alone is measured")?;
            for (route, costs) in &all {
                route.add(rate, costs, alone, &mut figures);
            }
        }
        // No service has the same predecessor in all turns.
        routes.reverse();
    }
    Ok(figures)
}

/// Starts the services.
fn start(folder: &Path, program: Option<&Path>, with_redis: bool) -> anyhow::Result<Vec<Service>> {
    // Before any instance starts, because weir loads rule files that change.
    for mode in ["exact", "leased", "synced"] {
        let rules = crate::rules("fixed_window");
        let rules = rules.replace("fixed_window", &format!("fixed_window, mode: {mode}"));
        crate::written(folder, &rule_file(mode), &rules)?;
    }
    let in_memory = Server::weir(&folder.join(rule_file("exact")), &[])?;
    let mut services = vec![
        Service { name: BASELINE, server: Server::own("baseline")?, redis: None },
        Service { name: MEMORY, server: in_memory, redis: None },
    ];
    if !with_redis {
        return Ok(services);
    }
    for (name, mode) in [(EXACT, "exact"), (LEASED, "leased"), (SYNCED, "synced")] {
        let redis = Redis::start();
        let url = redis.url();
        let settings = [
            ("WEIR__STORE__KIND", "redis"),
            // A decision by the fallback would cost less, and hide the tails of Redis.
            ("WEIR__STORE__TIMEOUT", "1s"),
            ("WEIR__REDIS__URL", url.as_str()),
        ];
        let server = Server::weir(&folder.join(rule_file(mode)), &settings)?;
        services.push(Service { name, server, redis: Some(redis) });
    }
    if let Some(program) = program {
        let redis = Redis::start();
        let rules = crate::rules("fixed_window").replace(", algorithm: fixed_window", "");
        let build = EnvoyRatelimit::new(program, folder, &rules)?;
        let server = build.start(redis.address(), &[])?;
        services.push(Service { name: ENVOY_RATELIMIT, server, redis: Some(redis) });
    }
    Ok(services)
}

fn rule_file(mode: &str) -> String {
    format!("through-envoy-{mode}.yaml")
}

impl<'a> Route<'a> {
    fn open(
        name: &'static str,
        service: Option<&'a Service>,
        address: SocketAddr,
    ) -> anyhow::Result<Route<'a>> {
        let keys = (0..KEYS).map(|key| (KEY_HEADER.to_owned(), format!("u{key}")));
        let load = HttpLoad::open(address, CONNECTIONS, &keys.collect::<Vec<_>>())?;
        Ok(Route { name, service, load })
    }

    fn measure(&self, envoy: &Envoy, rate: u32, seconds: Duration) -> anyhow::Result<Costs> {
        self.load.run(rate.into(), WARM_UP)?;
        let before = self.cpu(envoy)?;
        let report = self.load.run(rate.into(), seconds)?;
        let after = self.cpu(envoy)?;
        let (ok, errors) = (report.ok, &report.errors);
        let only_late = errors.keys().all(|error| OVERLOAD_ERRORS.contains(&error.as_str()));
        ensure!(ok > 0 && only_late, "{}: {ok} responses, {errors:?}", self.name);
        let cpu = |index: usize| (after[index] - before[index]) / ok as f64 * 1e5;
        Ok(Costs {
            p50: report.latency_us.p50,
            p99: report.latency_us.p99,
            late_p99: report.lateness_us.p99,
            achieved: ok as f64 / (f64::from(rate) * seconds.as_secs_f64()),
            envoy: cpu(0),
            service: cpu(1),
            redis: cpu(2),
        })
    }

    /// CPU seconds so far of Envoy, of the service and of its Redis; 0 for what does not exist.
    fn cpu(&self, envoy: &Envoy) -> anyhow::Result<[f64; 3]> {
        let server = self.service.map(|service| service.server.scheduled()).transpose()?;
        let redis = self.service.and_then(|service| service.redis.as_ref());
        let redis = redis.map(Redis::cpu).transpose()?;
        Ok([scheduled(envoy.pid())?, server.unwrap_or_default(), redis.unwrap_or_default()])
    }

    /// Adds the figures of one load. `alone` are the costs without a rate limit in the same turn.
    fn add(&self, rate: u32, costs: &Costs, alone: &Costs, figures: &mut Figures) {
        let mut add = |what: &str, value| figures.add(&figure(rate, what, self.name), value);
        add("p50, us", costs.p50);
        add("p99, us", costs.p99);
        add("sent late p99, us", costs.late_p99);
        add("achieved, %", 100.0 * costs.achieved);
        add("CPU s of Envoy", costs.envoy);
        let Some(service) = self.service else { return };
        add("added p50, us", costs.p50 - alone.p50);
        add("added p99, us", costs.p99 - alone.p99);
        add("CPU s of the service", costs.service);
        add("CPU s of both", costs.envoy + costs.service);
        if service.redis.is_some() {
            add("CPU s of Redis", costs.redis);
        }
    }
}

/// The name of a figure.
fn figure(rate: u32, what: &str, name: &str) -> String {
    format!("through Envoy, {rate}: {what}: {name}")
}

/// The cells of a row.
fn cells(figures: &Figures, rate: u32, name: &str, columns: &[&str]) -> String {
    let cell = |column: &&str| figures.get(&figure(rate, column, name));
    let cells = columns.iter().map(|column| cell(column).map_or("-".to_owned(), short));
    cells.collect::<Vec<_>>().join(" | ")
}

fn is_measured(figures: &Figures, name: &str) -> bool {
    figures.get(&figure(SUMMARY_RATE, "p50, us", name)).is_some()
}

/// The table of all loads.
pub(crate) fn table(figures: &Figures) -> String {
    if !is_measured(figures, ALONE) {
        return "They were not measured, because the run was without Envoy.".into();
    }
    let columns = [
        "p50, us",
        "p99, us",
        "added p50, us",
        "added p99, us",
        "CPU s of Envoy",
        "CPU s of the service",
        "CPU s of Redis",
    ];
    let mut rows = format!(
        "| requests per second | service | {} |\n| --- | --- |{}\n",
        columns.join(" | "),
        " --- |".repeat(columns.len())
    );
    for rate in RATES {
        for name in NAMES.into_iter().filter(|name| is_measured(figures, name)) {
            rows += &format!("| {rate} | {name} | {} |\n", cells(figures, rate, name, &columns));
        }
    }
    rows
}

/// The table that compares the services at one rate.
pub(crate) fn summary(figures: &Figures) -> String {
    if !is_measured(figures, ALONE) {
        return "The services were not compared, because the run was without Envoy.".into();
    }
    let columns = ["added p50, us", "added p99, us", "CPU s of the service", "CPU s of Redis"];
    let mut rows = format!(
        "| service | {} |\n| --- |{}\n",
        columns.join(" | "),
        " --- |".repeat(columns.len())
    );
    for name in NAMES.into_iter().skip(1).filter(|name| is_measured(figures, name)) {
        rows += &format!("| {name} | {} |\n", cells(figures, SUMMARY_RATE, name, &columns));
    }
    if !is_measured(figures, ENVOY_RATELIMIT) {
        rows += "\nenvoyproxy/ratelimit was not measured, because the run had no \
                 `--envoy-ratelimit` or no Redis.\n";
    }
    rows
}

/// The line that shows the chart beside the summary, if it was measured.
pub(crate) fn chart(charts: &[ChartFile]) -> &'static str {
    if charts.iter().any(|chart| chart.name == "peers.svg") {
        "![CPU time per 100 000 requests through Envoy](performance/peers.svg)\n\n"
    } else {
        ""
    }
}
