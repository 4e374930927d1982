//! The report of a run: its figures, and warnings where they are not reliable.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::plan::{KeyDistribution, Pacing, Plan};
use crate::stats::Stats;

/// Above this share of its threads' time the generator may be the bottleneck.
const BUSY_SHARE: f64 = 0.9;

/// Above this share of late calls the latencies include delays of the generator.
const LATE_SHARE: f64 = 0.01;

/// Above this share of failed calls the latencies of the others are too low to be reliable.
const FAILED_SHARE: f64 = 0.001;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// `closed` or `open`.
    pub r#loop: &'static str,
    /// Planned calls per second; open loop only.
    pub rate: Option<f64>,
    /// Connections.
    pub connections: usize,
    /// Most calls in flight on one connection.
    pub streams: usize,
    /// Distinct keys.
    pub keys: u64,
    /// Exponent of Zipf's law; `None` for other distributions.
    pub zipf: Option<f64>,
    /// Measured time, in seconds.
    pub seconds: f64,
    /// Calls that were decided.
    pub decided: u64,
    /// Decided calls per second.
    pub per_second: f64,
    /// Decisions with code OK.
    pub ok: u64,
    /// Decisions with code OVER_LIMIT.
    pub over_limit: u64,
    /// Decisions with any other code.
    pub unknown: u64,
    /// Decisions by a fallback; `None` without the header of `response.decision_header`.
    pub by_fallback: Option<u64>,
    /// Calls without a decision.
    pub failed: u64,
    /// Calls without a decision, by reason.
    pub errors: BTreeMap<String, u64>,
    /// Latencies of decided calls, from the instant they were due (open loop) or sent (closed
    /// loop).
    pub latency_us: Latency,
    /// Time from the instant a call was due to the instant it was sent; open loop only.
    pub lateness_us: Option<Latency>,
    /// Calls sent more than 1 ms late; open loop only.
    pub late: Option<u64>,
    /// The CPU use of the generator.
    pub generator: Generator,
    /// Reasons why the figures are not reliable.
    pub warnings: Vec<String>,
}

/// A distribution, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p99_9: f64,
    /// The 99.99th percentile.
    pub p99_99: f64,
    /// The maximum.
    pub max: f64,
    /// The average.
    pub mean: f64,
}

/// The CPU use of the generator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Generator {
    /// Threads of the generator.
    pub threads: usize,
    /// CPU time during the measured time, in seconds; `None` without `/proc`.
    pub cpu_seconds: Option<f64>,
    /// CPU time as a share of the time of the generator's threads.
    pub cpu_share: Option<f64>,
}

impl Report {
    pub(crate) fn new(plan: &Plan, stats: &Stats, cpu: Option<Duration>) -> Report {
        // A run can be cancelled before the measured time begins.
        let seconds = plan.duration.as_secs_f64().max(1e-9);
        let decided = stats.ok + stats.over_limit + stats.unknown;
        let threads = plan.threads();
        let cpu_seconds = cpu.map(|cpu| cpu.as_secs_f64());
        let cpu_share = cpu_seconds.map(|cpu| cpu / seconds / threads as f64);
        let (open, rate) = match plan.pacing {
            Pacing::Closed => (false, None),
            Pacing::Open(rate) => (true, Some(rate)),
        };
        let mut report = Report {
            r#loop: if open { "open" } else { "closed" },
            rate,
            connections: plan.connections,
            streams: plan.streams(),
            keys: plan.keys,
            zipf: match plan.distribution {
                KeyDistribution::Uniform | KeyDistribution::Sequential { .. } => None,
                KeyDistribution::Zipf(power) => Some(power),
            },
            seconds,
            decided,
            per_second: decided as f64 / seconds,
            ok: stats.ok,
            over_limit: stats.over_limit,
            unknown: stats.unknown,
            by_fallback: (stats.with_decision_header > 0).then_some(stats.by_fallback),
            failed: stats.errors.values().sum(),
            errors: stats.errors.clone(),
            latency_us: Latency::new(&stats.latency),
            lateness_us: open.then(|| Latency::new(&stats.lateness)),
            late: open.then_some(stats.late),
            generator: Generator { threads, cpu_seconds, cpu_share },
            warnings: Vec::new(),
        };
        report.warnings = report.warnings();
        report
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.decided == 0 {
            warnings.push("no call was decided".into());
        }
        if let Some(share) = self.generator.cpu_share.filter(|share| *share > BUSY_SHARE) {
            let percent = 100.0 * share;
            warnings.push(format!(
                "the generator was busy for {percent:.0} % of its threads' time and may be the \
                 bottleneck; use more --threads or another machine"
            ));
        }
        let sent = self.decided + self.failed;
        if self.decided > 0 && self.failed as f64 > FAILED_SHARE * sent as f64 {
            warnings.push(format!(
                "{} of {sent} calls failed; the latencies are those of the others",
                self.failed
            ));
        }
        if let Some(late) = self.late.filter(|late| *late as f64 > LATE_SHARE * sent as f64) {
            warnings.push(format!(
                "{late} of {sent} calls were sent more than 1 ms late; the connections had no free \
                 stream, or the generator had no CPU"
            ));
        }
        warnings
    }
}

impl Latency {
    pub(crate) fn new(nanos: &Histogram<u64>) -> Latency {
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        let at = |quantile| micros(nanos.value_at_quantile(quantile));
        Latency {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: micros(nanos.max()),
            mean: nanos.mean() / 1000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::{CallOutcome, DecisionSummary, OverallCode};

    fn plan(pacing: Pacing) -> Plan {
        let descriptors = vec![vec![("user".into(), "{n}".into())]];
        Plan { pacing, threads: Some(2), ..Plan::new("d", descriptors, 10) }
    }

    #[test]
    fn unreliable_figures_come_with_warnings() {
        let ok = CallOutcome::Decided(DecisionSummary { code: OverallCode::Ok, by_fallback: None });
        let mut stats = Stats::new();
        for micros in 1..=100 {
            stats.record(ok.clone(), Duration::from_micros(micros));
            stats.record_lateness(Duration::from_micros(if micros > 98 { 2_000 } else { 10 }));
        }
        let quiet = Report::new(&plan(Pacing::Closed), &stats, Some(Duration::from_secs(10)));
        assert_eq!(quiet.warnings, Vec::<String>::new());
        assert_eq!((quiet.decided, quiet.per_second, quiet.late), (100, 10.0, None));
        assert_eq!(quiet.generator.cpu_share, Some(0.5));
        assert!((quiet.latency_us.p50 - 50.0).abs() < 0.1, "{:?}", quiet.latency_us);
        assert!((quiet.latency_us.max - 100.0).abs() < 0.1, "{:?}", quiet.latency_us);
        let busy = Report::new(&plan(Pacing::Open(10.0)), &stats, Some(Duration::from_secs(19)));
        let [generator, late] = &busy.warnings[..] else { panic!("{:?}", busy.warnings) };
        assert!(generator.contains("--threads") && late.starts_with("2 of 100 calls"));
        let silent = Report::new(&plan(Pacing::Closed), &Stats::new(), None);
        assert_eq!(silent.warnings, ["no call was decided"]);
    }
}
