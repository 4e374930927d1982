//! A connection's queue: steps that wait for their turn, and leave together.
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

use super::batch::{Batch, ScriptCall, StepReply};
use super::connection::Connection;
use super::error::RedisError;
use super::name::CounterName;
use super::script::EncodedStep;
use crate::store::StoreError;

/// Journeys under way at once per connection; the steps that arrive meanwhile wait.
const FLUSHERS_MAX: usize = 2;

/// Steps that wait, beyond those whose callers have gone.
const WAITING_MAX: usize = 4096;

/// How often a step is sent again because the node forgot its script meanwhile.
const SCRIPT_RELOADS_MAX: u8 = 4;

/// What came of a step.
pub(super) type Answer = Result<SmallVec<[u8; 32]>, BatchError>;

/// Why a step has no outcome.
#[derive(Clone, Debug)]
pub(super) enum BatchError {
    /// The call that carried it came to this.
    Error(Error),
    /// It certainly did not run, perhaps because of the company it was in.
    RetryAlone,
    /// What came back cannot be understood.
    Reply,
}

/// A step that waits.
#[derive(Debug)]
struct Pending {
    group: u16,
    name: CounterName,
    message: EncodedStep,
    script_reloads: u8,
    answer: oneshot::Sender<Answer>,
}

/// The steps that wait for one connection.
#[derive(Debug, Default)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Pending>,
    /// Callers that have gone, at least since the last look at all that wait.
    gone: usize,
    flushers: usize,
    /// A carrier is about to take what waits.
    called: bool,
}

impl Inner {
    fn sweep(&mut self) {
        self.waiting.retain(|pending| !pending.answer.is_closed());
        self.gone = 0;
    }
}

impl Queue {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What waits, as far as it may leave together; nothing, and a carrier less, if nothing does.
    fn take(&self, max: usize) -> Option<Batch<CounterName, Pending>> {
        let mut inner = self.inner();
        inner.called = false;
        let mut batch = Batch::new(max);
        let mut any = false;
        while let Some(pending) = inner.waiting.pop_front() {
            // Whoever has gone was answered by the fallback: what he asked for shall not count.
            if pending.answer.is_closed() {
                continue;
            }
            let (group, name, message) = (pending.group, pending.name, pending.message.clone());
            if let Err(pending) = batch.add(group, &name, &message, pending) {
                inner.waiting.push_front(pending);
                break;
            }
            any = true;
        }
        if !any {
            inner.flushers -= 1;
        }
        any.then_some(batch)
    }

    /// Puts steps back that did not run, before all others.
    fn put_back(&self, pending: Vec<Pending>) {
        let mut inner = self.inner();
        pending.into_iter().rev().for_each(|pending| inner.waiting.push_front(pending));
    }
}

/// Sends a step over `connection` and waits for what comes of it. Dropped before the step has left, it
/// takes the step along.
pub(super) async fn ask(
    connection: &Arc<Connection>,
    group: u16,
    name: CounterName,
    message: EncodedStep,
) -> Result<Answer, StoreError> {
    let (answer, receiver) = oneshot::channel();
    {
        let mut inner = connection.queue().inner();
        if inner.waiting.len() >= WAITING_MAX {
            inner.sweep();
        }
        if inner.waiting.len() >= WAITING_MAX {
            return Err(StoreError::Busy);
        }
        inner.waiting.push_back(Pending { group, name, message, script_reloads: 0, answer });
        ensure_flusher(connection, &mut inner);
    }
    let mut waiter = Waiter { queue: connection.queue(), receiver, answered: false };
    let answer = (&mut waiter.receiver).await;
    waiter.answered = true;
    // Its runtime has ended with the call under way.
    answer.map_err(|_| StoreError::Lost)
}

/// What came of a step that was sent alone.
pub(super) fn own(result: Result<Bytes, Error>) -> Answer {
    result.map(|bytes| SmallVec::from_slice(&bytes)).map_err(BatchError::Error)
}

/// Has somebody come for what waits, unless somebody is about to, or enough are on their way.
fn ensure_flusher(connection: &Arc<Connection>, inner: &mut Inner) {
    if inner.called || inner.flushers >= FLUSHERS_MAX {
        return;
    }
    inner.called = true;
    inner.flushers += 1;
    // It runs when all that is ready now has run: steps of the same turn leave together.
    tokio::spawn(Flusher { connection: connection.clone(), working: true }.work());
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
struct Flusher {
    connection: Arc<Connection>,
    working: bool,
}

impl Flusher {
    async fn work(mut self) {
        while let Some(batch) = self.connection.queue().take(self.connection.steps_max()) {
            {
                let mut inner = self.connection.queue().inner();
                if !inner.waiting.is_empty() {
                    ensure_flusher(&self.connection, &mut inner);
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
    async fn make(&self, mut call: ScriptCall<CounterName, Pending>) {
        let connection = &self.connection;
        match connection.call(&mut call).await {
            Ok(answer) => call.deal(&answer, |pending, told| {
                // Whoever has gone does not hear it.
                let _ = pending.answer.send(match told {
                    StepReply::Outcome(bytes) => Ok(bytes.into()),
                    StepReply::Refused => Err(BatchError::RetryAlone),
                    StepReply::Malformed => Err(BatchError::Reply),
                });
            }),
            Err(error) => self.fail(call, error).await,
        }
    }

    async fn fail(&self, call: ScriptCall<CounterName, Pending>, error: Error) {
        let fault = RedisError::of(&error);
        let script = call.script();
        // Nothing of it ran. Steps that are sent alone may fare better: their counters may still be
        // here, or they need no memory.
        let company =
            call.steps() > 1 && matches!(fault, RedisError::TryAgain | RedisError::Memory);
        let mut again: Vec<Pending> = Vec::new();
        for mut pending in call.into_items() {
            if fault == RedisError::NoScript && pending.script_reloads < SCRIPT_RELOADS_MAX {
                pending.script_reloads += 1;
                again.push(pending);
                continue;
            }
            let setback =
                if company { BatchError::RetryAlone } else { BatchError::Error(error.clone()) };
            let _ = pending.answer.send(Err(setback));
        }
        if again.is_empty() {
            return;
        }
        match self.connection.load(script.source()).await {
            Ok(()) => self.connection.queue().put_back(again),
            Err(error) => {
                for pending in again {
                    let _ = pending.answer.send(Err(BatchError::Error(error.clone())));
                }
            }
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        // Its runtime ends: another one may come for what waits.
        if self.working {
            self.connection.queue().inner().flushers -= 1;
        }
    }
}
