//! The cost of settlements that Redis records.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use weir::settings::{RedisSettings, RedisUrl};
use weir::store::RedisStore;
use weir::time::SystemClock;

use super::fleet::{Demand, Fleet};
use super::in_process::warn_if_late;
use super::new_buckets::NewBuckets;
use super::reports::Shape;
use crate::support::redis::server::Server;
use crate::support::wait::until;

/// The head of the rows of [`rows`].
pub(crate) const HEAD: &str = "\
| Envoys and buckets | settlements per second | CPU of Redis per settlement | \
CPU of weir per settlement | first share of a new bucket, median / longest |
| --- | --- | --- | --- | --- |";

/// How long the CPU time of Redis without settlements is measured.
const IDLE: Duration = Duration::from_secs(5);

/// Measures `shape` with a Redis of the measurement. Returns a row for steady and one for changing demand.
pub(crate) fn rows(shape: Shape, rounds: usize) -> anyhow::Result<Vec<String>> {
    let server = Server::listening(&[]);
    let url = RedisUrl::parse(&format!("redis://{}", server.address()));
    let url = url.map_err(anyhow::Error::msg)?;
    let settings = RedisSettings { url, ..RedisSettings::default() };
    let clock = SystemClock::new();
    let store = Arc::new(RedisStore::start(&settings, 1, clock)?);
    until("Redis is reached", || store.is_reachable());
    let mut fleet = Fleet::new(shape, clock, Some(store))?;
    let limits = shape.limits();

    let (begin, before) = (Instant::now(), redis_cpu(&server)?);
    thread::sleep(IDLE);
    let idle = (redis_cpu(&server)? - before) / begin.elapsed().as_secs_f64();

    fleet.open()?;
    // The shares settle.
    fleet.run(2, Demand::Steady)?;
    let (mut rows, mut tenants) = (Vec::new(), shape.total());
    for (name, demand) in [("steady", Demand::Steady), ("changing", Demand::Changing)] {
        let before = redis_cpu(&server)?;
        let new = NewBuckets::start(fleet.engine(), tenants)?;
        let figures = fleet.run(rounds, demand)?;
        let waits = new.end()?;
        tenants += waits.len();
        let (Some(longest), Some(median)) = (waits.last(), waits.get(waits.len() / 2)) else {
            bail!("no new bucket");
        };
        let used = redis_cpu(&server)? - before - idle * figures.seconds;
        ensure!(figures.settlements > 0.0, "no settlement in {:.0} s", figures.seconds);
        warn_if_late(&format!("{shape} on Redis, {name} demand"), &figures);
        rows.push(format!(
            "| {} Envoys with {} buckets each, {limits}, {name} demand | {:.1} | {:.0} us \
             | {:.0} us | {:.1} / {:.1} ms |",
            shape.streams,
            shape.buckets,
            figures.settlements / figures.seconds,
            1e6 * used / figures.settlements,
            1e6 * figures.driver_cpu / figures.settlements,
            1e3 * median.as_secs_f64(),
            1e3 * longest.as_secs_f64(),
        ));
    }
    fleet.end()?;
    Ok(rows)
}

/// CPU time used so far, in seconds, as Redis reports it.
fn redis_cpu(server: &Server) -> anyhow::Result<f64> {
    let info = server.client().run(&["INFO", "CPU"]).text();
    let field = |name: &str| -> anyhow::Result<f64> {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.with_context(|| format!("INFO CPU has {name}"))?.trim().parse()?)
    };
    Ok(field("used_cpu_sys:")? + field("used_cpu_user:")?)
}
