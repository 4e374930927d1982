//! The load generator behind `weir bench`: raw HTTP/2, bodies encoded beforehand, honest latencies.
//!
//! - **Closed loop**: every stream asks again as soon as it is answered. Shows what a server can
//!   do, and hides how long calls would have waited for their turn.
//! - **Open loop**: calls are due at a fixed rate, whether or not earlier ones were answered, and a
//!   latency counts from the instant a call was due. A server that stalls therefore shows it in
//!   every call that fell due meanwhile (no coordinated omission).
//!
//! A run knows nothing of weir: any server of Envoy's `RateLimitService` can be measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

mod alarm;
mod answer;
mod body;
mod cpu;
mod link;
mod pick;
mod plan;
mod probe;
mod report;
mod stop;
mod tally;
mod worker;

pub use plan::{Load, Plan, Spread};
pub use probe::Unfit;
pub use report::{Generator, Latency, Report};
pub use stop::{Stop, Stopper};

use link::Target;
use tally::Tally;
use tokio::sync::oneshot;
use worker::{Event, Share, Span};

/// Between two looks at how far a run is.
const TICK: Duration = Duration::from_millis(250);

/// From the moment all connections are open to the first call.
const SETUP: Duration = Duration::from_millis(20);

/// A moment of a run, for whoever watches it.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// The warm-up is over; from now on calls count.
    Started,
    /// So many calls were answered so far, warm-up included.
    Running {
        /// Since the first call.
        elapsed: Duration,
        /// Answers of any kind.
        answered: u64,
    },
    /// The measured time is over; late answers are still waited for.
    Ended,
}

/// Puts the load of `plan` on the service at `address` and tells what came of it. Blocks; `watch`
/// hears of every [`Moment`]. After a `stop` nothing more falls due, and the report is about the
/// time until then.
///
/// # Errors
///
/// [`Unfit`] if nothing there answers such calls, or if a thread or connection cannot be had.
pub fn run(
    plan: &Plan,
    address: &str,
    stop: &Stop,
    watch: impl FnMut(Moment),
) -> Result<Report, Unfit> {
    plan.check().map_err(Unfit::Plan)?;
    let address = probe::service(plan, address)?;
    let (events, heard) = mpsc::channel();
    let answered = Arc::new(AtomicU64::new(0));
    let starters = start(plan, address, stop, &events, &answered)?;
    drop(events);
    for _ in &starters {
        match heard.recv() {
            Ok(Event::Ready) => {}
            Ok(Event::Done(result)) => {
                return Err(result.map_or_else(|e| Unfit::Worker(e.to_string()), |_| defect()));
            }
            Err(_) => return Err(defect()),
        }
    }
    let span = Span::from(Instant::now() + SETUP, plan);
    for starter in starters {
        // A thread that has gone says so by the event that it sent before.
        let _ = starter.send(span);
    }
    follow(plan, span, stop, &heard, &answered, watch)
}

/// Waits for the threads, telling `watch` how far they are.
fn follow(
    plan: &Plan,
    span: Span,
    stop: &Stop,
    events: &mpsc::Receiver<Event>,
    answered: &AtomicU64,
    mut watch: impl FnMut(Moment),
) -> Result<Report, Unfit> {
    let mut edges = [(span.start, Moment::Started, None), (span.end, Moment::Ended, None)];
    let mut ticked = span.begin;
    let mut tally = Tally::new();
    let mut left = plan.threads();
    while left > 0 {
        let next = edges.iter().find(|(.., cpu)| cpu.is_none());
        let wait = next.map_or(TICK, |(at, ..)| at.saturating_duration_since(Instant::now()));
        match events.recv_timeout(wait.min(TICK)) {
            Ok(Event::Ready) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Event::Done(result)) => {
                tally.add(result.map_err(|error| Unfit::Worker(error.to_string()))?);
                left -= 1;
            }
            Err(RecvTimeoutError::Disconnected) => return Err(defect()),
        }
        let now = Instant::now();
        edges[1].0 = span.end.min(stop.came().unwrap_or(span.end));
        for (_, moment, cpu) in edges.iter_mut().filter(|(at, _, cpu)| cpu.is_none() && now >= *at)
        {
            *cpu = Some(cpu::of_this_process());
            watch(*moment);
        }
        if now < edges[1].0 && now.saturating_duration_since(ticked) >= TICK {
            ticked = now;
            let elapsed = now.saturating_duration_since(span.begin);
            watch(Moment::Running { elapsed, answered: answered.load(Ordering::Relaxed) });
        }
    }
    let [before, after] = edges.map(|(.., cpu)| cpu.flatten());
    let used = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    let measured = edges[1].0.saturating_duration_since(span.start);
    Ok(Report::of(&Plan { duration: measured, ..plan.clone() }, &tally, used))
}

fn defect() -> Unfit {
    Unfit::Worker("it ended by a defect".into())
}

/// Starts the threads; each waits for its starter.
fn start(
    plan: &Plan,
    address: SocketAddr,
    stop: &Stop,
    events: &mpsc::Sender<Event>,
    answered: &Arc<AtomicU64>,
) -> Result<Vec<oneshot::Sender<Span>>, Unfit> {
    let target = Arc::new(Target::new(address));
    let one = |number| {
        let (starter, span) = oneshot::channel();
        let share = Share {
            plan: plan.clone(),
            number,
            address,
            target: Arc::clone(&target),
            span,
            stop: stop.clone(),
            answered: Arc::clone(answered),
            events: events.clone(),
        };
        let name = format!("bench-{number}");
        let thread = thread::Builder::new().name(name).spawn(move || worker::run(share));
        thread.map(|_| starter).map_err(|error| Unfit::Worker(error.to_string()))
    };
    (0..plan.threads()).map(one).collect()
}
