//! The rounds of the servers: HTTP/2 alone, the baseline and weir, saturated and at a fixed rate, in turn.
//! envoyproxy/ratelimit has a turn under saturation.

use std::path::Path;
use std::time::Duration;

use weir_bench::{Pacing, Plan, Report};

use crate::child::Server;
use crate::comparison::PacedService;
use crate::figures::Figures;
use crate::redis::{Pings, Redis};
use crate::{KEYS, Options, open, saturated, saturated_peers};

/// Open loops per server and round. Other tenants of the machine disturb tails far more than CPU
/// times.
const OPEN_TURNS: usize = 3;

/// The setting that disables the fast path, so that tonic serves all calls.
const BY_TONIC: (&str, &str) = ("WEIR__GRPC__FAST_PATH", "false");

/// A server of the rounds.
struct NamedServer {
    /// The server's name in the figures.
    name: &'static str,
    server: Server,
    /// Whether the server counts in Redis.
    on_redis: bool,
}

/// The servers of the rounds: h2 and weir's HTTP/2 server alone, the baseline, this weir with and without its
/// fast path, and the builds to compare with, if given.
fn named_servers(
    options: &Options,
    rules: &Path,
    redis: Option<&Redis>,
) -> anyhow::Result<Vec<NamedServer>> {
    let named = |name, server, on_redis| NamedServer { name, server, on_redis };
    let mut all = vec![
        named("h2", Server::own("h2")?, false),
        named("weir-http2", Server::own("weir-http2")?, false),
        named("baseline", Server::own("baseline")?, false),
        named("memory", Server::weir(rules, &[])?, false),
        named("memory, by tonic", Server::weir(rules, &[BY_TONIC])?, false),
    ];
    if let Some(before) = &options.before {
        all.push(named("memory, before", Server::program(before, rules, &[])?, false));
    }
    if let Some(profiled) = &options.profiled {
        all.push(named("memory, profiled", Server::program(profiled, rules, &[])?, false));
    }
    if let Some(redis) = redis {
        let (kind, url) = (("WEIR__STORE__KIND", "redis"), redis.url());
        let url = ("WEIR__REDIS__URL", url.as_str());
        all.push(named("Redis", Server::weir(rules, &[kind, url])?, true));
        let by_tonic = Server::weir(rules, &[kind, url, BY_TONIC])?;
        all.push(named("Redis, by tonic", by_tonic, true));
        if let Some(before) = &options.before {
            let server = Server::program(before, rules, &[kind, url])?;
            all.push(named("Redis, before", server, true));
        }
        if let Some(profiled) = &options.profiled {
            let server = Server::program(profiled, rules, &[kind, url])?;
            all.push(named("Redis, profiled", server, true));
        }
    }
    Ok(all)
}

/// Measures every server under every load, in turn, for every round.
pub(crate) fn measure(options: &Options, folder: &Path) -> anyhow::Result<Figures> {
    let rules = crate::written(folder, "rules.yaml", &crate::rules("fixed_window"))?;
    let redis = (!options.without_redis).then(Redis::start);
    let servers = named_servers(options, &rules, redis.as_ref())?;
    let peer = options.envoy_ratelimit.as_deref().filter(|_| redis.is_some());
    let peers = peer.map(|program| saturated_peers::start(program, folder)).transpose()?;
    let peers = peers.unwrap_or_default();
    let mut figures = Figures::default();
    let warm = Plan { duration: Duration::from_millis(500), ..saturated(options) };
    for one in &servers {
        one.server.load(&warm)?;
    }
    for peer in &peers {
        peer.warm_up(&warm)?;
    }
    let shared = servers.iter().find(|one| one.name == "Redis").map(|one| &one.server);
    let call = redis.as_ref().zip(shared).map(|(redis, server)| one_call(redis, server, &warm));
    let call = call.transpose()?;
    for round in 1..=options.rounds {
        println!("round {round} of {}", options.rounds);
        for one in &servers {
            let redis = redis.as_ref().filter(|_| one.on_redis);
            saturation(one.name, &one.server, redis, &saturated(options), &mut figures)?;
        }
        for peer in &peers {
            peer.measure(&saturated(options), &mut figures)?;
        }
        for _ in 0..OPEN_TURNS {
            for one in &servers {
                // Sent beside every server, so that all have the same conditions.
                let pings = redis.as_ref().map(Redis::ping).transpose()?;
                let (report, _) = one.server.paced_load(&open(options))?;
                latencies(one.name, &report, &mut figures);
                let p99 = pings.map(Pings::p99).transpose()?;
                if let Some(p99) = p99.filter(|_| one.name == "Redis") {
                    figures.add("open: PING p99, us", p99);
                }
            }
        }
        if let Some((redis, call)) = redis.as_ref().zip(call.as_ref()) {
            let cost = redis.script_cost(call, 1, KEYS, options.seconds / 2)?;
            let command = String::from_utf8_lossy(&call[0]).to_uppercase();
            figures.add(&format!("one {command} each: Redis CPU s per million"), 1e6 * cost);
            for steps in CALL_STEPS {
                let cost = redis.script_cost(call, steps, KEYS, options.seconds / 2)?;
                figures.add(&call_figure(steps), 1e6 * cost);
            }
            let cost = redis.plain_cost(KEYS)?;
            figures.add("one plain EVALSHA each: Redis CPU s per million", 1e6 * cost);
        }
    }
    if let Some(server) = shared {
        figures.set("Redis: decided by fallback, %", 100.0 * server.fallback_share()?);
    }
    Ok(figures)
}

