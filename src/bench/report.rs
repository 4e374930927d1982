//! The report of a run: figures, and what makes them doubtful.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::plan::{Load, Plan, Spread};
use super::tally::Tally;

/// A share of its threads' time beyond which the generator itself may be what is slow.
const BUSY: f64 = 0.9;

/// The share of late calls beyond which latencies are not the service's alone.
const LATE_SHARE: f64 = 0.01;

/// The share of calls without a decision beyond which the latencies of the others flatter.
const FAILED_SHARE: f64 = 0.001;

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// `closed` or `open`.
    pub r#loop: &'static str,
    /// Calls per second that were asked for; open loop only.
    pub rate: Option<f64>,
    /// Connections.
    pub connections: usize,
    /// Calls in flight on one connection at most.
    pub streams: usize,
    /// Distinct keys.
    pub keys: u64,
    /// Exponent of Zipf's law; none: uniform.
    pub zipf: Option<f64>,
    /// Measured time.
    pub seconds: f64,
    /// Calls that were decided.
    pub decided: u64,
    /// Of those, per second.
    pub per_second: f64,
    /// Decisions that let the request pass.
    pub ok: u64,
    /// Decisions that do not.
    pub over_limit: u64,
    /// Decisions with neither code.
    pub unknown: u64,
    /// Decisions by a fallback. None where answers do not tell (`answer.decision_header`).
    pub by_fallback: Option<u64>,
    /// Calls without a decision.
    pub failed: u64,
    /// Those by what happened instead.
    pub errors: BTreeMap<String, u64>,
    /// Of decided calls, from the instant they were due (open loop) or sent (closed loop).
    pub latency_us: Latency,
    /// How long after they were due calls were sent; open loop only.
    pub lateness_us: Option<Latency>,
    /// Calls sent more than 1 ms late; open loop only.
    pub late: Option<u64>,
    /// The generator itself.
    pub generator: Generator,
    /// Why not to trust these figures, if there is a reason.
    pub doubts: Vec<String>,
}

/// A distribution, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Half of the calls took no longer.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p99_9: f64,
    /// 99.99 %.
    pub p99_99: f64,
    /// The longest.
    pub max: f64,
    /// The average.
    pub mean: f64,
}

/// What the generator itself used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Generator {
    /// Its threads.
    pub threads: usize,
    /// CPU time during the measured time. None where the system does not tell.
    pub cpu_seconds: Option<f64>,
    /// That, of what its threads could have used at most.
    pub cpu_share: Option<f64>,
}

impl Report {
    pub(super) fn of(plan: &Plan, tally: &Tally, cpu: Option<Duration>) -> Report {
        // A run may be stopped before anything is measured.
        let seconds = plan.duration.as_secs_f64().max(1e-9);
        let decided = tally.ok + tally.over_limit + tally.unknown;
        let threads = plan.threads();
        let cpu_seconds = cpu.map(|cpu| cpu.as_secs_f64());
        let cpu_share = cpu_seconds.map(|cpu| cpu / seconds / threads as f64);
        let (open, rate) = match plan.load {
            Load::Closed => (false, None),
            Load::Open(rate) => (true, Some(rate)),
        };
        let mut report = Report {
            r#loop: if open { "open" } else { "closed" },
            rate,
            connections: plan.connections,
            streams: plan.streams(),
            keys: plan.keys,
            zipf: match plan.spread {
                Spread::Uniform | Spread::InTurn { .. } => None,
                Spread::Zipf(power) => Some(power),
            },
            seconds,
            decided,
            per_second: decided as f64 / seconds,
            ok: tally.ok,
            over_limit: tally.over_limit,
            unknown: tally.unknown,
            by_fallback: (tally.telling > 0).then_some(tally.by_fallback),
            failed: tally.errors.values().sum(),
            errors: tally.errors.clone(),
            latency_us: Latency::of(&tally.latency),
            lateness_us: open.then(|| Latency::of(&tally.lateness)),
            late: open.then_some(tally.late),
            generator: Generator { threads, cpu_seconds, cpu_share },
            doubts: Vec::new(),
        };
        report.doubts = report.doubts();
        report
    }

    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.decided == 0 {
            doubts.push("no call was decided".into());
        }
        if let Some(share) = self.generator.cpu_share.filter(|share| *share > BUSY) {
            let percent = 100.0 * share;
            doubts.push(format!(
                "the generator was busy {percent:.0} % of its threads' time and may be what is \
                 slow: give it more --threads, or another machine"
            ));
        }
        let sent = self.decided + self.failed;
        if self.decided > 0 && self.failed as f64 > FAILED_SHARE * sent as f64 {
            doubts.push(format!(
                "{} of {sent} calls came to nothing: latencies are of the others only",
                self.failed
            ));
        }
        if let Some(late) = self.late.filter(|late| *late as f64 > LATE_SHARE * sent as f64) {
            doubts.push(format!(
                "{late} of {sent} calls were sent more than 1 ms late: the service had no stream \
                 free for them, or the generator no CPU"
            ));
        }
        doubts
    }
}

impl Latency {
    fn of(nanos: &Histogram<u64>) -> Latency {
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
    use crate::bench::answer::{Code, Outcome, Said};

    fn plan(load: Load) -> Plan {
        let descriptors = vec![vec![("user".into(), "{n}".into())]];
        Plan { load, threads: Some(2), ..Plan::new("d", descriptors, 10) }
    }

    #[test]
    fn a_report_doubts_a_busy_generator_late_calls_and_silence() {
        let ok = Outcome::Decided(Said { code: Code::Ok, by_fallback: None });
        let mut tally = Tally::new();
        for micros in 1..=100 {
            tally.count(ok.clone(), Duration::from_micros(micros));
            tally.sent(Duration::from_micros(if micros > 98 { 2_000 } else { 10 }));
        }
        let quiet = Report::of(&plan(Load::Closed), &tally, Some(Duration::from_secs(10)));
        assert_eq!(quiet.doubts, Vec::<String>::new());
        assert_eq!((quiet.decided, quiet.per_second, quiet.late), (100, 10.0, None));
        assert_eq!(quiet.generator.cpu_share, Some(0.5));
        assert!((quiet.latency_us.p50 - 50.0).abs() < 0.1, "{:?}", quiet.latency_us);
        assert!((quiet.latency_us.max - 100.0).abs() < 0.1, "{:?}", quiet.latency_us);
        let busy = Report::of(&plan(Load::Open(10.0)), &tally, Some(Duration::from_secs(19)));
        let [generator, late] = &busy.doubts[..] else { panic!("{:?}", busy.doubts) };
        assert!(generator.contains("--threads") && late.starts_with("2 of 100 calls"));
        let silent = Report::of(&plan(Load::Closed), &Tally::new(), None);
        assert_eq!(silent.doubts, ["no call was decided"]);
    }
}
