//! The measurement of docs/performance.md: weir with memory and Redis beside the baseline, in
//! turn, over several rounds.
//!
//! `make bench` runs it and writes docs/performance.md with its charts and data. `suite baseline` is
//! the baseline.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use weir_bench::{Pacing, Plan, Report};

mod baseline;
mod chart;
mod child;
mod envoy_ratelimit;
mod faults;
mod figures;
mod fleet;
mod in_process;
mod machine;
mod page;
mod redis;
mod size;

#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../../tests/support"]
mod support {
    pub(crate) mod certificates;
    pub(crate) mod redis;
    pub(crate) mod resident;
    pub(crate) mod wait;
}

/// The allocator of weir, so that the baseline differs from weir only in its code.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

use child::Server;
use figures::Figures;
use redis::{Pings, Redis};

/// Counters of the main figures.
const KEYS: u64 = 100_000;
/// Calls per second of the open loop.
const RATE: f64 = 5_000.0;

/// Measures weir and writes docs/performance.md.
#[derive(Debug, Parser)]
struct Options {
    /// `baseline` runs the baseline instead.
    #[arg(value_parser = ["baseline"])]
    program: Option<String>,
    /// Rounds; medians are taken over them.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Seconds of each load of a round.
    #[arg(long, default_value = "3", value_parser = seconds)]
    seconds: Duration,
    /// Measure the memory of up to this many million counters: 1 or 10.
    #[arg(long, default_value = "10", value_parser = ["1", "10"])]
    millions: String,
    /// Skip Redis.
    #[arg(long)]
    without_redis: bool,
    /// Another build of weir, measured in the same rounds.
    #[arg(long)]
    before: Option<PathBuf>,
    /// A build of envoyproxy/ratelimit, measured in the small fleets.
    #[arg(long, value_name = "PATH")]
    envoy_ratelimit: Option<PathBuf>,
    /// Only the rounds of the servers. Writes nothing.
    #[arg(long)]
    only_rounds: bool,
    /// Only the faults. Writes nothing.
    #[arg(long)]
    only_faults: bool,
    /// Only the small fleets. Writes nothing.
    #[arg(long, conflicts_with = "without_redis")]
    only_fleets: bool,
    /// The folder of the page, with a folder `performance` beside it.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/docs"))]
    docs: PathBuf,
    /// `cargo bench` adds this.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if options.program.as_deref() == Some("baseline") {
        return baseline::serve(std::thread::available_parallelism()?.get());
    }
    if !options.bench {
        // `cargo test --benches` runs this too. It would take minutes and overwrite the page.
        println!("nothing is measured without --bench, which cargo bench adds");
        return Ok(());
    }
    // Read first, so that the facts describe the measured state.
    let mut facts = machine::facts();
    if let Some(program) = &options.envoy_ratelimit {
        facts.push(("envoyproxy/ratelimit", envoy_ratelimit::version(program)?));
    }
    let folder = tempfile::tempdir()?;
    if options.only_faults {
        print!("\n{}", faults(&options, folder.path())?.csv());
        return Ok(());
    }
    if options.only_fleets {
        let figures = fleets(&options, folder.path(), options.rounds)?;
        print!("\n{}\n{}", page::fleets(&figures), figures.csv());
        return Ok(());
    }
    let mut figures = rounds(&options, folder.path())?;
    if !options.only_rounds {
        if !options.without_redis {
            figures.join(faults(&options, folder.path())?);
            figures.join(fleets(&options, folder.path(), options.rounds.min(3))?);
        }
        figures.join(algorithms(&options, folder.path())?);
        figures.join(in_process_decisions(&options)?);
        println!("memory, rest and start");
        let rules = written(folder.path(), "rules.yaml", &rules("fixed_window"))?;
        let counters =
            if options.millions == "10" { &[1_000_000, 10_000_000][..] } else { &[1_000_000] };
        let idle = Duration::from_secs(10).min(options.seconds * 4);
        figures.join(size::measure(folder.path(), &rules, &open(&options), counters, idle)?);
        page::write(&options.docs, options.rounds, facts, &figures)?;
    }
    print!("\n{}", figures.csv());
    Ok(())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "not a number")?;
    let length = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if length.is_zero() { Err("more than nothing, please".into()) } else { Ok(length) }
}

/// Open loops per server and round. Other tenants of the machine disturb tails far more than CPU
/// times.
const OPEN_TURNS: usize = 3;

/// A closed loop: 8 connections of 32 streams.
fn saturated(options: &Options) -> Plan {
    let entry = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let descriptor = vec![entry("tenant", "acme"), entry("user", "u{n}")];
    Plan { duration: options.seconds, ..Plan::new("bench", vec![descriptor], KEYS) }
}

/// Calls at a fixed rate.
fn open(options: &Options) -> Plan {
    Plan { pacing: Pacing::Open(RATE), ..saturated(options) }
}

/// One rule on two entries with a limit that is never reached.
fn rules(algorithm: &str) -> String {
    format!(
        "domain: bench
descriptors:
- key: tenant
  value: acme
  descriptors:
  - key: user
    rate_limit: {{ unit: hour, requests_per_unit: 1000000, algorithm: {algorithm} }}
"
    )
}

fn written(folder: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, text)?;
    Ok(path)
}

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

