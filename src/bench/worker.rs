//! A thread of the generator: its connections, its part of the calls, and what came of them.

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

use super::alarm::Alarm;
use super::answer::Outcome;
use super::body::Bodies;
use super::link::{Link, PAUSE, Target};
use super::pick::{Picker, Random};
use super::plan::{Load, Plan};
use super::stop::Stop;
use super::tally::Tally;

/// Calls sent in a row, when several are due, before answers are looked at.
const BURST: u64 = 64;

/// The instants of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// The first call is due.
    pub(super) begin: Instant,
    /// Calls count.
    pub(super) start: Instant,
    /// No more calls.
    pub(super) end: Instant,
    /// No answer is waited for any longer.
    pub(super) last: Instant,
}

impl Span {
    /// The run of `plan` whose first call is due at `begin`.
    pub(super) fn from(begin: Instant, plan: &Plan) -> Span {
        let start = begin + plan.warmup;
        let end = start + plan.duration;
        Span { begin, start, end, last: end + plan.timeout }
    }
}

/// What a thread is told.
pub(super) struct Share {
    pub(super) plan: Plan,
    /// Which of the threads it is.
    pub(super) number: usize,
    pub(super) address: SocketAddr,
    pub(super) target: Arc<Target>,
    /// Arrives once all threads are ready.
    pub(super) span: oneshot::Receiver<Span>,
    /// Ends it before its time.
    pub(super) stop: Stop,
    /// Calls that were answered, of all threads.
    pub(super) answered: Arc<AtomicU64>,
    pub(super) events: mpsc::Sender<Event>,
}

/// What a thread tells.
pub(super) enum Event {
    /// Its connections are open.
    Ready,
    /// It is done.
    Done(Box<io::Result<Tally>>),
}

/// Does a thread's part of the run.
pub(super) fn run(share: Share) {
    let events = share.events.clone();
    let runtime = Builder::new_current_thread().enable_all().build();
    let result = runtime.and_then(|runtime| LocalSet::new().block_on(&runtime, work(share)));
    // Nobody listens any more only when another thread has failed.
    let _ = events.send(Event::Done(Box::new(result)));
}

async fn work(share: Share) -> io::Result<Tally> {
    let Share { plan, number, address, target, span, stop, answered, events } = share;
    let mut links = Vec::new();
    for _ in (number..plan.connections).step_by(plan.threads()) {
        let link = Link::open(address, Arc::clone(&target)).await;
        links.push(link.map_err(io::Error::other)?);
    }
    let _ = events.send(Event::Ready);
    let Ok(span) = span.await else { return Ok(Tally::new()) };
    let alarm = Alarm::new()?;
    alarm.until(span.begin).await?;
    let desk = Rc::new(Desk {
        span,
        end: Cell::new(span.end),
        picker: Picker::new(plan.keys, plan.spread),
        random: RefCell::new(Random::new(plan.seed.wrapping_add(number as u64))),
        bodies: RefCell::new(Bodies::new(&plan)),
        tally: RefCell::new(Tally::new()),
        in_flight: Cell::new(0),
        answered,
    });
    match plan.load {
        Load::Closed => closed(&desk, &links, plan.streams(), stop).await,
        Load::Open(rate) => {
            let pace = Pace { rate, number: number as u64, threads: plan.threads() as u64 };
            open(&desk, &links, plan.streams(), pace, &alarm, stop).await?;
        }
    }
    desk.tally.borrow_mut().fail("unanswered", desk.in_flight.get());
    Ok(desk.tally.replace(Tally::new()))
}

/// What all tasks of a thread share.
struct Desk {
    span: Span,
    /// No more calls: that of the span, or before.
    end: Cell<Instant>,
    picker: Picker,
    random: RefCell<Random>,
    bodies: RefCell<Bodies>,
    tally: RefCell<Tally>,
    /// Calls that count and were not answered yet.
    in_flight: Cell<u64>,
    answered: Arc<AtomicU64>,
}

impl Desk {
    /// The body of the next call.
    fn body(&self) -> Bytes {
        let number = self.picker.pick(&mut self.random.borrow_mut());
        self.bodies.borrow_mut().of(number)
    }

    fn counts(&self, instant: Instant) -> bool {
        (self.span.start..self.end.get()).contains(&instant)
    }

    /// Waits until no answer is waited for any longer, and ends the calls when a stop comes.
    async fn over(&self, mut stop: Stop) {
        let Span { end, last, .. } = self.span;
        if timeout_at(last.into(), stop.come()).await.is_ok() {
            // What was sent by now counts, though it fell due an instant after the stop.
            self.end.set(Instant::now().min(end));
            tokio::time::sleep_until((self.end.get() + (last - end)).into()).await;
        }
    }
}

