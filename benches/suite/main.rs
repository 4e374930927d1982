//! The measurement of docs/design/performance.md: weir with memory and Redis beside the baseline, in
//! turn, over several rounds.
//!
//! `make bench` runs it and writes docs/design/performance.md with its charts and data. `suite baseline`
//! is the baseline.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use weir_bench::{Pacing, Plan};

mod baseline;
mod batches;
mod before;
mod chart_files;
mod child;
mod comparison;
mod envoy_config;
mod envoy_ratelimit;
mod facts;
mod faults;
mod figures;
mod fleet;
mod h2_constant;
mod in_process;
mod machine;
mod many_rules;
mod options;
mod page;
mod redis;
mod rounds;
mod rule_files;
mod saturated_peers;
mod size;
mod targets;
mod through_envoy;
mod upstream;
mod weir_http2_constant;

#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../../tests/support"]
mod support {
    pub(crate) mod certificates;
    pub(crate) mod envoy;
    pub(crate) mod http;
    pub(crate) mod process;
    pub(crate) mod redis;
    pub(crate) mod resident;
    pub(crate) mod rls;
    pub(crate) mod wait;
    pub(crate) mod weir;
}

/// The allocator of weir, so that the baseline differs from weir only in its code.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

use child::Server;
use facts::Facts;
use figures::Figures;
use options::Options;
use support::envoy::{NEWEST, is_fetched};

/// Counters of the main figures.
const KEYS: u64 = 100_000;
/// Calls per second of the open loop.
const RATE: f64 = 5_000.0;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if let Some(program) = &options.program {
        let cores = std::thread::available_parallelism()?.get();
        return match program.as_str() {
            "h2" => h2_constant::serve(cores),
            "weir-http2" => weir_http2_constant::serve(cores),
            _ => baseline::serve(cores),
        };
    }
    if !options.bench {
        // `cargo test --benches` runs this too. It would take minutes and overwrite the page.
        println!("nothing is measured without --bench, which cargo bench adds");
        return Ok(());
    }
    if options.only_page {
        return write_again(&options, None, Figures::default());
    }
    let has_envoy = is_fetched(NEWEST);
    // Read first, so that the facts describe the measured state.
    let facts = Facts::of_this_run(&options, has_envoy.then_some(NEWEST))?;
    let folder = tempfile::tempdir()?;
    if let Some((part, figures, table)) = only_one_part(&options, folder.path())? {
        print!("\n{table}\n{}", figures.csv());
        return write_again(&options, Some((part, &facts)), figures);
    }
    let mut figures = rounds::measure(&options, folder.path())?;
    if options.only_rounds {
        print!("\n{}", figures.csv());
        return write_again(&options, Some(("servers", &facts)), figures);
    }
    // A later section may fail, after many minutes.
    eprint!("\n{}", figures.csv());
    let rounds = options.rounds.min(3);
    if has_envoy {
        figures.join(requests_through_envoy(&options, folder.path(), rounds)?);
    }
    if !options.without_redis {
        figures.join(faults(&options, folder.path())?);
        figures.join(fleets(&options, folder.path(), rounds)?);
        figures.join(redis_batches(&options, folder.path(), rounds)?);
    }
    figures.join(many_rule_loads(&options, folder.path(), rounds)?);
    figures.join(algorithms(&options, folder.path())?);
    figures.join(in_process_decisions(&options)?);
    figures.join(resources(&options, folder.path())?);
    add_given(&options, &mut figures);
    write_page(&options, &facts, &figures)?;
    print!("\n{}", figures.csv());
    Ok(())
}