/// The servers of the rounds: the baseline, this weir with and without its fast path, and the
/// build to compare with, if given.
fn named_servers(
    options: &Options,
    rules: &Path,
    redis: Option<&Redis>,
) -> anyhow::Result<Vec<NamedServer>> {
    let named = |name, server, on_redis| NamedServer { name, server, on_redis };
    let mut all = vec![
        named("baseline", Server::baseline()?, false),
        named("memory", Server::weir(rules, &[])?, false),
        named("memory, by tonic", Server::weir(rules, &[BY_TONIC])?, false),
    ];
    if let Some(before) = &options.before {
        all.push(named("memory, before", Server::program(before, rules, &[])?, false));
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
    }
    Ok(all)
}

/// Every server under every load, in turn, for every round.
fn rounds(options: &Options, folder: &Path) -> anyhow::Result<Figures> {
    let rules = written(folder, "rules.yaml", &rules("fixed_window"))?;
    let redis = (!options.without_redis).then(Redis::start);
    let servers = named_servers(options, &rules, redis.as_ref())?;
    let mut figures = Figures::default();
    let warm = Plan { duration: Duration::from_millis(500), ..saturated(options) };
    for one in &servers {
        one.server.load(&warm)?;
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
        for _ in 0..OPEN_TURNS {
            for one in &servers {
                // Sent beside every server, so that all have the same conditions.
                let pings = redis.as_ref().map(Redis::ping).transpose()?;
                let (report, _) = one.server.load(&open(options))?;
                latencies(one.name, &report, &mut figures);
                let p99 = pings.map(Pings::p99).transpose()?;
                if let Some(p99) = p99.filter(|_| one.name == "Redis") {
                    figures.add("open: PING p99, us", p99);
                }
            }
        }
        if let Some((redis, call)) = redis.as_ref().zip(call.as_ref()) {
            let cost = redis.script_cost(call, KEYS, options.seconds / 2)?;
            figures.add("one EVALSHA each: Redis CPU s per million", 1e6 * cost);
            let cost = redis.plain_cost(KEYS)?;
            figures.add("one plain EVALSHA each: Redis CPU s per million", 1e6 * cost);
        }
    }
    if let Some(server) = shared {
        figures.set("Redis: decided by fallback, %", 100.0 * server.fallback_share()?);
    }
    Ok(figures)
}

/// Every fault, once per round and at most three times.
fn faults(options: &Options, folder: &Path) -> anyhow::Result<Figures> {
    let rules = written(folder, "rules.yaml", &rules("fixed_window"))?;
    let plan = Plan { duration: Duration::from_secs(5), ..open(options) };
    let mut figures = Figures::default();
    for _ in 0..options.rounds.min(3) {
        figures.join(faults::measure(&rules, &plan)?);
    }
    Ok(figures)
}

/// Every fleet with every service, in turn, for `rounds` rounds.
fn fleets(options: &Options, folder: &Path, rounds: u16) -> anyhow::Result<Figures> {
    fleet::measure(folder, options.envoy_ratelimit.as_deref(), rounds, &open(options))
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

fn saturation(
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
        let name = name.strip_prefix("Redis").unwrap_or(name);
        let figure = format!("saturated: Redis CPU s per million{name}");
        figures.add(&figure, per(after - before, 1e6));
    }
    Ok(())
}

fn latencies(name: &str, report: &Report, figures: &mut Figures) {
    let of = &report.latency_us;
    for (point, value) in [("p50", of.p50), ("p90", of.p90), ("p99", of.p99), ("p99.9", of.p99_9)] {
        figures.add(&format!("open: {point}, us: {name}"), value);
    }
    if let Some(lateness) = &report.lateness_us {
        figures.add(&format!("open: sent late p99, us: {name}"), lateness.p99);
    }
}

/// Each algorithm once in memory.
fn algorithms(options: &Options, folder: &Path) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let plan = saturated(options);
    for name in
        ["fixed_window", "sliding_window", "token_bucket", "leaky_bucket", "sliding_window_log"]
    {
        println!("{name}");
        let mut text = rules(name);
        if name == "sliding_window_log" {
            // A log keeps an entry per allowed hit.
            text = text.replace(
                "unit: hour, requests_per_unit: 1000000",
                "unit: second, requests_per_unit: 100",
            );
        }
        let rules = written(folder, &format!("{name}.yaml"), &text)?;
        let server = Server::weir(&rules, &[])?;
        let warm = Plan { duration: Duration::from_millis(500), ..plan.clone() };
        server.load(&warm)?;
        let (report, used) = server.load(&plan)?;
        figures.set(
            &format!("algorithm: CPU s per 100 000: {name}"),
            used / report.decided as f64 * 1e5,
        );
    }
    Ok(figures)
}

/// Decisions without a network.
fn in_process_decisions(options: &Options) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    for (name, users) in [("1 000 counters", 1_000), ("1 M counters", 1_000_000)] {
        println!("inside the process, {name}");
        let load = in_process::InProcessLoad::new(&rules("fixed_window"), users)?;
        for pace in load.pace(usize::from(options.rounds.max(3))).context("a decision")? {
            figures.add(&format!("inside: million decisions per CPU second: {name}"), pace);
        }
    }
    Ok(figures)
}
