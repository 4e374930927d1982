//! One pipelined connection to one node, on the runtime that opened it.
//!
//! A task connects, and reconnects without end. [`RedisConnection`] tracks whether the connection is up,
//! so that no caller waits for one that is down. `docs/design/redis-client.md` says why weir does
//! this itself.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::batch::ScriptCall;
use super::command::{PlainCommands, encode};
use super::config::NodeConfig;
use super::error::{CallError, is_function_missing};
use super::function_use::{CallForm, FunctionUse};
use super::metrics::NodeMetrics;
use super::name::CounterName;
use super::quota;
use super::reply::{Reply, ReplyBound};
use super::script::{self, Script};
use crate::store::StoreError;
use crate::time::SystemClock;

mod driver;
mod pipeline;

use driver::Driver;
use pipeline::{PipelinedCommands, ResultOf};

/// The most commands that wait to be written. A batcher has few; the rest are redirected calls.
const QUEUE_MAX: usize = 4096;

/// One connection to one node.
#[derive(Debug)]
pub(super) struct RedisConnection {
    address: String,
    queue: mpsc::Sender<PipelinedCommands>,
    state: watch::Receiver<ConnectionState>,
    /// Asks the task to drop the connection and to open a new one.
    reconnect: Arc<Notify>,
    metrics: Arc<NodeMetrics>,
    functions: Arc<FunctionUse>,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    /// Connecting for the first time.
    Opening,
    Up,
    /// Lost; being reconnected.
    Down,
    /// Closed for good.
    Closed,
}

impl RedisConnection {
    /// Starts to connect, and reconnects until `closed` turns true or its sender is dropped. All
    /// connections to a node share its metrics and what is known about its functions.
    pub(super) fn open(
        config: &NodeConfig,
        address: &str,
        closed: watch::Receiver<bool>,
        (metrics, functions): (Arc<NodeMetrics>, Arc<FunctionUse>),
        clock: SystemClock,
    ) -> Arc<RedisConnection> {
        let (state_sender, state) = watch::channel(ConnectionState::Opening);
        let (queue, receiver) = mpsc::channel(QUEUE_MAX);
        let reconnect = Arc::new(Notify::new());
        let driver = Driver::new(config.clone(), address, state_sender, reconnect.clone(), clock);
        tokio::spawn(driver.run(receiver, closed));
        let address = address.to_owned();
        Arc::new(RedisConnection { address, queue, state, reconnect, metrics, functions })
    }

    /// Whether the connection is up.
    pub(super) fn is_up(&self) -> bool {
        *self.state.borrow() == ConnectionState::Up
    }

    /// Whether the connection is closed for good.
    pub(super) fn is_closed(&self) -> bool {
        *self.state.borrow() == ConnectionState::Closed || self.state.has_changed().is_err()
    }

