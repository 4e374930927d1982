//! The resources of weir: memory when idle and with many counters, CPU when idle, and time to the
//! first response.

use std::fmt::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use tokio::runtime::Builder;
use weir::proto::{Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};
use weir_bench::{KeyDistribution, Pacing, Plan};
use weir_charts::short;

use crate::child::{Bytes, Server, timed};
use crate::figures::{Figures, median};

/// Descriptors per call that fills the store, to save time.
const PER_CALL: u64 = 10;

/// Pairs of loads of a tail: one on all counters, and one on few. The machine changes from second to
/// second, so 15 short pairs say more than five long ones.
const PAIRS: usize = 15;
/// Time of each of these loads.
const PAIR_LOAD: Duration = Duration::from_secs(1);

const MIB: f64 = (1 << 20) as f64;

/// Measures everything. `counters` are the numbers of counters in rising order. `before` is the build
/// before, of which only the tails are measured.
pub(crate) fn measure(
    folder: &Path,
    rules: &Path,
    before: Option<&Path>,
    open: &Plan,
    counters: &[u64],
    idle: Duration,
) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    at_rest(rules, idle, &mut figures)?;
    start(folder, &mut figures)?;
    for count in counters {
        filled(rules, before, open, *count, &mut figures)?;
    }
    Ok(figures)
}

fn at_rest(rules: &Path, idle: Duration, figures: &mut Figures) -> anyhow::Result<()> {
    let server = Server::weir(rules, &[])?;
    // Work after the start is done by then.
    thread::sleep(Duration::from_secs(1));
    let before = server.scheduled()?;
    thread::sleep(idle);
    let used = server.scheduled()? - before;
    figures.set("idle: CPU, %", 100.0 * used / idle.as_secs_f64());
    figures.set("idle: resident, MiB", server.resident() as f64 / MIB);
    Ok(())
}

/// Time from the start of the process to its first response, with 10 000 rules.
fn start(folder: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let mut text = "domain: bench\ndescriptors:\n".to_owned();
    for number in 0..10_000 {
        writeln!(
            text,
            "  - {{ key: path, value: /v1/product/{number}, \
             rate_limit: {{ unit: second, requests_per_unit: 100 }} }}"
        )?;
    }
    let rules = folder.join("ten-thousand.yaml");
    std::fs::write(&rules, text)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let entry = Entry { key: "path".into(), value: "/v1/product/9999".into() };
    let request = RateLimitRequest {
        domain: "bench".into(),
        descriptors: vec![RateLimitDescriptor { entries: vec![entry], ..Default::default() }],
        hits_addend: 0,
    };
    let mut all = Vec::new();
    for _ in 0..11 {
        let (answered, millis) = timed(|| -> anyhow::Result<Server> {
            let server = Server::weir(&rules, &[])?;
            let to = format!("http://{}", server.address);
            runtime.block_on(async {
                let mut client = RateLimitServiceClient::connect(to).await?;
                let answer = client.should_rate_limit(request.clone()).await?.into_inner();
                ensure!(answer.statuses[0].current_limit.is_some(), "the last rule decides");
                Ok(server)
            })
        });
        let server = answered?;
        all.push(millis);
        figures.set("10 000 rules: resident, MiB", server.resident() as f64 / MIB);
    }
    figures.set("10 000 rules: start to first answer, ms", median(&mut all));
    Ok(())
}

/// Memory of `count` counters above an idle server, and the latency with them.
fn filled(
    rules: &Path,
    before: Option<&Path>,
    open: &Plan,
    count: u64,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let filled = Filled::start(None, rules, open, count)?;
    let bytes = filled.bytes;
    let millions = count as f64 / 1e6;
    figures.set(&format!("{millions} M counters: above idle, MB"), bytes as f64 / 1e6);
    figures.set(&format!("{millions} M counters: bytes each"), bytes as f64 / count as f64);
    filled.add_tails(open, &tail_figure(millions, BUILDS[0]), figures)?;
    // Its memory is not in use while the other build is measured.
    drop(filled);
    if let Some(before) = before {
        let filled = Filled::start(Some(before), rules, open, count)?;
        filled.add_tails(open, &tail_figure(millions, BUILDS[1]), figures)?;
    }
    Ok(())
}

