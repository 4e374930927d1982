//! A lane's queue: steps that wait for their turn, and leave together.
//!
//! A step that finds the connection idle leaves at once, with all others of the same turn of the
//! runtime. While calls are under way, the steps that arrive wait, and leave together when one
//! returns: the busier a node is, the more steps a call carries, and the less each costs it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fred::error::Error;
use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::batch::{Batch, Call, Told};
use super::fault::Fault;
use super::lane::Lane;
use super::name::Name;
use super::script::Message;
use crate::store::StoreError;

/// Journeys under way at once per connection; the steps that arrive meanwhile wait.
const CARRIERS_MAX: usize = 2;

/// Steps that wait, beyond those whose callers have gone.
const WAITING_MAX: usize = 4096;

/// How often a step is sent again because the node forgot its script meanwhile.
const LESSONS_MAX: u8 = 4;

/// What came of a step.
pub(super) type Answer = Result<SmallVec<[u8; 32]>, Setback>;

/// Why a step has no outcome.
#[derive(Clone, Debug)]
pub(super) enum Setback {
    /// The call that carried it came to this.
    Error(Error),
    /// It certainly did not run, perhaps because of the company it was in.
    Company,
    /// What came back cannot be understood.
    Reply,
}

/// A step that waits.
#[derive(Debug)]
struct Ticket {
    group: u16,
    name: Name,
    message: Message,
    lessons: u8,
    answer: oneshot::Sender<Answer>,
}

/// The steps that wait for one connection.
#[derive(Debug, Default)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Ticket>,
    /// Callers that have gone, at least since the last look at all that wait.
    gone: usize,
    carriers: usize,
    /// A carrier is about to take what waits.
    called: bool,
}

impl Inner {
    fn sweep(&mut self) {
        self.waiting.retain(|ticket| !ticket.answer.is_closed());
        self.gone = 0;
    }
}

impl Queue {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What waits, as far as it may leave together; nothing, and a carrier less, if nothing does.
    fn take(&self, max: usize) -> Option<Batch<Name, Ticket>> {
        let mut inner = self.inner();
        inner.called = false;
        let mut batch = Batch::new(max);
        let mut any = false;
        while let Some(ticket) = inner.waiting.pop_front() {
            // Whoever has gone was answered by the fallback: what he asked for shall not count.
            if ticket.answer.is_closed() {
                continue;
            }
            let (group, name, message) = (ticket.group, ticket.name, ticket.message.clone());
            if let Err(ticket) = batch.add(group, &name, &message, ticket) {
                inner.waiting.push_front(ticket);
                break;
            }
            any = true;
        }
        if !any {
            inner.carriers -= 1;
        }
        any.then_some(batch)
    }

    /// Puts steps back that did not run, before all others.
    fn put_back(&self, tickets: Vec<Ticket>) {
        let mut inner = self.inner();
        tickets.into_iter().rev().for_each(|ticket| inner.waiting.push_front(ticket));
    }
}

/// Sends a step over `lane` and waits for what comes of it. Dropped before the step has left, it
/// takes the step along.
pub(super) async fn ask(
    lane: &Arc<Lane>,
    group: u16,
    name: Name,
    message: Message,
) -> Result<Answer, StoreError> {
    let (answer, receiver) = oneshot::channel();
    {
        let mut inner = lane.queue().inner();
        if inner.waiting.len() >= WAITING_MAX {
            inner.sweep();
        }
        if inner.waiting.len() >= WAITING_MAX {
            return Err(StoreError::Busy);
        }
        inner.waiting.push_back(Ticket { group, name, message, lessons: 0, answer });
        call_carrier(lane, &mut inner);
    }
    let mut waiter = Waiter { queue: lane.queue(), receiver, answered: false };
    let answer = (&mut waiter.receiver).await;
    waiter.answered = true;
    // Its runtime has ended with the call under way.
    answer.map_err(|_| StoreError::Lost)
}

/// What came of a step that was sent alone.
pub(super) fn own(result: Result<Bytes, Error>) -> Answer {
    result.map(|bytes| SmallVec::from_slice(&bytes)).map_err(Setback::Error)
}

/// Has somebody come for what waits, unless somebody is about to, or enough are on their way.
fn call_carrier(lane: &Arc<Lane>, inner: &mut Inner) {
    if inner.called || inner.carriers >= CARRIERS_MAX {
        return;
    }
    inner.called = true;
    inner.carriers += 1;
    // It runs when all that is ready now has run: steps of the same turn leave together.
    tokio::spawn(Carrier { lane: lane.clone(), working: true }.work());
}

/// Somebody who waits for an answer.
struct Waiter<'a> {
    queue: &'a Queue,
    receiver: oneshot::Receiver<Answer>,
    answered: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.receiver.close();
        let mut inner = self.queue.inner();
        inner.gone += 1;
        if inner.gone > 64 && inner.gone > inner.waiting.len() / 2 {
            inner.sweep();
        }
    }
}

/// A task that carries what waits to the node, again and again until nothing does.
struct Carrier {
    lane: Arc<Lane>,
    working: bool,
}

impl Carrier {
    async fn work(mut self) {
        while let Some(batch) = self.lane.queue().take(self.lane.steps_max()) {
            {
                let mut inner = self.lane.queue().inner();
                if !inner.waiting.is_empty() {
                    call_carrier(&self.lane, &mut inner);
                }
            }
            let mut calls = batch.into_calls();
            match calls.pop() {
                // Apart: the task is moved several times before it runs, and fred's calls are large.
                Some(call) if calls.is_empty() => Box::pin(self.make(call)).await,
                last => {
                    join_all(calls.into_iter().chain(last).map(|call| self.make(call))).await;
                }
            }
        }
        self.working = false;
    }

    /// Makes one call, and tells everybody what came of it.
    async fn make(&self, mut call: Call<Name, Ticket>) {
        let lane = &self.lane;
        match lane.call(&mut call).await {
            Ok(answer) => call.deal(&answer, |ticket, told| {
                // Whoever has gone does not hear it.
                let _ = ticket.answer.send(match told {
                    Told::Outcome(bytes) => Ok(bytes.into()),
                    Told::Refused => Err(Setback::Company),
                    Told::Malformed => Err(Setback::Reply),
                });
            }),
            Err(error) => self.fail(call, error).await,
        }
    }

    async fn fail(&self, call: Call<Name, Ticket>, error: Error) {
        let fault = Fault::of(&error);
        let script = call.script();
        // Nothing of it ran. Steps that are sent alone may fare better: their counters may still be
        // here, or they need no memory.
        let company = call.steps() > 1 && matches!(fault, Fault::TryAgain | Fault::Memory);
        let mut again: Vec<Ticket> = Vec::new();
        for mut ticket in call.into_items() {
            if fault == Fault::NoScript && ticket.lessons < LESSONS_MAX {
                ticket.lessons += 1;
                again.push(ticket);
                continue;
            }
            let setback = if company { Setback::Company } else { Setback::Error(error.clone()) };
            let _ = ticket.answer.send(Err(setback));
        }
        if again.is_empty() {
            return;
        }
        match self.lane.load(script.source()).await {
            Ok(()) => self.lane.queue().put_back(again),
            Err(error) => {
                for ticket in again {
                    let _ = ticket.answer.send(Err(Setback::Error(error.clone())));
                }
            }
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        // Its runtime ends: another one may come for what waits.
        if self.working {
            self.lane.queue().inner().carriers -= 1;
        }
    }
}