    /// Waits for the first connection to open, but not for a lost one to return.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] unless the connection is up.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        let state = *self.state.borrow();
        match state {
            ConnectionState::Up => Ok(()),
            ConnectionState::Down | ConnectionState::Closed => Err(StoreError::Unreachable),
            ConnectionState::Opening => {
                let mut state = self.state.clone();
                let opened = state.wait_for(|state| *state != ConnectionState::Opening).await;
                match opened.as_deref() {
                    Ok(ConnectionState::Up) => Ok(()),
                    _ => Err(StoreError::Unreachable),
                }
            }
        }
    }

    /// Waits until the connection is up. Returns `None` if it is closed for good.
    pub(super) async fn up(&self) -> Option<()> {
        let mut state = self.state.clone();
        let is_final = |state: &ConnectionState| {
            matches!(state, ConnectionState::Up | ConnectionState::Closed)
        };
        let state = state.wait_for(is_final).await;
        state.is_ok_and(|state| *state == ConnectionState::Up).then_some(())
    }

    /// Waits until the connection is not up.
    pub(super) async fn down(&self) {
        let mut state = self.state.clone();
        let _ = state.wait_for(|state| *state != ConnectionState::Up).await;
    }

    /// How to call scripts now.
    pub(super) fn call_form(&self) -> CallForm {
        self.functions.form()
    }

    /// Calls a script, or the function that does the same, and returns its reply.
    pub(super) async fn call<K: AsRef<[u8]>, T>(
        &self,
        call: &ScriptCall<K, T>,
        form: CallForm,
    ) -> Result<Bytes, CallError> {
        self.metrics.count(call.steps(), call.combined(), form);
        let command = PlainCommands { bytes: step_command(call, form), replies: 1 };
        reply_bytes(self.send(command, ReplyBound::USUAL, ResultOf::Last).await?)
    }

    /// Calls a script after `ASKING`, which a node that imports the hash slot requires.
    pub(super) async fn call_asking<K: AsRef<[u8]>, T>(
        &self,
        call: &ScriptCall<K, T>,
    ) -> Result<Bytes, CallError> {
        self.metrics.count(call.steps(), call.combined(), CallForm::Script);
        let command = PlainCommands { bytes: step_command(call, CallForm::Script), replies: 1 };
        let commands = command.after_asking();
        reply_bytes(self.send(commands, ReplyBound::USUAL, ResultOf::Last).await?)
    }

    /// Calls the script of quotas for the quota `name`, or the function that does the same.
    pub(super) async fn settle(
        &self,
        name: &CounterName,
        argument: &[u8],
        form: CallForm,
    ) -> Result<Bytes, CallError> {
        self.metrics.count(0, 0, form);
        let bytes = call_command(Script::Quota, form, [name.as_ref()], [argument]);
        let command = PlainCommands { bytes, replies: 1 };
        reply_bytes(self.send(command, quota::SETTLED, ResultOf::Last).await?)
    }

    /// Calls the script of quotas after `ASKING`, which a node that imports the hash slot requires.
    pub(super) async fn settle_asking(
        &self,
        name: &CounterName,
        argument: &[u8],
    ) -> Result<Bytes, CallError> {
        self.metrics.count(0, 0, CallForm::Script);
        let bytes = call_command(Script::Quota, CallForm::Script, [name.as_ref()], [argument]);
        let commands = PlainCommands { bytes, replies: 1 }.after_asking();
        reply_bytes(self.send(commands, quota::SETTLED, ResultOf::Last).await?)
    }

    /// Drops the connection and opens a new one.
    pub(super) fn reconnect(&self) {
        self.reconnect.notify_one();
    }

    /// Loads a script on the node.
    pub(super) async fn load(&self, script: Script) -> Result<(), CallError> {
        let words: [&[u8]; 3] = [b"SCRIPT", b"LOAD", script.source().as_bytes()];
        self.command(&words, ReplyBound::USUAL).await?;
        Ok(())
    }

    /// Loads the library on the node unless it is there, and records whether a function can be
    /// called. The library of another version stays.
    pub(super) async fn load_functions(&self) {
        let mut ran = self.call_no_steps().await;
        if ran.as_ref().is_err_and(is_function_missing) {
            let text = script::library().text.as_bytes();
            let words: [&[u8]; 3] = [b"FUNCTION", b"LOAD", text];
            let loaded = self.command(&words, ReplyBound::USUAL).await;
            ran = self.call_no_steps().await;
            // Another instance may have loaded it meanwhile. Then this command failed, but the
            // function runs. If the function is still missing, the failure is the cause.
            if let Err(cause) = loaded
                && ran.is_err()
            {
                ran = Err(cause);
            }
        }
        self.functions.record(&self.address, ran);
    }

    /// Calls a function without steps, which shows that functions can be called.
    async fn call_no_steps(&self) -> Result<(), CallError> {
        let words: [&[u8]; 3] = [b"FCALL", Script::Entries.function().as_bytes(), b"0"];
        reply_bytes(self.command(&words, ReplyBound::USUAL).await?)?;
        Ok(())
    }

    /// Sends a command whose reply is within `bound`.
    pub(super) async fn command(
        &self,
        words: &[&[u8]],
        bound: ReplyBound,
    ) -> Result<Reply, CallError> {
        self.send(PlainCommands::one(words), bound, ResultOf::Last).await
    }

    /// Sends commands whose replies are each within `bound`. The result is the first error reply, or
    /// the last reply.
    pub(super) async fn commands(
        &self,
        commands: PlainCommands,
        bound: ReplyBound,
    ) -> Result<Reply, CallError> {
        self.send(commands, bound, ResultOf::FirstError).await
    }

    /// Sends commands, and waits for the last of their replies. Sends nothing while the connection
    /// is down, because the commands would run long after their caller left.
    async fn send(
        &self,
        commands: PlainCommands,
        bound: ReplyBound,
        result_of: ResultOf,
    ) -> Result<Reply, CallError> {
        if !self.is_up() {
            return Err(CallError::NotSent);
        }
        let PlainCommands { bytes, replies } = commands;
        let (reply, receiver) = oneshot::channel();
        let commands = PipelinedCommands { bytes, replies, bound, result_of, reply };
        self.queue.try_send(commands).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => CallError::Busy,
            mpsc::error::TrySendError::Closed(_) => CallError::NotSent,
        })?;
        receiver.await.unwrap_or(Err(CallError::Lost))
    }
}

/// The command that runs the steps of `call`.
fn step_command<K: AsRef<[u8]>, T>(call: &ScriptCall<K, T>, form: CallForm) -> Vec<u8> {
    let names = call.keys().map(|key| key.as_ref());
    call_command(call.script(), form, names, call.arguments())
}

/// The command that calls a script, or the function that does the same.
fn call_command<'a>(
    script: Script,
    form: CallForm,
    keys: impl IntoIterator<Item = &'a [u8]>,
    arguments: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let (name, script) = match form {
        CallForm::Function => (&b"FCALL"[..], script.function()),
        CallForm::Script => (&b"EVALSHA"[..], script.sha1()),
    };
    let mut words = vec![name, script.as_bytes(), b""];
    for key in keys {
        words.push(key);
    }
    let count = (words.len() - 3).to_string();
    words[2] = count.as_bytes();
    for argument in arguments {
        words.push(argument);
    }
    encode(&words)
}

/// The string that a script replies.
pub(super) fn reply_bytes(reply: Reply) -> Result<Bytes, CallError> {
    match reply {
        Reply::Text(bytes) => Ok(bytes),
        _ => Err(CallError::Unexpected),
    }
}
