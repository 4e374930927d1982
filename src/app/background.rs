//! The background runtime: one thread that runs all periodic jobs.
//!
//! The jobs share the thread, so none of them may block it for long:
//!
//! - The sweep is split into slices of 2,048 counters and yields after each one. The other jobs
//!   wait for one slice at most.
//! - The job of the consistency modes waits for the store in its futures, not on the thread.
//! - The readiness job reads atomics.
//! - The job of usage waits for Redis in its futures too.
//! - The job of the request log reads atomics.
//! - The history of rules is read on a blocking thread.
//!
//! Jobs that read files stay outside: a read from a hanging network volume can block for minutes.
//! The file watchers have their own threads for that reason.

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use tokio::sync::{oneshot, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::readiness::Readiness;
use crate::limiter::Limiter;
use crate::modes::JOB_PERIOD;
use crate::request_log::RequestLog;
use crate::server::Health;
use crate::time::{Clock, SystemClock};

/// Period of the readiness job. Probes come at most once a second.
const HEALTH_PERIOD: Duration = Duration::from_millis(100);

/// Period of the sweep, the job that frees expired counters. At 16 x 2,048 counters per period, a
/// full store of 4,000,000 counters (the default of `store.max_counters`) is swept once in two
/// minutes.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// Slices of the sweep per period. The sweep yields after each slice.
const SWEEP_SLICES: usize = 16;

/// Counters in one slice of the sweep.
const SWEEP_SLICE_COUNTERS: usize = 2_048;

/// Period in which the lines that the request log left out are reported, and expired captures end.
const REQUEST_LOG_PERIOD: Duration = Duration::from_secs(1);

/// The running thread. It stops when this value is dropped.
pub(super) struct Background {
    stop: oneshot::Sender<()>,
    done: oneshot::Receiver<()>,
}

impl Background {
    /// Starts the jobs that this configuration needs, and `other`, which must not block. The returned
    /// receiver has the current health.
    pub(super) fn start(
        limiter: Arc<Limiter>,
        clock: SystemClock,
        readiness: Readiness,
        request_log: Arc<RequestLog>,
        other: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<(Background, watch::Receiver<Health>)> {
        let (health, health_seen) = watch::channel(readiness.health());
        let (stop, stopped) = oneshot::channel();
        let (ended, done) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("weir-background".into()).spawn(move || {
            runtime.block_on(async {
                // The server reads the health until the process ends, so the sender must stay.
                let health = Arc::new(health);
                let mut jobs = JoinSet::new();
                jobs.spawn(other);
                if limiter.memory().is_some() {
                    jobs.spawn(sweep(limiter.clone(), clock));
                }
                // Not aborted with the other jobs, because it flushes the modes at the end.
                let (stop_modes, modes_stopped) = oneshot::channel();
                let modes = tokio::spawn(run_modes(limiter.clone(), clock, modes_stopped));
                let (stop_names, names_stopped) = oneshot::channel();
                let names = tokio::spawn(write_names(limiter.clone(), clock, names_stopped));
                if readiness.is_conditional() {
                    jobs.spawn(update_health(readiness, health.clone()));
                }
                jobs.spawn(tick_request_log(request_log.clone(), clock));
                let _ = stopped.await;
                jobs.shutdown().await;
                // What was left out since the last tick.
                request_log.tick(clock.now());
                drop((stop_modes, stop_names));
                // An error is a panic, which was logged.
                let _ = tokio::join!(modes, names);
            });
            let _ = ended.send(());
        })?;
        Ok((Background { stop, done }, health_seen))
    }

    /// Stops the jobs. Then the consistency modes send their pending counts to the store, and return
    /// their unspent credits. Names of counters that wait are written.
    pub(super) async fn end(self) {
        drop(self.stop);
        let _ = self.done.await;
    }
}

/// Frees expired counters.
async fn sweep(limiter: Arc<Limiter>, clock: SystemClock) {
    let mut ticks = ticks(SWEEP_PERIOD);
    loop {
        ticks.tick().await;
        for _ in 0..SWEEP_SLICES {
            if let Some(counters) = limiter.memory() {
                counters.sweep(clock.now(), SWEEP_SLICE_COUNTERS);
            }
            yield_now().await;
        }
    }
}

/// Exchanges counts with the store and returns idle credits, each when it is due. When `stopped`
/// completes, it sends all remaining counts and credits.
async fn run_modes(limiter: Arc<Limiter>, clock: SystemClock, stopped: oneshot::Receiver<()>) {
    let Some(modes) = limiter.backend().modes() else { return };
    modes.run(&clock, JOB_PERIOD, async { drop(stopped.await) }).await;
}

/// Writes the names of counters to Redis. When `stopped` completes, it writes those that are left.
async fn write_names(limiter: Arc<Limiter>, clock: SystemClock, stopped: oneshot::Receiver<()>) {
    let (Some(names), Some(store)) = (limiter.usage(), limiter.backend().shared_store()) else {
        return;
    };
    names.run_writer(store, &clock, async { drop(stopped.await) }).await;
}

/// Reports lines that the request log left out, and ends its expired captures.
async fn tick_request_log(log: Arc<RequestLog>, clock: SystemClock) {
    let mut ticks = ticks(REQUEST_LOG_PERIOD);
    loop {
        ticks.tick().await;
        log.tick(clock.now());
    }
}

/// Publishes the health when it changes.
async fn update_health(readiness: Readiness, health: Arc<watch::Sender<Health>>) {
    let mut ticks = ticks(HEALTH_PERIOD);
    loop {
        ticks.tick().await;
        let now = readiness.health();
        health.send_if_modified(|known| std::mem::replace(known, now) != now);
    }
}

/// Ticks without bursts: after a late tick the next follows a full period later.
fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
