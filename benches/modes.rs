//! The three modes compared: their cost in Redis, their latency, and how closely they keep the
//! limit.
//!
//! 3 instances, 25 tenants, 1000 calls per second in total. Every tenant sends a third more than
//! its limit, so each window fills up. Real processes, a real Redis Cluster, and an open loop: a
//! call is sent when it is due, whatever the state of the others.
//!
//! `make modes` runs all of it and writes `docs/guides/modes/`. `cargo bench --bench modes -- 10` takes
//! 10 s instead of 60.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

mod modes {
    pub(crate) mod load;
    pub(crate) mod run;
}
#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../tests/support"]
mod support {
    pub(crate) mod certificates;
    pub(crate) mod http;
    pub(crate) mod on_redis;
    pub(crate) mod process;
    pub(crate) mod redis;
    pub(crate) mod resident;
    pub(crate) mod rls;
    pub(crate) mod wait;
    pub(crate) mod weir;
}

use modes::run::{Figures, MODES, Plan, run};
use support::redis::cluster::Cluster;

/// Calls per second of the table.
const RATE: u32 = 1_000;

/// Calls per second of the chart.
const RATES: [u32; 5] = [100, 300, 1_000, 2_000, 4_000];

fn main() {
    // cargo adds `--bench`.
    let seconds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(60);
    let cluster = Cluster::start();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides/modes");
    std::fs::create_dir_all(&folder).expect("a folder in docs");
    let save = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("the folder was just made");
    };

    let window = Duration::from_secs((seconds / 3).clamp(3, 20));
    let table = tenants(&cluster, Plan { rate: RATE, window, windows: 3 });
    save("tenants.csv", &table);

    let window = window.min(Duration::from_secs(5));
    let sweep = sweep(&cluster, window);
    let sweep = csv(&sweep);
    save("sweep.csv", &sweep);
    for chart in weir_charts::modes(&sweep).expect("the sweep has every mode") {
        save(chart.name, &chart.svg);
    }
}

/// The table: every mode, and memory.
fn tenants(cluster: &Cluster, plan: Plan) -> String {
    let mut text = String::from(Figures::HEAD);
    println!("{}", Figures::HEAD.trim_end());
    for mode in MODES {
        let line = run(cluster, mode, &plan).line(mode, plan.rate);
        println!("{}", line.trim_end());
        text.push_str(&line);
    }
    text
}

type Sweep = Vec<(u32, &'static str, Figures)>;

fn sweep(cluster: &Cluster, window: Duration) -> Sweep {
    let mut all = Sweep::new();
    for rate in RATES {
        for &mode in MODES.iter().skip(1) {
            let figures = run(cluster, mode, &Plan { rate, window, windows: 2 });
            print!("{}", figures.line(mode, rate));
            all.push((rate, mode, figures));
        }
    }
    all
}

fn csv(sweep: &Sweep) -> String {
    let mut text = String::from(Figures::HEAD);
    for (rate, mode, figures) in sweep {
        let _ = write!(text, "{}", figures.line(mode, *rate));
    }
    text
}
