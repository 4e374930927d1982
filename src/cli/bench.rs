//! `weir bench`: puts load on a running service and prints the report.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;

use weir_bench::{
    CancelSignal, KeyDistribution, Latency, Pacing, Plan, Progress, Report, RunError,
};

use super::{ParsedDescriptor, exit, say};

/// Default number of distinct keys when a value contains `{n}`.
const KEYS_DEFAULT: u64 = 100_000;

/// `{n}` for a help text. clap replaces `{n}` by a newline, so a reset of the style separates the
/// characters. Terminals show nothing for it, and clap removes it from other output.
macro_rules! placeholder {
    () => {
        "{\u{1b}[0mn}"
    };
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Address of the service's gRPC listener.
    #[arg(long, default_value = "127.0.0.1:8081")]
    addr: String,
    /// Namespace of the rules.
    #[arg(long)]
    domain: String,
    // The number of the key replaces `{n}` in a value.
    #[arg(required = true, value_name = "KEY=VALUE,...", help = concat!(
        "The descriptors of each call, as key=value,key=value; the number of the key replaces ",
        placeholder!(),
        " in a value",
    ))]
    descriptors: Vec<ParsedDescriptor>,
    #[arg(long, help = concat!(
        "Distinct keys [default: 100000 if a value contains ", placeholder!(), ", else 1]",
    ))]
    keys: Option<u64>,
    /// Distribute calls over the keys by Zipf's law with this exponent, for example 1
    /// [default: uniform].
    #[arg(long, value_name = "EXPONENT")]
    zipf: Option<f64>,
    /// Open loop: send this many calls per second, whether or not earlier ones are answered
    /// [default: closed loop, each stream sends its next call when the previous one is answered].
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// HTTP/2 connections.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Most calls in flight on one connection [default: 32, or 1000 with --rate].
    #[arg(long)]
    streams: Option<usize>,
    /// Seconds of measurement.
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    duration: Duration,
    /// Seconds of warm-up, in which calls are not measured.
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    /// Seconds to wait for the last responses.
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    timeout: Duration,
    /// Hits per call; 0 reads the counters without adding to them.
    #[arg(long)]
    hits: Option<u64>,
    /// Threads of the load generator [default: half of the cores].
    #[arg(long)]
    threads: Option<usize>,
    /// Seed of the random order of keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

impl BenchArgs {
    fn plan(&self) -> Plan {
        let descriptors: Vec<_> = self.descriptors.iter().map(|one| one.0.clone()).collect();
        let keys = if Plan::has_placeholder(&descriptors) { KEYS_DEFAULT } else { 1 };
        Plan {
            hits: self.hits,
            distribution: self.zipf.map_or(KeyDistribution::Uniform, KeyDistribution::Zipf),
            pacing: self.rate.map_or(Pacing::Closed, Pacing::Open),
            connections: self.connections,
            streams: self.streams,
            warmup: self.warmup,
            duration: self.duration,
            timeout: self.timeout,
            threads: self.threads,
            seed: self.seed,
            ..Plan::new(&self.domain, descriptors, self.keys.unwrap_or(keys))
        }
    }
}

/// A signal that cancels the run on Ctrl-C.
fn cancel_on_interrupt() -> anyhow::Result<CancelSignal> {
    let (canceller, cancel) = CancelSignal::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listen = async move {
        // If signals are unavailable, the run lasts until its planned end.
        if tokio::signal::ctrl_c().await.is_ok() {
            canceller.cancel();
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(listen))?;
    Ok(cancel)
}

/// Runs the benchmark and returns the exit code: 0 if every call was decided, 1 if some were not,
/// 69 if no service answers such calls.
pub(super) fn run(args: &BenchArgs) -> anyhow::Result<u8> {
    let plan = args.plan();
    let total = (plan.warmup + plan.duration).as_secs_f64();
    let shows = std::io::stderr().is_terminal();
    let cancel = cancel_on_interrupt()?;
    let report = weir_bench::run(&plan, &args.addr, &cancel, |progress| {
        if shows {
            show(progress, total);
        }
    });
    let report = match report {
        Ok(report) => report,
        Err(RunError::Plan(problem)) => anyhow::bail!(problem),
        Err(error) => {
            say(format_args!("weir: {error}"));
            return Ok(exit::UNAVAILABLE);
        }
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(out, "{}", summary(&report))?;
        for warning in &report.warnings {
            say(format_args!("warning: {warning}"));
        }
    }
    Ok(if report.failed > 0 || report.decided == 0 { exit::NEGATIVE } else { 0 })
}

/// Overwrites the progress line, and erases it at the end.
fn show(progress: Progress, total: f64) {
    let mut error = std::io::stderr().lock();
    // A closed terminal does not end the run.
    let _ = match progress {
        Progress::Started => Ok(()),
        Progress::Running { elapsed, answered } => {
            let seconds = elapsed.as_secs_f64();
            let rate = answered as f64 / seconds.max(1e-9);
            write!(error, "\r{seconds:5.1} of {total} s, {answered} answers, {rate:.0} per second ")
        }
        Progress::Ended => write!(error, "\r\x1b[K"),
    };
}

fn summary(report: &Report) -> String {
    let Report { connections, streams, keys, seconds, per_second, .. } = report;
    let how = report
        .rate
        .map_or("closed loop".to_owned(), |rate| format!("open loop, {rate} calls per second"));
    let spread = report.zipf.map_or("uniform".to_owned(), |power| format!("Zipf {power}"));
    let mut text = format!(
        "{how}: {connections} connections of at most {streams} streams, {keys} keys, {spread}, \
         {seconds} s\n"
    );
    let mut count = |name: &str, calls: u64| text += &format!("  {name:<22} {calls:>12}\n");
    count("decided", report.decided);
    count("  OK", report.ok);
    count("  OVER_LIMIT", report.over_limit);
    if report.unknown > 0 {
        count("  UNKNOWN", report.unknown);
    }
    if let Some(by_fallback) = report.by_fallback {
        count("  by a fallback", by_fallback);
    }
    count("failed", report.failed);
    for (error, calls) in &report.errors {
        count(&format!("  {error}"), *calls);
    }
    text += &format!("  {:<22} {per_second:>12.1}\n", "decided per second");
    text += &latency("latency", &report.latency_us);
    if let Some(lateness) = &report.lateness_us {
        text += &latency("sent after it was due", lateness);
    }
    let generator = &report.generator;
    if let Some((cpu, share)) = generator.cpu_seconds.zip(generator.cpu_share) {
        text += &format!(
            "  generator: {cpu:.2} s of CPU, {:.0} % of what its threads ({}) can use\n",
            100.0 * share,
            generator.threads
        );
    }
    text
}

fn latency(name: &str, of: &Latency) -> String {
    let points =
        [("p50", of.p50), ("p90", of.p90), ("p99", of.p99), ("p99.9", of.p99_9), ("max", of.max)];
    let points = points.map(|(point, micros)| format!("{point} {}", time(micros)));
    format!("  {name}: {}\n", points.join(", "))
}

/// A duration in us, ms or s.
fn time(micros: f64) -> String {
    match micros {
        ..1_000.0 => format!("{micros:.0} us"),
        ..1_000_000.0 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_fitting_units() {
        assert_eq!(time(0.4), "0 us");
        assert_eq!(time(999.0), "999 us");
        assert_eq!(time(1_500.0), "1.50 ms");
        assert_eq!(time(2_500_000.0), "2.50 s");
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert!(seconds("-1").is_err() && seconds("1s").is_err());
    }
}
