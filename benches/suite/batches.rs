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

/// Measures every kind of traffic, in turn, `rounds` times.
pub(crate) fn measure(rules: &Path, rounds: u16, plan: &Plan) -> anyhow::Result<Figures> {
    let redis = Redis::start();
    let url = redis.url();
    let settings = [("WEIR__STORE__KIND", "redis"), ("WEIR__REDIS__URL", url.as_str())];
    let server = Server::weir(rules, &settings)?;
    let mut figures = Figures::default();
    for round in 1..=rounds {
        println!("batches, round {round} of {rounds}");
        for (name, keys, distribution) in TRAFFIC {
            let plan = Plan { keys, distribution, ..plan.clone() };
            let (cpu, calls) = (redis.cpu()?, redis.script_calls()?);
            let (report, _) = server.load(&plan)?;
            let decided = report.decided as f64;
            let cpu = redis.cpu()? - cpu;
            figures.add(&cpu_figure(name), cpu / decided * 1e6);
            let per_call = decided / (redis.script_calls()? - calls);
            figures.add(&format!("batches: decisions per script call: {name}"), per_call);
            let plain = 1e6 * redis.plain_cost(keys)?;
            figures.add(&plain_figure(name), plain);
        }
    }
    Ok(figures)
}

/// The CPU time of Redis per decision of this traffic, of one plain EVALSHA each.
pub(crate) fn of_plain(figures: &Figures, name: &str) -> Option<f64> {
    figures.ratio(&cpu_figure(name), &plain_figure(name))
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
    for (name, _, _) in TRAFFIC {
        let per_call = figures.get(&format!("batches: decisions per script call: {name}"));
        let cells = [figures.get(&cpu_figure(name)), per_call, of_plain(figures, name)];
        let [cpu, per_call, ratio] = cells.map(|cell| cell.map_or("-".to_owned(), short));
        rows += &format!("| {name} | {cpu} | {per_call} | {ratio} |\n");
    }
    rows
}
