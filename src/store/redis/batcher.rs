//! Batches steps: the steps that wait for one connection are sent in as few calls as possible.
//!
//! On an idle connection a step is sent at once, together with all steps of the same turn of the
//! runtime. While calls are in flight, new steps wait and are sent together when one returns. The
//! busier a node is, the more steps a call carries and the less each step costs.
//! `cargo bench --bench batching` measures it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::batch::{ScriptCall, StepBatch, StepReply};
use super::connection::RedisConnection;
use super::error::{CallError, NextAction};
use super::function_use::CallForm;
use super::name::CounterName;
use super::script::EncodedStep;
use crate::store::StoreError;

/// Tasks with a call in flight per connection. Further steps wait.
pub(crate) const FLUSHERS_MAX: usize = 2;

/// Waiting steps per connection, without those whose callers stopped waiting.
const WAITING_MAX: usize = 4096;

/// How often a step is sent again because the node lost its script or its functions.
const SCRIPT_RELOADS_MAX: u8 = 4;

/// The reply bytes of a step, or the reason why it has no reply.
pub(super) type StepResult = Result<SmallVec<[u8; 32]>, BatchError>;

/// Why a step has no reply.
#[derive(Clone, Debug)]
pub(super) enum BatchError {
    /// The call that carried the step failed, and [`NextAction::SendAlone`] does not follow.
    Redis(CallError),
    /// The step did not run, possibly because of other steps in its call. Alone it may succeed.
    RetryAlone,
    /// The reply is malformed. The step may have run.
    Reply,
}

/// A connection and the steps that wait for it.
#[derive(Debug)]
pub(super) struct Batcher {
    connection: Arc<RedisConnection>,
    queue: Mutex<StepQueue>,
    /// The most steps per call.
    steps_max: usize,
}

#[derive(Debug, Default)]
struct StepQueue {
    waiting: VecDeque<QueuedStep>,
    /// Callers that stopped waiting since the last removal of their steps; never too few.
    abandoned: usize,
    flushers: usize,
    /// A flusher is scheduled and will take the waiting steps.
    flusher_scheduled: bool,
}

/// A step that waits.
#[derive(Debug)]
struct QueuedStep {
    group: u16,
    name: CounterName,
    step: EncodedStep,
    script_reloads: u8,
    reply: oneshot::Sender<StepResult>,
}

impl StepQueue {
    fn remove_abandoned(&mut self) {
        self.waiting.retain(|pending| !pending.reply.is_closed());
        self.abandoned = 0;
    }
}

impl Batcher {
    /// A batcher for `connection`, of calls with at most `steps_max` steps.
    pub(super) fn new(connection: Arc<RedisConnection>, steps_max: usize) -> Batcher {
        Batcher { connection, queue: Mutex::default(), steps_max }
    }

    /// The connection that the calls are sent over.
    pub(super) fn connection(&self) -> &Arc<RedisConnection> {
        &self.connection
    }

    /// Queues a step and waits for its result. Dropping this future before the step was sent
    /// removes the step.
    ///
    /// # Errors
    /// [`StoreError::Busy`] when the queue is full, [`StoreError::ConnectionLost`] when the runtime
    /// ended.
    pub(super) async fn apply(
        self: &Arc<Batcher>,
        group: u16,
        name: CounterName,
        step: EncodedStep,
    ) -> Result<StepResult, StoreError> {
        let (reply, receiver) = oneshot::channel();
        {
            let mut queue = self.queue();
            if queue.waiting.len() >= WAITING_MAX {
                queue.remove_abandoned();
            }
            if queue.waiting.len() >= WAITING_MAX {
                return Err(StoreError::Busy);
            }
            queue.waiting.push_back(QueuedStep { group, name, step, script_reloads: 0, reply });
            self.ensure_flusher(&mut queue);
        }
        let mut waiter = ReplyWaiter { batcher: self, receiver, replied: false };
        let result = (&mut waiter.receiver).await;
        waiter.replied = true;
        // The runtime ended with the call in flight.
        result.map_err(|_| StoreError::ConnectionLost)
    }

    fn queue(&self) -> MutexGuard<'_, StepQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spawns a flusher unless one is scheduled or [`FLUSHERS_MAX`] are at work.
    fn ensure_flusher(self: &Arc<Batcher>, queue: &mut StepQueue) {
        if queue.flusher_scheduled || queue.flushers >= FLUSHERS_MAX {
            return;
        }
        queue.flusher_scheduled = true;
        queue.flushers += 1;
        // The task runs after everything that is ready now, so the steps of one turn are sent
        // together.
        let flusher = Flusher { batcher: self.clone(), began: false, working: true };
        tokio::spawn(flusher.run());
    }