/// Steps per call of which the cost is measured beside that of single calls.
pub(crate) const CALL_STEPS: [usize; 2] = [16, 64];

/// The name of the cost of calls with this many steps, which the load generator sends.
pub(crate) fn call_figure(steps: usize) -> String {
    format!("calls of {steps} steps each: Redis CPU s per million")
}

/// The script call of one decision.
fn one_call(redis: &Redis, server: &Server, plan: &Plan) -> anyhow::Result<Vec<Vec<u8>>> {
    let one = Plan {
        pacing: Pacing::Open(10.0),
        connections: 1,
        duration: Duration::from_millis(100),
        ..plan.clone()
    };
    let mut result = Ok(());
    let call = redis.call_of(|| result = server.load(&one).map(|_| ()))?;
    result.map(|()| call)
}

/// Adds the figures of a closed loop. `redis` is the one that the server counts in.
pub(crate) fn saturation(
    name: &str,
    server: &Server,
    redis: Option<&Redis>,
    plan: &Plan,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let before = redis.map(Redis::cpu).transpose()?;
    let (report, used) = server.load(plan)?;
    let after = redis.map(Redis::cpu).transpose()?;
    let per = |seconds: f64, calls: f64| seconds / report.decided as f64 * calls;
    figures.add(&format!("saturated: CPU s per 100 000: {name}"), per(used, 1e5));
    figures.add(&format!("saturated: calls per second: {name}"), report.per_second);
    figures.add(&format!("saturated: p99, us: {name}"), report.latency_us.p99);
    if let Some((before, after)) = before.zip(after) {
        figures.add(&redis_cpu_figure(name), per(after - before, 1e6));
    }
    Ok(())
}

/// The name of the figure: CPU seconds of Redis under a server with this name in the figures.
pub(crate) fn redis_cpu_figure(server: &str) -> String {
    match server.strip_prefix("Redis") {
        Some(variant) => format!("saturated: Redis CPU s per million{variant}"),
        None => format!("saturated: Redis CPU s per million: {server}"),
    }
}

fn latencies(name: &str, report: &Report, figures: &mut Figures) {
    let of = &report.latency_us;
    for (point, value) in [("p50", of.p50), ("p90", of.p90), ("p99", of.p99), ("p99.9", of.p99_9)] {
        figures.add(&format!("open: {point}, us: {name}"), value);
    }
    if let Some(lateness) = &report.lateness_us {
        figures.add(&format!("open: sent late p99, us: {name}"), lateness.p99);
    }
    if let Some(rate) = report.rate {
        let achieved = report.decided as f64 / (rate * report.seconds);
        figures.add(&format!("open: achieved, %: {name}"), 100.0 * achieved);
    }
}

/// The server with this name in the figures, in its open loops.
pub(crate) fn paced(figures: &Figures, name: &str) -> Option<PacedService> {
    let p50_us = figures.get(&format!("open: p50, us: {name}"))?;
    let achieved = figures.get(&format!("open: achieved, %: {name}"))?;
    let name = match name {
        "memory" => "weir from memory",
        "Redis" => "weir on Redis",
        other => other,
    };
    Some(PacedService { name: name.to_owned(), p50_ms: p50_us / 1e3, achieved })
}
