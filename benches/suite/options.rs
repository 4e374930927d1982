//! The options of the suite.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Measures weir and writes docs/design/performance.md.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Runs this server instead: the baseline, h2 alone, or weir's HTTP/2 server alone.
    #[arg(value_parser = ["baseline", "h2", "weir-http2"])]
    pub(crate) program: Option<String>,
    /// Rounds; medians are taken over them.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    /// Seconds of each load of a round.
    #[arg(long, default_value = "3", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Measure the memory of up to this many million counters: 1 or 10.
    #[arg(long, default_value = "10", value_parser = ["1", "10"])]
    pub(crate) millions: String,
    /// Skip Redis.
    #[arg(long)]
    pub(crate) without_redis: bool,
    /// Another build of weir, measured in the same rounds.
    #[arg(long, requires = "before_commit")]
    pub(crate) before: Option<PathBuf>,
    /// The commit of that build, for the page.
    #[arg(long, value_name = "COMMIT")]
    pub(crate) before_commit: Option<String>,
    /// A build of weir with a profile (`make pgo`), measured in the same rounds.
    #[arg(long)]
    pub(crate) profiled: Option<PathBuf>,
    /// A build of envoyproxy/ratelimit, measured saturated, in the small fleets and through Envoy.
    #[arg(long, value_name = "PATH")]
    pub(crate) envoy_ratelimit: Option<PathBuf>,
    /// The longest turn of a core thread in milliseconds, which `make pauses` measures.
    #[arg(long, value_name = "X", requires = "pauses_commit")]
    pub(crate) longest_pause_ms: Option<f64>,
    /// The commit that `make pauses` measured, for the page.
    #[arg(long, value_name = "COMMIT", requires = "longest_pause_ms")]
    pub(crate) pauses_commit: Option<String>,
    /// The CSV of the run of the page. The figures of an option `--only-...` replace its own, and the page is
    /// written, with their commit if it is another one.
    #[arg(long, value_name = "FILE")]
    pub(crate) earlier: Option<PathBuf>,
    /// The CSV of a run on another machine. The page shows its targets beside those of this run.
    #[arg(long, value_name = "FILE")]
    pub(crate) other_machine: Option<PathBuf>,
    /// Measures nothing. Writes the page again from the figures of `--earlier`, after its text was changed. The
    /// commits and the machine stay those of the page.
    #[arg(long, requires = "earlier")]
    pub(crate) only_page: bool,
    /// Only the rounds of the servers. Writes nothing without `--earlier`.
    #[arg(long)]
    pub(crate) only_rounds: bool,
    /// Only the faults. Writes nothing without `--earlier`.
    #[arg(long)]
    pub(crate) only_faults: bool,
    /// Only the small fleets. Writes nothing without `--earlier`.
    #[arg(long, conflicts_with = "without_redis")]
    pub(crate) only_fleets: bool,
    /// Only the batches of weir on Redis. Writes nothing without `--earlier`.
    #[arg(long, conflicts_with = "without_redis")]
    pub(crate) only_batches: bool,
    /// Only requests through Envoy. Writes nothing without `--earlier`.
    #[arg(long)]
    pub(crate) only_envoy: bool,
    /// Only the start and the reload of many rules. Writes nothing without `--earlier`.
    #[arg(long)]
    pub(crate) only_many_rules: bool,
    /// Only what weir takes at rest, at its start and with many counters. Writes nothing without `--earlier`.
    #[arg(long)]
    pub(crate) only_resources: bool,
    /// Only decisions inside the process. Writes nothing without `--earlier`.
    #[arg(long)]
    pub(crate) only_decisions: bool,
    /// The folder of the page, with a folder `performance` beside it.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/design"))]
    pub(crate) docs: PathBuf,
    /// `cargo bench` adds this.
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "not a number")?;
    let length = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if length.is_zero() { Err("write more than 0".into()) } else { Ok(length) }
}