    /// Takes the waiting steps that may be sent together. Returns `None`, and ends a flusher, when
    /// no step waits.
    fn take(&self) -> Option<StepBatch<CounterName, QueuedStep>> {
        let mut queue = self.queue();
        queue.flusher_scheduled = false;
        let mut batch = StepBatch::new(self.steps_max);
        let mut any = false;
        while let Some(pending) = queue.waiting.pop_front() {
            // This caller already used its fallback, so its hits must not count.
            if pending.reply.is_closed() {
                continue;
            }
            let (group, name, step) = (pending.group, pending.name, pending.step.clone());
            if let Err(pending) = batch.add(group, &name, &step, pending) {
                queue.waiting.push_front(pending);
                break;
            }
            any = true;
        }
        if !any {
            queue.flushers -= 1;
        }
        any.then_some(batch)
    }

    /// Queues steps that did not run again, before all others.
    fn requeue(&self, steps: Vec<QueuedStep>) {
        let mut queue = self.queue();
        steps.into_iter().rev().for_each(|pending| queue.waiting.push_front(pending));
    }

    /// Sends one call, and replies to the callers of its steps.
    async fn send(&self, call: ScriptCall<CounterName, QueuedStep>) {
        let form = self.connection.call_form();
        match self.connection.call(&call, form).await {
            Ok(reply) => call.split_reply(&reply, |pending, reply| {
                // A caller that stopped waiting has closed the channel.
                let _ = pending.reply.send(match reply {
                    StepReply::Outcome(bytes) => Ok(bytes.into()),
                    StepReply::Unreadable => Err(BatchError::RetryAlone),
                    StepReply::Malformed => Err(BatchError::Reply),
                });
            }),
            Err(error) => self.fail(call, form, error).await,
        }
    }

    async fn fail(
        &self,
        call: ScriptCall<CounterName, QueuedStep>,
        form: CallForm,
        error: CallError,
    ) {
        let is_alone = call.steps() == 1 && form == CallForm::Script;
        let action = NextAction::after(&error, is_alone);
        let script = call.script();
        let loads = matches!(action, NextAction::LoadScript | NextAction::LoadFunctions);
        let mut again: Vec<QueuedStep> = Vec::new();
        for mut pending in call.into_items() {
            if loads && pending.script_reloads < SCRIPT_RELOADS_MAX {
                pending.script_reloads += 1;
                again.push(pending);
                continue;
            }
            let failure = match action {
                NextAction::SendAlone => BatchError::RetryAlone,
                _ => BatchError::Redis(error.clone()),
            };
            let _ = pending.reply.send(Err(failure));
        }
        if again.is_empty() {
            return;
        }
        let loaded = if action == NextAction::LoadFunctions {
            // If they cannot be loaded, the steps are sent to the script.
            self.connection.load_functions().await;
            Ok(())
        } else {
            self.connection.load(script).await
        };
        match loaded {
            Ok(()) => self.requeue(again),
            Err(error) => {
                for pending in again {
                    let _ = pending.reply.send(Err(BatchError::Redis(error.clone())));
                }
            }
        }
    }
}

/// The result of a step that was sent in a separate call.
pub(super) fn single(result: Result<Bytes, CallError>) -> StepResult {
    result.map(|bytes| SmallVec::from_slice(&bytes)).map_err(BatchError::Redis)
}

/// A caller that waits for its result. Dropping it early marks the step as abandoned.
struct ReplyWaiter<'a> {
    batcher: &'a Batcher,
    receiver: oneshot::Receiver<StepResult>,
    replied: bool,
}

impl Drop for ReplyWaiter<'_> {
    fn drop(&mut self) {
        if self.replied {
            return;
        }
        self.receiver.close();
        let mut queue = self.batcher.queue();
        queue.abandoned += 1;
        if queue.abandoned > 64 && queue.abandoned > queue.waiting.len() / 2 {
            queue.remove_abandoned();
        }
    }
}

/// A task that sends waiting steps until none is left.
struct Flusher {
    batcher: Arc<Batcher>,
    began: bool,
    working: bool,
}

impl Flusher {
    async fn run(mut self) {
        self.began = true;
        while let Some(batch) = self.batcher.take() {
            {
                let mut queue = self.batcher.queue();
                if !queue.waiting.is_empty() {
                    self.batcher.ensure_flusher(&mut queue);
                }
            }
            let mut calls = batch.into_calls();
            match calls.pop() {
                // Boxed: the task is moved several times before it runs.
                Some(call) if calls.is_empty() => Box::pin(self.batcher.send(call)).await,
                last => {
                    let sends = calls.into_iter().chain(last).map(|call| self.batcher.send(call));
                    join_all(sends).await;
                }
            }
        }
        self.working = false;
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        // The runtime ends with this task: a task of another runtime may send the waiting steps.
        if self.working {
            let mut queue = self.batcher.queue();
            queue.flushers -= 1;
            // Otherwise no step would ever schedule another one.
            queue.flusher_scheduled &= self.began;
        }
    }
}

#[cfg(test)]
mod tests;
