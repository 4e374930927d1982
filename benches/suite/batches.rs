//! Batches: the CPU time of Redis per decision under saturation, by the number of counters and their skew.
//!
//! Steps on one counter in a batch share a read and a write, so few or skewed counters cost less.

use std::path::Path;

use weir_bench::{KeyDistribution, Plan};
use weir_charts::short;

use crate::child::Server;
use crate::figures::Figures;
use crate::redis::Redis;

/// Zipf's law with the exponent 1.
const ZIPF: KeyDistribution = KeyDistribution::Zipf(1.0);

/// The measured traffic: a name, the counters, and how often each is used.
const TRAFFIC: [(&str, u64, KeyDistribution); 5] = [
    ("10 counters, uniform", 10, KeyDistribution::Uniform),
    ("10 counters, Zipf 1.0", 10, ZIPF),
    ("1 000 counters, uniform", 1_000, KeyDistribution::Uniform),
    ("1 000 counters, Zipf 1.0", 1_000, ZIPF),
    ("100 000 counters, Zipf 1.0", 100_000, ZIPF),
];

/// This build, and the build before, by the end of the names of their figures.
const BUILDS: [&str; 2] = ["", ", the build before"];

/// Measures every kind of traffic, in turn, `rounds` times. `before` is the build before.
pub(crate) fn measure(
    rules: &Path,
    before: Option<&Path>,
    rounds: u16,
    plan: &Plan,
) -> anyhow::Result<Figures> {
    let mut builds = vec![Build::start(BUILDS[0], rules, Server::weir)?];
    if let Some(before) = before {
        let start =
            |rules: &Path, settings: &[(&str, &str)]| Server::program(before, rules, settings);
        builds.push(Build::start(BUILDS[1], rules, start)?);
    }
    let mut figures = Figures::default();
    for round in 1..=rounds {
        println!("batches, round {round} of {rounds}");
        for (name, keys, distribution) in TRAFFIC {
            let plan = Plan { keys, distribution, ..plan.clone() };
            for build in &builds {
                build.measure(&format!("{name}{}", build.name), &plan, &mut figures)?;
            }
            let plain = 1e6 * builds[0].redis.plain_cost(keys)?;
            figures.add(&plain_figure(name), plain);
        }
    }
    Ok(figures)
}

/// A running build, and the Redis that only it counts in.
struct Build {
    name: &'static str,
    server: Server,
    redis: Redis,
}

impl Build {
    fn start(
        name: &'static str,
        rules: &Path,
        start: impl Fn(&Path, &[(&str, &str)]) -> anyhow::Result<Server>,
    ) -> anyhow::Result<Build> {
        let redis = Redis::start();
        let url = redis.url();
        let settings = [("WEIR__STORE__KIND", "redis"), ("WEIR__REDIS__URL", url.as_str())];
        Ok(Build { name, server: start(rules, &settings)?, redis })
    }

    /// Adds the figures of one load.
    fn measure(&self, name: &str, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
        let (cpu, calls) = (self.redis.cpu()?, self.redis.script_calls()?);
        let (report, _) = self.server.load(plan)?;
        let decided = report.decided as f64;
        let cpu = self.redis.cpu()? - cpu;
        figures.add(&cpu_figure(name), cpu / decided * 1e6);
        let per_call = decided / (self.redis.script_calls()? - calls);
        figures.add(&per_call_figure(name), per_call);
        Ok(())
    }
}

/// The CPU time of Redis per decision of this traffic, of one plain EVALSHA each.
pub(crate) fn of_plain(figures: &Figures, name: &str) -> Option<f64> {
    figures.ratio(&cpu_figure(name), &plain_figure(name))
}

/// Each kind of traffic, with the figures of the CPU time of Redis by this build and by the build before.
pub(crate) fn builds() -> impl Iterator<Item = (&'static str, [String; 2])> {
    TRAFFIC
        .iter()
        .map(|(name, _, _)| (*name, BUILDS.map(|end| cpu_figure(&format!("{name}{end}")))))
}

fn per_call_figure(name: &str) -> String {
    format!("batches: decisions per script call: {name}")
}

fn cpu_figure(name: &str) -> String {
    format!("batches: Redis CPU s per million: {name}")
}

fn plain_figure(name: &str) -> String {
    format!("batches: plain EVALSHA, Redis CPU s per million: {name}")
}

/// The rows of the table.
pub(crate) fn rows(figures: &Figures) -> String {
    let mut rows = String::new();
    for (traffic, _, _) in TRAFFIC {
        for build in BUILDS {
            let name = format!("{traffic}{build}");
            let cpu = figures.get(&cpu_figure(&name));
            if cpu.is_none() && build != BUILDS[0] {
                continue;
            }
            let per_call = figures.get(&per_call_figure(&name));
            let ratio = figures.ratio(&cpu_figure(&name), &plain_figure(traffic));
            let cells =
                [cpu, per_call, ratio].map(|cell| cell.map_or("-".to_owned(), short)).join(" | ");
            rows += &format!("| {name} | {cells} |\n");
        }
    }
    rows
}
