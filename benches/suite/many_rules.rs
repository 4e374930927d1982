//! Start and reload with many rules: the time, the memory, and the latency of calls meanwhile.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use weir_bench::{CancelSignal, Pacing, Plan, Progress, Report, run};
use weir_charts::short;

use crate::child::{Bytes, Server, timed};
use crate::figures::Figures;
use crate::rule_files::{self, Marker};

/// Calls per second of the load.
const RATE: f64 = 2_000.0;
/// Counters of the load, each of another rule. Every size has these rules.
const KEYS: u64 = 1_000;

/// Loads without and with reloads per round, in turns. The p99 of a single load varies more than fourfold, by what
/// else the machine does.
const LOADS: usize = 5;

/// Longer than all reloads of one load take.
const LONGEST: Duration = Duration::from_secs(600);

/// The name of the figure.
const BINARY: &str = "binary: stripped, MB";

/// The figures of the table, and their columns.
const COLUMNS: [(&str, &str); 7] = [
    ("start, ms", "start, ms"),
    ("reload, ms", "reload, ms"),
    ("resident after the start, MB", "memory after the start, MB"),
    ("peak of the start, MB", "peak of the start, MB"),
    ("peak with reloads, MB", "peak with reloads, MB"),
    ("p99 before, us", "p99 before reloads, us"),
    ("p99 during reloads, us", "p99 during reloads, us"),
];

/// A number of rules.
#[derive(Clone, Copy)]
struct Size {
    /// The start of its figures' names.
    name: &'static str,
    rules: u64,
    /// Starts per round.
    starts: usize,
}

const SIZES: [Size; 2] = [
    Size { name: "10 000 rules", rules: 10_000, starts: 5 },
    Size { name: "1 000 000 rules", rules: 1_000_000, starts: 2 },
];

/// A measured build.
#[derive(Clone, Copy)]
struct Build<'a> {
    /// The build before, or `None` for this one.
    before: Option<&'a Path>,
    /// The end of the name of a size in the names of its figures.
    name: &'static str,
    /// Most starts per round.
    starts: usize,
    /// Loads without and with reloads per round, in turns.
    loads: usize,
}

const THIS: Build = Build { before: None, name: "", starts: usize::MAX, loads: LOADS };

/// Fewer starts and loads, because those of older builds take longer.
const BEFORE: Build = Build { before: None, name: ", the build before", starts: 1, loads: 2 };

/// Measures every size, in turn, `rounds` times. `plan` has the domain, and the duration of a load.
/// `before` is the build before.
pub(crate) fn measure(
    folder: &Path,
    before: Option<&Path>,
    rounds: u16,
    plan: &Plan,
) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    figures.set(BINARY, megabytes(stripped(folder)?));
    let entry = ("path".to_owned(), "/v1/product/0000{n}".to_owned());
    let plan = Plan {
        descriptors: vec![vec![entry]],
        keys: KEYS,
        pacing: Pacing::Open(RATE),
        ..plan.clone()
    };
    let folders = SIZES.map(|size| folder.join(format!("rules-{}", size.rules)));
    for (size, folder) in SIZES.into_iter().zip(&folders) {
        rule_files::write(folder, size.rules)?;
    }
    for round in 1..=rounds {
        println!("many rules, round {round} of {rounds}");
        for (size, folder) in SIZES.into_iter().zip(&folders) {
            figures.join(size.measure(THIS, folder, &plan)?);
            if before.is_none() {
                continue;
            }
            // An older build may not know the rules, or may not reload them in time.
            match size.measure(Build { before, ..BEFORE }, folder, &plan) {
                Ok(measured) => figures.join(measured),
                Err(error) => eprintln!("{}, the build before: {error:#}", size.name),
            }
        }
    }
    Ok(figures)
}

impl Size {
    /// The figures of one round.
    fn measure(self, build: Build, folder: &Path, plan: &Plan) -> anyhow::Result<Figures> {
        let mut figures = Figures::default();
        Marker::reset(folder)?;
        let mut add = |what: &str, value| figures.add(&self.figure(build, what), value);
        let mut server = None;
        for _ in 0..self.starts.min(build.starts) {
            // The threads of the server before would use the processors.
            drop(server.take());
            let settings = [("WEIR__RULES__MERGE_DOMAINS", "true")];
            let (started, millis) = timed(|| match build.before {
                Some(program) => Server::program(program, folder, &settings),
                None => Server::weir(folder, &settings),
            });
            let started = started?;
            add("start, ms", millis);
            add("resident after the start, MB", megabytes(started.resident()));
            add("peak of the start, MB", megabytes(started.peak()?));
            server = Some(started);
        }
        let server = server.context("each size is started")?;
        // Creates most counters.
        server.load(&Plan { duration: Duration::from_secs(1), ..plan.clone() })?;
        let mut marker = Marker::connect(folder, &server)?;
        for _ in 0..build.loads {
            let (before, _) = server.load(plan)?;
            add("p99 before, us", before.latency_us.p99);
            let (during, reloads) = load_with_reloads(&server, &mut marker, plan)?;
            add("p99 during reloads, us", during.latency_us.p99);
            for reload in reloads {
                add("reload, ms", 1e3 * reload.as_secs_f64());
            }
        }
        add("peak with reloads, MB", megabytes(server.peak()?));
        Ok(figures)
    }

