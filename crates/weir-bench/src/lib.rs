//! The load generator behind `weir bench`: raw HTTP/2, request bodies encoded once, and latencies
//! without coordinated omission.
//!
//! - **Closed loop**: every stream sends its next call when the previous one is answered. It shows
//!   the throughput of a server, but hides the time that calls would have waited.
//! - **Open loop**: calls are due at a fixed rate, whether or not earlier calls were answered. A
//!   latency counts from the instant a call was due. A server that stalls therefore shows the stall
//!   in every call that was due meanwhile.
//!
//! This crate does not depend on weir. It can measure any server of Envoy's `RateLimitService`.
//! [`HttpLoad`] is an open loop of HTTP requests, for a proxy that calls such a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

mod cancel;
mod connection;
mod http_load;
mod keys;
mod messages;
mod plan;
mod probe;
mod process_cpu;
mod report;
mod request_body;
mod response;
mod stats;
mod timer;
mod worker;

pub use cancel::{CancelSignal, Canceller};
pub use http_load::{HttpLoad, HttpReport};
pub use plan::{KeyDistribution, Pacing, Plan};
pub use probe::RunError;
pub use report::{Generator, Latency, Report};

use connection::RequestHead;
use stats::Stats;
use tokio::sync::oneshot;
use worker::{Event, RunTimes, WorkerConfig};

/// Time between two [`Progress::Running`].
const PROGRESS_PERIOD: Duration = Duration::from_millis(250);

/// Time from the last opened connection to the first call.
const SETUP_TIME: Duration = Duration::from_millis(20);

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// The warm-up is over; calls count from now on.
    Started,
    /// The run goes on.
    Running {
        /// Time since the first call.
        elapsed: Duration,
        /// Calls that were answered, warm-up included.
        answered: u64,
    },
    /// The measured time is over; late answers can still arrive.
    Ended,
}

/// Runs `plan` against the service at `address`, and reports the result. Blocks until the run is
/// over.
///
/// `on_progress` is called on this thread. After a cancel no more calls are due, and the report
/// covers the time until then.
///
/// # Errors
///
/// [`RunError`] if the plan is invalid, if no service answers such calls at `address`, or if a
/// thread or a connection cannot be opened.
pub fn run(
    plan: &Plan,
    address: &str,
    cancel: &CancelSignal,
    on_progress: impl FnMut(Progress),
) -> Result<Report, RunError> {
    plan.check().map_err(RunError::Plan)?;
    let address = probe::find_service(plan, address)?;
    let (sender, events) = mpsc::channel();
    let answered = Arc::new(AtomicU64::new(0));
    let starters = spawn_workers(plan, address, cancel, &sender, &answered)?;
    drop(sender);
    for _ in &starters {
        match events.recv() {
            Ok(Event::Ready) => {}
            Ok(Event::Done(result)) => {
                let error = |e: std::io::Error| RunError::Worker(e.to_string());
                return Err(result.map_or_else(error, |_| worker_panicked()));
            }
            Err(_) => return Err(worker_panicked()),
        }
    }
    let times = RunTimes::new(Instant::now() + SETUP_TIME, plan);
    for starter in starters {
        // A thread that has ended has already sent an event, which `collect` reads.
        let _ = starter.send(times);
    }
    collect(plan, times, cancel, &events, &answered, on_progress)
}

/// Waits for the threads, adds up their results and reports progress.
fn collect(
    plan: &Plan,
    times: RunTimes,
    cancel: &CancelSignal,
    events: &mpsc::Receiver<Event>,
    answered: &AtomicU64,
    mut on_progress: impl FnMut(Progress),
) -> Result<Report, RunError> {
    // The CPU time is read at both ends of the measured time.
    let mut edges = [(times.start, Progress::Started, None), (times.end, Progress::Ended, None)];
    let mut last_tick = times.begin;
    let mut stats = Stats::new();
    let mut running = plan.threads();
    while running > 0 {
        let next = edges.iter().find(|(.., cpu)| cpu.is_none());
        let until = |at: &Instant| at.saturating_duration_since(Instant::now());
        let wait = next.map_or(PROGRESS_PERIOD, |(at, ..)| until(at));
        match events.recv_timeout(wait.min(PROGRESS_PERIOD)) {
            Ok(Event::Ready) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Event::Done(result)) => {
                stats.add(result.map_err(|error| RunError::Worker(error.to_string()))?);
                running -= 1;
            }
            Err(RecvTimeoutError::Disconnected) => return Err(worker_panicked()),
        }
        let now = Instant::now();
        edges[1].0 = times.end.min(cancel.cancelled_at().unwrap_or(times.end));
        for (_, progress, cpu) in
            edges.iter_mut().filter(|(at, _, cpu)| cpu.is_none() && now >= *at)
        {
            *cpu = Some(process_cpu::of_this_process());
            on_progress(*progress);
        }
        if now < edges[1].0 && now.saturating_duration_since(last_tick) >= PROGRESS_PERIOD {
            last_tick = now;
            let elapsed = now.saturating_duration_since(times.begin);
            on_progress(Progress::Running { elapsed, answered: answered.load(Ordering::Relaxed) });
        }
    }
    let [before, after] = edges.map(|(.., cpu)| cpu.flatten());
    let used = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    let measured = edges[1].0.saturating_duration_since(times.start);
    Ok(Report::new(&Plan { duration: measured, ..plan.clone() }, &stats, used))
}

fn worker_panicked() -> RunError {
    RunError::Worker("it panicked".into())
}

/// Starts the threads. Each one opens its connections and then waits for its starter.
fn spawn_workers(
    plan: &Plan,
    address: SocketAddr,
    cancel: &CancelSignal,
    events: &mpsc::Sender<Event>,
    answered: &Arc<AtomicU64>,
) -> Result<Vec<oneshot::Sender<RunTimes>>, RunError> {
    let head = Arc::new(RequestHead::new(address));
    let spawn = |number| {
        let (starter, times) = oneshot::channel();
        let config = WorkerConfig {
            plan: plan.clone(),
            number,
            address,
            head: Arc::clone(&head),
            times,
            cancel: cancel.clone(),
            answered: Arc::clone(answered),
            events: events.clone(),
        };
        let name = format!("bench-{number}");
        let thread = thread::Builder::new().name(name).spawn(move || worker::run(config));
        thread.map(|_| starter).map_err(|error| RunError::Worker(error.to_string()))
    };
    (0..plan.threads()).map(spawn).collect()
}
