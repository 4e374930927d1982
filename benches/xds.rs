//! Rules by xDS at size: how long 10 000 resources with 100 000 rules take until they are active, their
//! memory, and the latency of decisions before, while and after they are replaced.
//!
//! A server of rules in this process sends them to a real weir. The load is an open loop. While it runs,
//! one response after the other changes every limit, with a pause between an answer and the next one.
//!
//!   cargo bench --bench xds -- [--resources N] [--rules N] [--rate N] [--seconds N]

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use envoy_types::pb::google::protobuf::Any;
use weir_bench::{CancelSignal, Pacing, Plan, Report, run};

#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../tests/support"]
mod support {
    pub(crate) mod ads;
    pub(crate) mod certificates;
    pub(crate) mod http;
    pub(crate) mod process;
    pub(crate) mod resident;
    pub(crate) mod rls;
    pub(crate) mod wait;
    pub(crate) mod weir;
}

use support::ads::{Ads, NODE, limited, node, rules};
use support::weir::Weir;

/// The unit of an hour.
const HOUR: i32 = 3;

/// A limit that the load does not reach.
const LIMIT: u32 = 100_000_000;

/// Counters of the load.
const KEYS: u64 = 10_000;

/// Pause between an answer and the next response.
const PAUSE: Duration = Duration::from_millis(500);

/// Measures rules by xDS and prints the figures.
#[derive(Debug, Parser)]
struct Options {
    /// Resources of a response, each with its own domain.
    #[arg(long, default_value_t = 10_000)]
    resources: usize,
    /// Rules of a resource.
    #[arg(long, default_value_t = 10)]
    rules: usize,
    /// Calls per second.
    #[arg(long, default_value_t = 2_000.0)]
    rate: f64,
    /// Seconds of each load.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
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
    let all = |limit| resources(options.resources, options.rules, limit);
    let (one, other) = (all(LIMIT), all(LIMIT + 1));
    let bytes: usize = one.iter().map(|resource| resource.value.len()).sum();
    let (count, rules) = (options.resources, options.resources * options.rules);
    println!("{count} resources with {rules} rules, {:.1} MB", bytes as f64 / 1e6);

    let ads = Ads::start();
    ads.set("small", resources(1, options.rules, LIMIT));
    let mut weir = started(&ads);
    ensure!(ads.answer().error_detail.is_none(), "the small response is rejected");
    let address = weir.grpc.to_string();
    let small = weir.process().resident_kib();
    println!("{}", head());
    println!("{}", line("one resource", &load(&options, &address)?));

    let first = swap(&ads, 1, one.clone())?;
    let large = weir.process().resident_kib();
    println!("{}", line("before", &load(&options, &address)?));
    let (during, swaps) = thread::scope(|scope| {
        let running = scope.spawn(|| load(&options, &address));
        let mut swaps = Vec::new();
        while !running.is_finished() {
            let next = if swaps.len() % 2 == 0 { &other } else { &one };
            swaps.push(swap(&ads, 2 + swaps.len(), next.clone())?);
            thread::sleep(PAUSE);
        }
        let during = running.join().expect("the load does not panic")?;
        anyhow::Ok((during, swaps))
    })?;
    println!("{}", line("during", &during));
    println!("{}", line("after", &load(&options, &address)?));

    let (last, peak) = (weir.process().resident_kib(), peak_kib(weir.process().pid())?);
    drop(weir);
    let begin = Instant::now();
    let weir = started(&ads);
    ensure!(ads.answer().error_detail.is_none(), "the response is rejected");
    let cold = begin.elapsed();
    drop(weir);

    println!("\ntime from the response to the answer, after which the rules are active:");
    println!("  first response         {:>8.0} ms", millis(first));
    let mut sorted = swaps.clone();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).context("a response during the load")?;
    let longest = sorted.last().context("a response during the load")?;
    println!("  {:>3} under load, median {:>8.0} ms", swaps.len(), millis(*median));
    println!("                 longest {:>8.0} ms", millis(*longest));
    println!("  from a start of weir   {:>8.0} ms", millis(cold));
    println!("resident memory:");
    for (what, kib) in
        [("one resource", small), ("after the first", large), ("at the end", last), ("peak", peak)]
    {
        println!("  {what:<22} {:>8.1} MiB", kib as f64 / 1024.0);
    }
    Ok(())
}

/// A weir whose rules come from `ads`.
fn started(ads: &Ads) -> Weir {
    Weir::setup()
        .rules_of_settings()
        .env("WEIR__RULES__XDS__SERVER", &ads.address.to_string())
        .env("WEIR__RULES__XDS__NODE_ID", NODE)
        .start()
}

fn domain(resource: usize) -> String {
    format!("default/gateway-{resource}/http")
}

fn route(rule: usize) -> String {
    format!("httproute/default/route-{rule}/rule/0/match/0/host-{rule}_example_com")
}

/// Resources in the form of Envoy Gateway: a domain per listener, and a limit per route for each
/// value of a header.
fn resources(count: usize, rules_each: usize, limit: u32) -> Vec<Any> {
    let rule = |rule| {
        let key = route(rule);
        node(&key, &key, vec![limited("rule-0-match-0", HOUR, limit)])
    };
    let resource = |index| rules(&domain(index), (0..rules_each).map(rule).collect());
    (0..count).map(resource).collect()
}

/// Sends a response, and returns the time until it is accepted. Its rules are active then.
fn swap(ads: &Ads, version: usize, resources: Vec<Any>) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    ads.set(&version.to_string(), resources);
    let answer = ads.answer();
    let took = begin.elapsed();
    ensure!(answer.error_detail.is_none(), "rejected: {:?}", answer.error_detail);
    Ok(took)
}

/// Calls to the first rule of the first resource, which every response has.
fn load(options: &Options, address: &str) -> anyhow::Result<Report> {
    let descriptor =
        vec![(route(0), route(0)), ("rule-0-match-0".to_owned(), "user-{n}".to_owned())];
    let plan = Plan {
        pacing: Pacing::Open(options.rate),
        connections: 4,
        duration: Duration::from_secs(options.seconds),
        ..Plan::new(&domain(0), vec![descriptor], KEYS)
    };
    let (_canceller, cancel) = CancelSignal::new();
    let report = run(&plan, address, &cancel, |_| {})?;
    ensure!(report.failed == 0 && report.over_limit == 0, "not all pass: {:?}", report.errors);
    Ok(report)
}

fn head() -> String {
    format!(
        "{:<14} {:>9} {:>9} {:>9} {:>9} {:>14}",
        "calls", "decided", "p50 us", "p99 us", "p99.9 us", "sent late p99"
    )
}

fn line(phase: &str, report: &Report) -> String {
    let of = &report.latency_us;
    let late = report.lateness_us.as_ref().map_or(0.0, |late| late.p99);
    let decided = report.decided;
    format!(
        "{phase:<14} {decided:>9} {:>9.0} {:>9.0} {:>9.0} {late:>14.0}",
        of.p50, of.p99, of.p99_9
    )
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The highest resident memory of a process so far, in KiB.
fn peak_kib(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let text = line.context("the process has VmHWM")?.trim();
    Ok(text.trim_end_matches(" kB").parse()?)
}
