//! The cost of the real binary: streams over HTTP/2, and calls of ShouldRateLimit beside them.

use std::thread;
use std::time::Duration;

use anyhow::ensure;
use weir_bench::{CancelSignal, Pacing, Plan, Report, run};

use super::cpu;
use super::envoys::Envoys;
use super::reports::{PERIOD, Shape};
use crate::support::wait::until;
use crate::support::weir::Weir;

/// The head of the rows of [`rows`].
pub(crate) const HEAD: &str = "\
| figure | value |
| --- | --- |";

/// Rules of the calls of ShouldRateLimit. Their limit is not reached.
const CALL_RULES: &str = "\
domain: calls
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 100000000 }
";

/// Counters of the calls.
const KEYS: u64 = 10_000;

/// Measures a weir with the Envoys of `shape`, each time for `length`, and with `rate` calls per second.
/// Returns the rows of a table.
pub(crate) fn rows(shape: Shape, length: Duration, rate: f64) -> anyhow::Result<Vec<String>> {
    // A process that is not used further: what the load leaves in memory would change the figures below.
    let weir = started(shape);
    let before = load(&weir, rate, length)?;
    drop(weir);

    let mut weir = started(shape);
    let pid = weir.process().pid();
    let idle = cpu::of_process(pid)?;
    thread::sleep(length);
    let idle = cpu::of_process(pid)? - idle;
    let empty = weir.process().resident_kib();

    let envoys = Envoys::start(weir.grpc, shape)?;
    let buckets = shape.total() as u64;
    until("all buckets", || weir.metric("weir_rlqs_buckets", &[]) == buckets);
    // A second report of each Envoy, with which shares follow demand.
    thread::sleep(PERIOD);
    let (used, usages, actions) = (cpu::of_process(pid)?, envoys.usages(), envoys.actions());
    thread::sleep(length);
    let used = cpu::of_process(pid)? - used;
    let (usages, actions) = (envoys.usages() - usages, envoys.actions() - actions);
    let full = weir.process().resident_kib();
    let during = load(&weir, rate, length)?;
    envoys.end()?;
    let after = load(&weir, rate, length)?;
    let exceeded = weir.metric("weir_rlqs_violations_total", &[]);
    ensure!(exceeded == 0, "{exceeded} settlements exceeded a quota");
    ensure!(usages > 0 && actions > 0, "{usages} usages and {actions} actions");

    let seconds = length.as_secs();
    let mib = |kib: u64| kib as f64 / 1024.0;
    let per_bucket = full.saturating_sub(empty) as f64 * 1024.0 / buckets as f64;
    let mut rows = vec![
        format!("| usages in {seconds} s | {usages} |"),
        format!("| assignments in {seconds} s | {actions} |"),
        format!("| CPU of weir in {seconds} s | {used:.3} s |"),
        format!("| the same without streams | {idle:.3} s |"),
        format!("| CPU of weir per 100 000 usages | {:.2} s |", used / usages as f64 * 1e5),
        format!("| resident memory without streams | {:.1} MiB |", mib(empty)),
        format!("| resident memory with streams | {:.1} MiB |", mib(full)),
        format!("| more per bucket, with connections | {per_bucket:.0} bytes |"),
    ];
    for (when, report) in [("before", before), ("with", during), ("after", after)] {
        let of = report.latency_us;
        let (p50, p99) = (of.p50, of.p99);
        rows.push(format!(
            "| `ShouldRateLimit` {when} the streams, p50 / p99 | {p50:.0} / {p99:.0} us |"
        ));
        for warning in report.warnings {
            eprintln!("calls {when} the streams: {warning}");
        }
    }
    Ok(rows)
}

/// A weir with a memory store that assigns shares at once.
fn started(shape: Shape) -> Weir {
    Weir::setup()
        .rules("quotas.yaml", &shape.rules())
        .rules("calls.yaml", CALL_RULES)
        .env("WEIR__RLQS__RELEARN", "false")
        .start()
}

/// Calls in an open loop.
fn load(weir: &Weir, rate: f64, length: Duration) -> anyhow::Result<Report> {
    let descriptor = vec![("user".to_owned(), "user-{n}".to_owned())];
    let plan = Plan {
        pacing: Pacing::Open(rate),
        connections: 4,
        duration: length,
        ..Plan::new("calls", vec![descriptor], KEYS)
    };
    let (_canceller, cancel) = CancelSignal::new();
    let report = run(&plan, &weir.grpc.to_string(), &cancel, |_| {})?;
    ensure!(report.failed == 0 && report.over_limit == 0, "not all pass: {:?}", report.errors);
    Ok(report)
}
