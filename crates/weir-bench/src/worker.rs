//! One thread of the generator: its connections, its share of the calls, and its stats.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinSet, LocalSet, spawn_local, yield_now};
use tokio::time::timeout_at;

use crate::cancel::CancelSignal;
use crate::connection::{Connection, RETRY_PAUSE, RequestHead};
use crate::keys::{KeyPicker, SplitMix64};
use crate::plan::{Pacing, Plan};
use crate::request_body::BodyTemplate;
use crate::response::CallOutcome;
use crate::stats::Stats;
use crate::timer::PreciseTimer;

/// Overdue calls sent in a row before responses are read.
pub(crate) const BURST_MAX: u64 = 64;

/// The instants of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunTimes {
    /// The first call is due.
    pub(crate) begin: Instant,
    /// The warm-up is over; calls count.
    pub(crate) start: Instant,
    /// No more calls are due.
    pub(crate) end: Instant,
    /// Responses after this do not count.
    pub(crate) last: Instant,
}

impl RunTimes {
    /// The times of `plan` when its first call is due at `begin`.
    pub(crate) fn new(begin: Instant, plan: &Plan) -> RunTimes {
        let start = begin + plan.warmup;
        let end = start + plan.duration;
        RunTimes { begin, start, end, last: end + plan.timeout }
    }
}

/// The inputs of a thread.
pub(crate) struct WorkerConfig {
    pub(crate) plan: Plan,
    /// The number of the thread, from 0.
    pub(crate) number: usize,
    pub(crate) address: SocketAddr,
    pub(crate) head: Arc<RequestHead>,
    /// Sent once all threads are ready.
    pub(crate) times: oneshot::Receiver<RunTimes>,
    pub(crate) cancel: CancelSignal,
    /// Answered calls of all threads.
    pub(crate) answered: Arc<AtomicU64>,
    pub(crate) events: mpsc::Sender<Event>,
}

/// A report of a thread.
pub(crate) enum Event {
    /// The thread's connections are open.
    Ready,
    /// The thread has ended.
    Done(Box<io::Result<Stats>>),
}

/// Runs one thread's share of the plan.
pub(crate) fn run(config: WorkerConfig) {
    let events = config.events.clone();
    let runtime = Builder::new_current_thread().enable_all().build();
    let result = runtime.and_then(|runtime| LocalSet::new().block_on(&runtime, work(config)));
    // The receiver is gone only when another thread has failed.
    let _ = events.send(Event::Done(Box::new(result)));
}

async fn work(config: WorkerConfig) -> io::Result<Stats> {
    let WorkerConfig { plan, number, address, head, times, cancel, answered, events } = config;
    let mut connections = Vec::new();
    for _ in (number..plan.connections).step_by(plan.threads()) {
        let connection = Connection::open(address, Arc::clone(&head)).await;
        connections.push(connection.map_err(io::Error::other)?);
    }
    let _ = events.send(Event::Ready);
    let Ok(times) = times.await else { return Ok(Stats::new()) };
    let timer = PreciseTimer::new()?;
    timer.sleep_until(times.begin).await?;
    let state = Rc::new(WorkerState {
        times,
        end: Cell::new(times.end),
        picker: KeyPicker::new(plan.keys, plan.distribution),
        random: RefCell::new(SplitMix64::new(plan.seed.wrapping_add(number as u64))),
        template: RefCell::new(BodyTemplate::new(&plan)),
        stats: RefCell::new(Stats::new()),
        in_flight: Cell::new(0),
        answered,
    });
    match plan.pacing {
        Pacing::Closed => closed_loop(&state, &connections, plan.streams(), cancel).await,
        Pacing::Open(rate) => {
            let rate = RateShare { rate, number: number as u64, threads: plan.threads() as u64 };
            open_loop(&state, &connections, plan.streams(), rate, &timer, cancel).await?;
        }
    }
    state.stats.borrow_mut().record_errors("unanswered", state.in_flight.get());
    Ok(state.stats.replace(Stats::new()))
}

/// State shared by the tasks of a thread.
struct WorkerState {
    times: RunTimes,
    /// No more calls are due: the planned end, or the cancel.
    end: Cell<Instant>,
    picker: KeyPicker,
    random: RefCell<SplitMix64>,
    template: RefCell<BodyTemplate>,
    stats: RefCell<Stats>,
    /// Calls that count and are not answered yet.
    in_flight: Cell<u64>,
    answered: Arc<AtomicU64>,
}

impl WorkerState {
    /// The body of the next call.
    fn next_body(&self) -> Bytes {
        let number = self.picker.pick(&mut self.random.borrow_mut());
        self.template.borrow_mut().for_key(number)
    }

    /// Whether `instant` is in the measured time.
    fn is_measured(&self, instant: Instant) -> bool {
        (self.times.start..self.end.get()).contains(&instant)
    }