/// Measures the part of an option `--only-...`, apart from the servers. Returns its name, its figures, and a table
/// if it has one.
fn only_one_part(
    options: &Options,
    folder: &Path,
) -> anyhow::Result<Option<(&'static str, Figures, String)>> {
    let rounds = options.rounds;
    let with = |name, figures: Figures, table: fn(&Figures) -> String| {
        let table = table(&figures);
        Ok(Some((name, figures, table)))
    };
    if options.only_faults {
        with("faults", faults(options, folder)?, |_| String::new())
    } else if options.only_fleets {
        with("small fleets", fleets(options, folder, rounds)?, page::fleets)
    } else if options.only_batches {
        with("batches", redis_batches(options, folder, rounds)?, batches::rows)
    } else if options.only_envoy {
        let figures = requests_through_envoy(options, folder, rounds)?;
        with("requests through Envoy", figures, through_envoy::table)
    } else if options.only_many_rules {
        with("start and reload", many_rule_loads(options, folder, rounds)?, many_rules::table)
    } else if options.only_decisions {
        with("decisions in the process", in_process_decisions(options)?, |_| String::new())
    } else if options.only_resources {
        with("rest, first answer and many counters", resources(options, folder)?, size::tails)
    } else {
        Ok(None)
    }
}

/// Writes the page from the figures of `--earlier` and from these, which replace those of the same name. `part`
/// names them, with the facts of their measurement. Does nothing without `--earlier`.
fn write_again(
    options: &Options,
    part: Option<(&str, &Facts)>,
    figures: Figures,
) -> anyhow::Result<()> {
    let Some(file) = &options.earlier else { return Ok(()) };
    let mut facts = Facts::of_page(options)?;
    if let Some((name, measured)) = part {
        facts.set_part(name, measured);
    }
    let mut all = read(file)?;
    all.replace(figures);
    add_given(options, &mut all);
    write_page(options, &facts, &all)
}

/// Writes the page, with the figures of another machine if there are any.
fn write_page(options: &Options, facts: &Facts, figures: &Figures) -> anyhow::Result<()> {
    let other = options.other_machine.as_deref().map(read).transpose()?;
    page::write(&options.docs, facts, figures, other.as_ref())
}

/// The figures of an earlier run.
fn read(file: &Path) -> anyhow::Result<Figures> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Figures::from_csv(&text)
}

/// Adds the figures that another command measures, and that the options give.
fn add_given(options: &Options, figures: &mut Figures) {
    if let Some(millis) = options.longest_pause_ms {
        figures.set(targets::LONGEST_TURN, millis);
    }
}

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
    let (before, program) = (options.before.as_deref(), options.envoy_ratelimit.as_deref());
    fleet::measure(folder, before, program, rounds, &open(options))
}

/// Every kind of traffic on Redis, in turn, for `rounds` rounds.
fn redis_batches(options: &Options, folder: &Path, rounds: u16) -> anyhow::Result<Figures> {
    let rules = written(folder, "batches.yaml", &rules("fixed_window"))?;
    batches::measure(&rules, options.before.as_deref(), rounds, &saturated(options))
}

/// The start and the reload of many rules, for `rounds` rounds.
fn many_rule_loads(options: &Options, folder: &Path, rounds: u16) -> anyhow::Result<Figures> {
    many_rules::measure(folder, options.before.as_deref(), rounds, &open(options))
}

/// Every service behind Envoy, in turn, for `rounds` rounds.
fn requests_through_envoy(
    options: &Options,
    folder: &Path,
    rounds: u16,
) -> anyhow::Result<Figures> {
    let program = options.envoy_ratelimit.as_deref();
    through_envoy::measure(folder, program, !options.without_redis, rounds, options.seconds)
}

/// Memory and CPU time at rest, the start, and many counters.
fn resources(options: &Options, folder: &Path) -> anyhow::Result<Figures> {
    println!("memory, rest and start");
    let rules = written(folder, "rules.yaml", &rules("fixed_window"))?;
    let counters =
        if options.millions == "10" { &[1_000_000, 10_000_000][..] } else { &[1_000_000] };
    let idle = Duration::from_secs(10).min(options.seconds * 4);
    size::measure(folder, &rules, options.before.as_deref(), &open(options), counters, idle)
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
