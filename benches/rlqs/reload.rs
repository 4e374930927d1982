//! The cost of a reload: all buckets get another place, without a report.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::task::LocalSet;
use tokio::time::sleep;
use weir::time::SystemClock;

use super::cpu;
use super::fleet::{Demand, Fleet};
use super::reports::Shape;

/// When a reload that has not ended counts as failed.
const LONGEST: Duration = Duration::from_secs(300);

/// The time between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(10);

/// The head of the rows of [`rows`].
pub(crate) const HEAD: &str = "\
| reload | streams, CPU | driver, CPU | until the last bucket has its message |
| --- | --- | --- | --- |";

/// Measures reloads that give each bucket of `shape` no limit, and a limit again. The streams have one thread.
pub(crate) fn rows(shape: Shape) -> anyhow::Result<Vec<String>> {
    let mut fleet = Fleet::new(shape, SystemClock::new(), None)?;
    fleet.open()?;
    // The shares settle.
    fleet.run(2, Demand::Steady)?;
    let mut rows = Vec::new();
    for (name, rules) in [("to no limit", shape.open_rules()), ("to a limit", shape.rules())] {
        let (streams, driver, seconds) = reload(&mut fleet, &rules)?;
        let total = shape.total();
        rows.push(format!(
            "| {total} buckets of {} streams {name} | {streams:.2} s | {driver:.2} s | \
             {seconds:.1} s |",
            shape.streams
        ));
        // The driver settles what is left.
        std::thread::sleep(Duration::from_secs(5));
    }
    Ok(rows)
}

/// Gives the fleet other rules. Returns the CPU time of its streams and of the driver, and the time until each
/// bucket has one more message, in seconds.
fn reload(fleet: &mut Fleet, rules: &str) -> anyhow::Result<(f64, f64, f64)> {
    let total = fleet.shape().total() as u64;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // What earlier settlements have left.
    runtime.block_on(async { fleet.read_waiting() });
    let (before, driver) = (cpu::of_this_thread()?, fleet.driver_cpu()?);
    let sent = fleet.assignments_sent();
    let begin = Instant::now();
    fleet.reload(rules)?;
    let engine = fleet.engine();
    let streams = fleet.take_streams();
    let tasks = LocalSet::new();
    let streams = tasks.block_on(&runtime, async {
        let (stop, stopped) = tokio::sync::watch::channel(());
        let readers = streams.into_iter().map(|mut stream| {
            let mut stopped = stopped.clone();
            tokio::task::spawn_local(async move {
                loop {
                    tokio::select! {
                        _ = stream.next() => {}
                        _ = stopped.changed() => return stream,
                    }
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        while Fleet::sent_by(&engine) < sent + total && begin.elapsed() < LONGEST {
            sleep(LOOK).await;
        }
        let seconds = begin.elapsed().as_secs_f64();
        drop(stop);
        let mut streams = Vec::with_capacity(readers.len());
        for reader in readers {
            streams.push(reader.await?);
        }
        anyhow::Ok((streams, seconds))
    });
    let (streams, seconds) = streams?;
    fleet.return_streams(streams);
    ensure!(seconds < LONGEST.as_secs_f64(), "the reload took longer than {LONGEST:?}");
    Ok((cpu::of_this_thread()? - before, fleet.driver_cpu()? - driver, seconds))
}