/// Every stream of every connection asks again as soon as it is answered.
async fn closed(desk: &Rc<Desk>, links: &[Rc<Link>], streams: usize, stop: Stop) {
    let mut tasks = JoinSet::new();
    for link in links {
        for _ in 0..streams {
            tasks.spawn_local(stream(Rc::clone(desk), Rc::clone(link)));
        }
    }
    let all = async { while tasks.join_next().await.is_some() {} };
    tokio::select! {
        biased;
        // Whoever is late is still counted as in flight.
        () = desk.over(stop) => {}
        () = all => {}
    }
}

async fn stream(desk: Rc<Desk>, link: Rc<Link>) {
    let mut asked = Instant::now();
    while asked < desk.end.get() {
        desk.in_flight.set(desk.in_flight.get() + 1);
        let outcome = link.call(desk.body(), || {}).await;
        desk.in_flight.set(desk.in_flight.get() - 1);
        desk.answered.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let lost = matches!(outcome, Outcome::Broken(_));
        // What is answered in the measured time counts, so that a rate is not made of stragglers.
        if desk.counts(now) {
            desk.tally.borrow_mut().count(outcome, now - asked);
        }
        asked = now;
        if lost {
            tokio::time::sleep(PAUSE).await;
            asked = Instant::now();
        }
    }
}

/// When the calls of one thread are due: every `threads`th of all calls.
#[derive(Clone, Copy)]
struct Pace {
    rate: f64,
    number: u64,
    threads: u64,
}

impl Pace {
    /// From the begin of the run to this thread's call `index`.
    fn due(self, index: u64) -> Duration {
        Duration::from_secs_f64((index * self.threads + self.number) as f64 / self.rate)
    }
}

/// Calls are sent when they are due, on one connection after the other.
async fn open(
    desk: &Rc<Desk>,
    links: &[Rc<Link>],
    streams: usize,
    pace: Pace,
    alarm: &Alarm,
    stop: Stop,
) -> io::Result<()> {
    let span = desk.span;
    let seats = u32::try_from(streams * links.len()).unwrap_or(u32::MAX);
    let free = Arc::new(Semaphore::new(seats as usize));
    let sent = Cell::new(0);
    let sending = async {
        for (index, link) in (0..).zip(links.iter().cycle()) {
            let due = span.begin + pace.due(index);
            alarm.until(due.min(desk.end.get())).await?;
            if index % BURST == 0 {
                yield_now().await;
            }
            let free = Arc::clone(&free).acquire_owned().await;
            // A stop may have come meanwhile. What is sent after this counts.
            if due >= desk.end.get() {
                break;
            }
            let (desk, link) = (Rc::clone(desk), Rc::clone(link));
            sent.set(index + 1);
            spawn_local(async move {
                call_due(&desk, &link, due).await;
                drop(free);
            });
        }
        // Every seat is free when every call has been answered.
        let _ = free.acquire_many(seats).await;
        io::Result::Ok(())
    };
    tokio::select! {
        biased;
        () = desk.over(stop) => {
            // Nobody had a free stream for the rest of them.
            let left = (sent.get()..).map(|index| span.begin + pace.due(index));
            let left = left.take_while(|due| *due < desk.end.get());
            let left = left.filter(|due| *due >= span.start).count();
            desk.tally.borrow_mut().fail("unsent", left as u64);
        }
        result = sending => result?,
    }
    Ok(())
}

async fn call_due(desk: &Desk, link: &Link, due: Instant) {
    // Nothing is sent that falls due after the end.
    let counts = due >= desk.span.start;
    desk.in_flight.set(desk.in_flight.get() + u64::from(counts));
    let sent = || {
        if counts {
            desk.tally.borrow_mut().sent(due.elapsed());
        }
    };
    let outcome = link.call(desk.body(), sent).await;
    desk.in_flight.set(desk.in_flight.get() - u64::from(counts));
    desk.answered.fetch_add(1, Ordering::Relaxed);
    if counts {
        desk.tally.borrow_mut().count(outcome, due.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_calls_evenly_and_in_turn() {
        let due = |number, index| Pace { rate: 1000.0, number, threads: 4 }.due(index);
        let all: Vec<Duration> = (0..3).flat_map(|i| (0..4).map(move |n| due(n, i))).collect();
        let expected: Vec<Duration> = (0..12).map(Duration::from_millis).collect();
        assert_eq!(all, expected);
    }
}
