//! The cost of the engine alone: CPU time per report, CPU time of the driver, and memory.

use weir::time::SystemClock;

use super::fleet::{Demand, Fleet, RoundFigures};
use super::reports::Shape;
use crate::support::resident::resident_kib;

/// The head of the rows of [`row`].
pub(crate) const HEAD: &str = "\
| Envoys and buckets | CPU per report | CPU per usage | CPU per new bucket | \
messages, CPU per usage | driver, CPU per second | with changing demand | settlements per second | \
changed shares per second, steady / changing | memory per bucket |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

/// Memory that a bucket takes at most, in bytes, with a reserve: the measurement is left out if the
/// machine has less.
const BUCKET_BYTES_MAX: u64 = 4096;

/// From when on a late report is worth a warning, in seconds.
const LATE: f64 = 0.5;

/// Measures `shape` in this process, which must have measured nothing before. Returns a row of the table.
pub(crate) fn row(shape: Shape, rounds: usize) -> anyhow::Result<String> {
    let mut fleet = Fleet::new(shape, SystemClock::new(), None)?;
    let before = resident_kib("self");
    fleet.open()?;
    let first = fleet.run(1, Demand::Steady)?;
    // The shares settle.
    fleet.run(1, Demand::Steady)?;
    let steady = fleet.run(rounds, Demand::Steady)?;
    let memory = (resident_kib("self").saturating_sub(before) * 1024) as f64;
    let changing = fleet.run(rounds, Demand::Changing)?;
    fleet.end()?;
    for (what, of) in [("first", &first), ("steady", &steady), ("changing", &changing)] {
        warn_if_late(&format!("{shape}, {what} reports"), of);
    }
    let limits = shape.limits();
    Ok(format!(
        "| {} Envoys with {} buckets each, {limits} | {:.1} us | {:.2} us | {:.2} us | {:.2} us | \
         {:.1} ms | {:.1} ms | {:.0} | {:.0} / {:.0} | {:.0} bytes |",
        shape.streams,
        shape.buckets,
        1e6 * steady.report_cpu / steady.reports,
        1e6 * steady.report_cpu / steady.usages,
        1e6 * first.report_cpu / first.usages,
        1e6 * steady.message_cpu / steady.usages,
        1e3 * steady.driver_cpu / steady.seconds,
        1e3 * changing.driver_cpu / changing.seconds,
        steady.settlements / steady.seconds,
        steady.moves / steady.seconds,
        changing.moves / changing.seconds,
        memory / shape.total() as f64,
    ))
}

/// The memory of a stream without buckets, in bytes, of `streams` streams.
pub(crate) fn stream_bytes(streams: usize) -> anyhow::Result<f64> {
    let shape = Shape { streams, buckets: 1, own: false };
    let mut fleet = Fleet::new(shape, SystemClock::new(), None)?;
    let before = resident_kib("self");
    fleet.open()?;
    Ok((resident_kib("self").saturating_sub(before) * 1024) as f64 / streams as f64)
}

/// Whether the machine has the memory for `shape`.
pub(crate) fn fits(shape: Shape) -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.is_none_or(|kib| shape.total() as u64 * BUCKET_BYTES_MAX / 1024 < kib)
}

/// Warns if reports could not be made in time: then the figures per second are those of a busy thread.
pub(crate) fn warn_if_late(what: &str, figures: &RoundFigures) {
    if figures.late > LATE {
        let RoundFigures { late, seconds, .. } = figures;
        eprintln!("{what}: up to {late:.1} s late, and {seconds:.0} s in all");
    }
}