    /// The name of a figure.
    fn figure(self, build: Build, what: &str) -> String {
        format!("{}{}: {what}", self.name, build.name)
    }
}

/// Loads `server` while the rules are reloaded again and again, at least once, for the duration of
/// `plan`. The load ends with the last reload. Returns the times of the reloads.
fn load_with_reloads(
    server: &Server,
    marker: &mut Marker,
    plan: &Plan,
) -> anyhow::Result<(Report, Vec<Duration>)> {
    let longest = &Plan { warmup: Duration::ZERO, duration: LONGEST, ..plan.clone() };
    let (canceller, cancel) = CancelSignal::new();
    let (started, is_started) = mpsc::channel();
    let (report, reloads) = thread::scope(|scope| {
        let load = scope.spawn(move || {
            run(longest, &server.address, &cancel, |progress| {
                if matches!(progress, Progress::Started) {
                    // The receiver lives as long as the load.
                    let _ = started.send(());
                }
            })
        });
        // The error of a load that does not start is in its result.
        let _ = is_started.recv();
        let reloads = reload_for(plan.duration, marker);
        canceller.cancel();
        let report = load.join().map_err(|_| anyhow::anyhow!("a defect"))??;
        anyhow::Ok((report, reloads?))
    })?;
    let Report { decided, failed, errors, .. } = &report;
    ensure!(*decided > 0 && *failed == 0, "{decided} calls during reloads, {errors:?}");
    Ok((report, reloads))
}

fn reload_for(length: Duration, marker: &mut Marker) -> anyhow::Result<Vec<Duration>> {
    let end = Instant::now() + length;
    let mut reloads = Vec::new();
    while reloads.is_empty() || Instant::now() < end {
        reloads.push(marker.reload()?);
    }
    Ok(reloads)
}

/// The size of weir's binary without symbols.
fn stripped(folder: &Path) -> anyhow::Result<Bytes> {
    let to = folder.join("stripped");
    let strip = Command::new("strip").arg("-o").arg(&to).arg(env!("CARGO_BIN_EXE_weir")).status();
    let ended = strip.context("strip, which comes with a C compiler, does not start")?;
    ensure!(ended.success(), "strip has failed: {ended}");
    Ok(fs::metadata(&to)?.len())
}

fn megabytes(bytes: Bytes) -> f64 {
    bytes as f64 / 1e6
}

/// What is measured of each size, with the figures of this build and of the build before.
pub(crate) fn builds() -> Vec<(String, [String; 2])> {
    let of = |size: Size| {
        let row = move |(what, column): (&'static str, &'static str)| {
            let column = column.trim_end_matches(", ms").trim_end_matches(", MB");
            let column = column.trim_end_matches(", us");
            (
                format!("{}: {column}", size.name),
                [THIS, BEFORE].map(|build| size.figure(build, what)),
            )
        };
        COLUMNS.map(row)
    };
    SIZES.into_iter().flat_map(of).collect()
}

/// The table, and the size of the binary.
pub(crate) fn table(figures: &Figures) -> String {
    let shown = |name: &str| figures.get(name).map_or("-".to_owned(), short);
    let columns = COLUMNS.map(|(_, column)| column).join(" | ");
    let mut text = format!("| rules | {columns} |\n| --- |{}\n", " --- |".repeat(COLUMNS.len()));
    for size in SIZES {
        for build in [THIS, BEFORE] {
            let is_measured = figures.get(&size.figure(build, COLUMNS[0].0)).is_some();
            if !is_measured && build.name != THIS.name {
                continue;
            }
            let cells = COLUMNS.map(|(what, _)| shown(&size.figure(build, what))).join(" | ");
            text += &format!("| {}{} | {cells} |\n", size.rules, build.name);
        }
    }
    text + &format!("\nThe stripped binary has {} MB.\n", shown(BINARY))
}