    /// Returns when responses no longer count. Stops further calls on a cancel.
    async fn run_out(&self, mut cancel: CancelSignal) {
        let RunTimes { end, last, .. } = self.times;
        if timeout_at(last.into(), cancel.cancelled()).await.is_ok() {
            // Calls sent until now count, even if they were due just after the cancel.
            self.end.set(Instant::now().min(end));
            tokio::time::sleep_until((self.end.get() + (last - end)).into()).await;
        }
    }
}

/// Every stream of every connection sends its next call when the previous one is answered.
async fn closed_loop(
    state: &Rc<WorkerState>,
    connections: &[Rc<Connection>],
    streams: usize,
    cancel: CancelSignal,
) {
    let mut tasks = JoinSet::new();
    for connection in connections {
        for _ in 0..streams {
            tasks.spawn_local(run_stream(Rc::clone(state), Rc::clone(connection)));
        }
    }
    let all = async { while tasks.join_next().await.is_some() {} };
    tokio::select! {
        biased;
        // Calls that are still in flight here are counted as unanswered.
        () = state.run_out(cancel) => {}
        () = all => {}
    }
}

async fn run_stream(state: Rc<WorkerState>, connection: Rc<Connection>) {
    let mut sent = Instant::now();
    while sent < state.end.get() {
        state.in_flight.set(state.in_flight.get() + 1);
        let outcome = connection.call(state.next_body(), || {}).await;
        state.in_flight.set(state.in_flight.get() - 1);
        state.answered.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let disconnected = matches!(outcome, CallOutcome::Disconnected(_));
        // Only responses within the measured time count: late ones would raise the rate.
        if state.is_measured(now) {
            state.stats.borrow_mut().record(outcome, now - sent);
        }
        sent = now;
        if disconnected {
            tokio::time::sleep(RETRY_PAUSE).await;
            sent = Instant::now();
        }
    }
}

/// One thread's share of the rate: every `threads`th call.
#[derive(Clone, Copy)]
struct RateShare {
    rate: f64,
    number: u64,
    threads: u64,
}

impl RateShare {
    /// The time from the start of the run at which this thread's call `index` is due.
    fn due(self, index: u64) -> Duration {
        Duration::from_secs_f64((index * self.threads + self.number) as f64 / self.rate)
    }
}

/// Calls are sent when they are due, on the connections in turn.
async fn open_loop(
    state: &Rc<WorkerState>,
    connections: &[Rc<Connection>],
    streams: usize,
    rate: RateShare,
    timer: &PreciseTimer,
    cancel: CancelSignal,
) -> io::Result<()> {
    let times = state.times;
    let permits = u32::try_from(streams * connections.len()).unwrap_or(u32::MAX);
    let free_streams = Arc::new(Semaphore::new(permits as usize));
    let sent = Cell::new(0);
    let send_all = async {
        for (index, connection) in (0..).zip(connections.iter().cycle()) {
            let due = times.begin + rate.due(index);
            timer.sleep_until(due.min(state.end.get())).await?;
            if index % BURST_MAX == 0 {
                yield_now().await;
            }
            let permit = Arc::clone(&free_streams).acquire_owned().await;
            // A cancel can have come meanwhile. Calls sent after this check count.
            if due >= state.end.get() {
                break;
            }
            let (state, connection) = (Rc::clone(state), Rc::clone(connection));
            sent.set(index + 1);
            spawn_local(async move {
                call_due(&state, &connection, due).await;
                drop(permit);
            });
        }
        // All permits are free when every call is answered.
        let _ = free_streams.acquire_many(permits).await;
        io::Result::Ok(())
    };
    tokio::select! {
        biased;
        () = state.run_out(cancel) => {
            // Due calls that never got a free stream.
            let unsent = (sent.get()..).map(|index| times.begin + rate.due(index));
            let unsent = unsent.take_while(|due| *due < state.end.get());
            let unsent = unsent.filter(|due| *due >= times.start).count();
            state.stats.borrow_mut().record_errors("unsent", unsent as u64);
        }
        result = send_all => result?,
    }
    Ok(())
}

async fn call_due(state: &WorkerState, connection: &Connection, due: Instant) {
    // No call is sent that is due after the end.
    let counts = due >= state.times.start;
    state.in_flight.set(state.in_flight.get() + u64::from(counts));
    let on_sent = || {
        if counts {
            state.stats.borrow_mut().record_lateness(due.elapsed());
        }
    };
    let outcome = connection.call(state.next_body(), on_sent).await;
    state.in_flight.set(state.in_flight.get() - u64::from(counts));
    state.answered.fetch_add(1, Ordering::Relaxed);
    if counts {
        state.stats.borrow_mut().record(outcome, due.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_calls_evenly_and_in_turn() {
        let due = |number, index| RateShare { rate: 1000.0, number, threads: 4 }.due(index);
        let all: Vec<Duration> = (0..3).flat_map(|i| (0..4).map(move |n| due(n, i))).collect();
        let expected: Vec<Duration> = (0..12).map(Duration::from_millis).collect();
        assert_eq!(all, expected);
    }
}