/// This build, and the build before, in the names of figures.
const BUILDS: [&str; 2] = ["", ", the build before"];

/// The name of the figure: p99 with this many million counters, of that with 1 000.
fn tail_figure(millions: f64, build: &str) -> String {
    format!("{millions} M counters{build}: p99, of that of 1 000")
}

/// The p99 with many counters, of that with 1 000, with the figures of this build and of the build before.
pub(crate) fn builds() -> [(String, [String; 2]); 2] {
    [(1.0, "1 000 000"), (10.0, "10 000 000")].map(|(millions, counters)| {
        let what = format!("{counters} counters: p99, of that of 1 000");
        (what, BUILDS.map(|build| tail_figure(millions, build)))
    })
}

/// The rows of the table of tails, without the builds and counters that were not measured.
pub(crate) fn tails(figures: &Figures) -> String {
    let mut rows = String::new();
    for (millions, counters) in [(1.0, "1 000 000"), (10.0, "10 000 000")] {
        for build in BUILDS {
            if let Some(ratio) = figures.get(&tail_figure(millions, build)) {
                rows += &format!("| {counters}{build} | {} |\n", short(ratio));
            }
        }
    }
    rows
}

/// A server with many counters, and one with few.
struct Filled {
    server: Server,
    small: Server,
    /// Different values of `{n}`, each with [`PER_CALL`] counters.
    keys: u64,
    /// Memory of the counters.
    bytes: Bytes,
}

impl Filled {
    /// Starts this build, or the build `before`, and creates `count` counters.
    fn start(
        before: Option<&Path>,
        rules: &Path,
        open: &Plan,
        count: u64,
    ) -> anyhow::Result<Filled> {
        let start = |settings: &[(&str, &str)]| match before {
            Some(before) => Server::program(before, rules, settings),
            None => Server::weir(rules, settings),
        };
        let max = (2 * count).to_string();
        let server = start(&[("WEIR__STORE__MAX_COUNTERS", &max)])?;
        // Exclude connections and their buffers.
        let few = Plan { duration: Duration::from_secs(1), ..open.clone() };
        server.load(&Plan { keys: 1000, ..few })?;
        let idle = server.resident();
        let keys = count / PER_CALL;
        let mut filled = 0;
        while filled < keys {
            let next = Plan {
                descriptors: (0..PER_CALL).map(descriptor).collect(),
                keys,
                distribution: KeyDistribution::Sequential { from: filled },
                threads: Some(1),
                pacing: Pacing::Closed,
                streams: None,
                duration: Duration::from_secs(2),
                ..open.clone()
            };
            // Calls that ended after the run are repeated, so that none is left out.
            filled += server.load(&next)?.0.decided;
        }
        let bytes = server.resident().saturating_sub(idle);
        Ok(Filled { server, small: start(&[])?, keys, bytes })
    }

    /// Adds the p99 with all counters, divided by that with 1 000 of them, for each pair of loads.
    fn add_tails(&self, open: &Plan, figure: &str, figures: &mut Figures) -> anyhow::Result<()> {
        // A tenth of the existing counters.
        let descriptors = vec![descriptor(3)];
        let p99 = |server: &Server, keys| -> anyhow::Result<f64> {
            let (descriptors, duration) = (descriptors.clone(), PAIR_LOAD);
            let plan = Plan { keys, descriptors, duration, ..open.clone() };
            Ok(server.load(&plan)?.0.latency_us.p99)
        };
        let few = || p99(&self.small, 1000);
        let all = || p99(&self.server, self.keys);
        for pair in 0..PAIRS {
            // Both are first equally often, so that neither follows the other's load.
            let (of_few, of_all) = if pair % 2 == 0 {
                let of_few = few()?;
                (of_few, all()?)
            } else {
                let of_all = all()?;
                (few()?, of_all)
            };
            figures.add(figure, of_all / of_few);
        }
        Ok(())
    }
}

/// One of the [`PER_CALL`] descriptors of a call that fills the store.
fn descriptor(tenth: u64) -> Vec<(String, String)> {
    let user = ("user".to_owned(), format!("{tenth}u{{n}}"));
    vec![("tenant".to_owned(), "acme".to_owned()), user]
}
