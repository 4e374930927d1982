//! The speed of replays: recorded calls per second, and per second and core, decided by two rule sets.
//!
//! `make bench-replay` runs it. It writes a recording into the folder of temporary files, about 200 bytes
//! per call, and reads it once per round.
//!
//!   cargo bench --bench replay -- [--calls N] [--rounds N]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Parser;
use weir::limit::OnError;
use weir::replay::{LineForm, ReplayOptions, ReplayReport, replay};
use weir::rules::{RuleSet, SourceFile, compile};
use weir::settings::ResponseSettings;
use weir::splitmix64;

#[path = "suite/machine.rs"]
mod machine;

/// The allocator of weir.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A recording with this number of users, each with a counter in each rule set.
struct Shape {
    users: u64,
    /// Requests per minute of the old and of the new rules. Few users reach the new limit.
    limits: [u64; 2],
}

/// With 10 000 calls per second, each of 1 000 users has 600 calls per minute.
const SHAPES: [Shape; 2] = [
    Shape { users: 1_000, limits: [1_000, 500] },
    Shape { users: 1_000_000, limits: [1_000, 500] },
];

/// Microseconds between two calls of the recording.
const PAUSE: u64 = 100;

/// 2026-03-01T12:00:00Z
const START: u64 = 1_772_366_400_000_000;

/// Ticks of CPU time per second (USER_HZ), which is the same on every Linux.
const TICKS: f64 = 100.0;

/// Measures replays and prints the figures.
#[derive(Debug, Parser)]
struct Options {
    /// Calls of each recording.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    calls: u64,
    /// Replays of each recording. The median is printed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// `cargo bench` adds this.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if !options.bench {
        println!("nothing is measured without --bench, which cargo bench adds");
        return Ok(());
    }
    for (name, value) in machine::facts() {
        println!("{name}: {value}");
    }
    println!("\n{} calls, two rule sets, median of {} rounds\n", options.calls, options.rounds);
    println!("| users | million calls/s | million calls/s and core | cores | newly denied calls |");
    println!("| --- | --- | --- | --- | --- |");
    let folder = tempfile::TempDir::new()?;
    for shape in SHAPES {
        let path = folder.path().join("recording.jsonl");
        record(&path, &shape, options.calls)?;
        let [old, new] = shape.limits.map(rules);
        let (old, new) = (old?, new?);
        let mut rounds = Vec::new();
        let mut more = 0;
        for _ in 0..options.rounds {
            let (begin, before) = (Instant::now(), cpu_seconds()?);
            let report = replayed(&path, &old, &new)?;
            let (wall, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds()? - before);
            ensure!(report.calls.replayed == options.calls, "not all calls are valid: {report}");
            more = report.calls.difference.more;
            rounds.push((wall, cpu));
        }
        rounds.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (wall, cpu) = rounds[rounds.len() / 2];
        let millions = options.calls as f64 / 1e6;
        let (by_wall, by_cpu, cores) = (millions / wall, millions / cpu, cpu / wall);
        println!("| {} | {by_wall:.2} | {by_cpu:.2} | {cores:.1} | {more} |", shape.users);
    }
    Ok(())
}

/// Rules with `requests` per minute for each user.
fn rules(requests: u64) -> anyhow::Result<RuleSet> {
    let limit = format!("{{ unit: minute, requests_per_unit: {requests} }}");
    let user = format!("[{{ key: user, rate_limit: {limit} }}]");
    let tenant = format!("[{{ key: tenant, value: acme, descriptors: {user} }}]");
    let text = format!("domain: bench\ndescriptors: {tenant}\n");
    let file = SourceFile { name: "bench.yaml".into(), text };
    let compiled = compile(&[file], &weir::rules::Options::default());
    Ok(compiled.map_err(|problems| anyhow::anyhow!("{problems:?}"))?.0)
}

/// Writes a recording as the decision log does.
fn record(path: &Path, shape: &Shape, calls: u64) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut seed = shape.users;
    for call in 0..calls {
        let (at, user) = (START + call * PAUSE, splitmix64::next(&mut seed) % shape.users);
        let entries = format!(r#"[["tenant","acme"],["user","u{user:07}"]]"#);
        let decided = r#""code":"OK","rule":"tenant=acme,user","reason":"counted","remaining":9"#;
        write!(out, r#"{{"at":{at},"domain":"bench","hits":0,"descriptors":["#)?;
        writeln!(out, r#"{{"entries":{entries},{decided}}}],"code":"OK"}}"#)?;
    }
    out.flush()?;
    Ok(())
}

fn replayed(path: &Path, old: &RuleSet, new: &RuleSet) -> anyhow::Result<ReplayReport> {
    let options = ReplayOptions {
        form: LineForm::DecisionLog,
        domain: None,
        top: 20,
        response: ResponseSettings::default(),
        on_error: OnError::default(),
        max_counters: 4_000_000,
    };
    Ok(replay(File::open(path)?, old, new, &options)?)
}

/// User plus system time of this process, also of threads that have ended.
fn cpu_seconds() -> anyhow::Result<f64> {
    let line = std::fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may have any characters. User time is the twelfth field after it.
    let (_, fields) = line.rsplit_once(") ").context("a name")?;
    let ticks = |field: usize| -> anyhow::Result<f64> {
        Ok(fields.split(' ').nth(field).context("a time")?.parse::<f64>()?)
    };
    Ok((ticks(11)? + ticks(12)?) / TICKS)
}
