//! A connection: one pipelined connection to one node, on the runtime that opened it.
//!
//! fred keeps the connection up for ever; the connection knows whether it is up, so that nobody waits for
//! one that is not.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use fred::bytes_utils::Str;
use fred::clients::{Client, WithOptions};
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike, EventInterface, LuaInterface};
use fred::prelude::Builder;
use fred::types::config::{Config, Options, ReconnectPolicy, UnresponsiveConfig};
use fred::types::{ClusterHash, CustomCommand, Value};
use tokio::sync::watch;

use super::batch::ScriptCall;
use super::batcher::Queue;
use super::script::Script;
use super::stats::AtomicStats;
use crate::store::StoreError;

/// How long a connection may take to open, and the commands that set it up. Longer than any live
/// server takes; shorter than what people wait for after a failover.
const CONNECT: Duration = Duration::from_secs(2);

/// How long a connection may owe an answer before it is closed: one end may have lost it without
/// the other noticing. Callers have given up long before.
const UNRESPONSIVE: Duration = Duration::from_secs(2);

/// How often fred looks for such connections.
const UNRESPONSIVE_CHECK: Duration = Duration::from_millis(500);

/// Waits between attempts to connect, in milliseconds: the first and the longest.
const BACKOFF_MS: (u32, u32) = (50, 500);

/// Added to each wait, at random up to this many milliseconds, so that a fleet does not call in step.
const JITTER_MS: u32 = 50;

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    calls: WithOptions<Client>,
    state: watch::Receiver<State>,
    queue: Queue,
    /// The most steps that one call carries.
    steps_max: usize,
    stats: Arc<AtomicStats>,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not open yet, for the first time.
    Opening,
    Up,
    /// It was open, and will be again.
    Down,
    /// For good.
    Closed,
}

impl Connection {
    /// Begins to connect, and goes on until `gone` says so or is dropped. Nothing only if the
    /// settings make no client.
    pub(super) fn open(
        config: &Config,
        label: &str,
        gone: watch::Receiver<bool>,
        steps_max: usize,
        stats: Arc<AtomicStats>,
    ) -> Option<Arc<Connection>> {
        let client = client(config.clone())?;
        let (told, state) = watch::channel(State::Opening);
        tokio::spawn(keep_up(client.clone(), told, gone, label.to_owned()));
        // One attempt: a call whose connection was lost may have run, and is not sent again. And
        // none while there is no connection: it would run long after its caller has gone.
        let options = Options { max_attempts: Some(1), fail_fast: true, ..Options::default() };
        let calls = client.with_options(&options);
        let queue = Queue::default();
        Some(Arc::new(Connection { calls, client, state, queue, steps_max, stats }))
    }

    /// The steps that wait for it.
    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The most steps that one call carries.
    pub(super) fn steps_max(&self) -> usize {
        self.steps_max
    }

    /// It is up.
    pub(super) fn is_up(&self) -> bool {
        *self.state.borrow() == State::Up
    }

    /// It will never be up again.
    pub(super) fn is_closed(&self) -> bool {
        *self.state.borrow() == State::Closed || self.state.has_changed().is_err()
    }

    /// Ready to be asked. Waits for a connection that is being opened for the first time, but not
    /// for one that was lost.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        let state = *self.state.borrow();
        match state {
            State::Up => Ok(()),
            State::Down | State::Closed => Err(StoreError::Unreachable),
            State::Opening => {
                let mut state = self.state.clone();
                let opened = state.wait_for(|state| *state != State::Opening).await;
                match opened.as_deref() {
                    Ok(State::Up) => Ok(()),
                    _ => Err(StoreError::Unreachable),
                }
            }
        }
    }

    /// Waits until it is up. Nothing, if it never will be.
    pub(super) async fn up(&self) -> Option<()> {
        let mut state = self.state.clone();
        let state = state.wait_for(|state| matches!(state, State::Up | State::Closed)).await;
        state.is_ok_and(|state| *state == State::Up).then_some(())
    }

    /// Waits until it is not.
    pub(super) async fn down(&self) {
        let mut state = self.state.clone();
        let _ = state.wait_for(|state| *state != State::Up).await;
    }

    /// Makes a call: the script's answer.
    pub(super) async fn call<K: AsRef<[u8]>, T>(
        &self,
        call: &mut ScriptCall<K, T>,
    ) -> Result<Bytes, Error> {
        self.stats.count(call.steps(), call.shared());
        let keys: Vec<fred::types::Key> = call.keys().map(|key| key.as_ref().into()).collect();
        let arguments: Vec<Value> =
            call.take_arguments().map(|argument| Value::Bytes(argument.into())).collect();
        answer(self.calls.evalsha(hash(call.script()), keys, arguments).await?)
    }

    /// The same on a node that takes the slot over: it answers only who says that it was sent.
    pub(super) async fn call_asking<K: AsRef<[u8]>, T>(
        &self,
        call: &mut ScriptCall<K, T>,
    ) -> Result<Bytes, Error> {
        self.stats.count(call.steps(), call.shared());
        let pipeline = self.client.pipeline();
        let asking = CustomCommand::new_static("ASKING", ClusterHash::FirstKey, false);
        let _: () = pipeline.custom(asking, Vec::<Value>::new()).await?;
        let run = CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
        let mut words = vec![Value::String(hash(call.script()))];
        let keys: Vec<Value> =
            call.keys().map(|key| Value::Bytes(Bytes::copy_from_slice(key.as_ref()))).collect();
        words.push(Value::Integer(i64::try_from(keys.len()).unwrap_or(i64::MAX)));
        words.extend(keys);
        words.extend(call.take_arguments().map(|argument| Value::Bytes(argument.into())));
        let _: () = pipeline.custom(run, words).await?;
        answer(pipeline.last().await?)
    }

    /// Drops the connection and makes a new one.
    pub(super) fn renew(&self) {
        let client = self.client.clone();
        tokio::spawn(async move { client.force_reconnection().await });
    }

    /// Teaches the node a script.
    pub(super) async fn load(&self, source: &'static str) -> Result<(), Error> {
        let _: Value = self.calls.script_load(source).await?;
        Ok(())
    }

    /// Any command without a key.
    pub(super) async fn command(
        &self,
        words: &'static str,
        arguments: Vec<Value>,
    ) -> Result<Value, Error> {
        let command = CustomCommand::new_static(words, ClusterHash::FirstKey, false);
        self.calls.custom(command, arguments).await
    }
}

/// What Redis calls a script.
fn hash(script: Script) -> Str {
    static HASHES: LazyLock<[Str; 4]> =
        LazyLock::new(|| Script::ALL.map(|script| script.sha1().into()));
    HASHES[script as usize].clone()
}

/// The string that a script answers with.
fn answer(value: Value) -> Result<Bytes, Error> {
    match value {
        Value::Bytes(bytes) => Ok(bytes),
        Value::String(text) => Ok(text.into_inner()),
        _ => Err(Error::new(ErrorKind::Parse, "not the answer of a script of this version")),
    }
}

/// A connection that is not open yet.
pub(super) fn client(config: Config) -> Option<Client> {
    let mut builder = Builder::from_config(config);
    builder.with_connection_config(|connection| {
        connection.connection_timeout = CONNECT;
        connection.internal_command_timeout = CONNECT;
        connection.max_command_attempts = 1;
        // Ours to follow, because fred would stop all other calls while it does.
        connection.max_redirections = 0;
        connection.tcp.nodelay = Some(true);
        connection.unresponsive =
            UnresponsiveConfig { max_timeout: Some(UNRESPONSIVE), interval: UNRESPONSIVE_CHECK };
    });
    let mut policy = ReconnectPolicy::new_exponential(0, BACKOFF_MS.0, BACKOFF_MS.1, 2);
    policy.set_jitter(JITTER_MS);
    builder.set_policy(policy);
    builder.build().ok()
}

/// Drives a connection until the node has gone, and tells how it is.
async fn keep_up(
    client: Client,
    told: watch::Sender<State>,
    mut gone: watch::Receiver<bool>,
    label: String,
) {
    let mut errors = client.error_rx();
    let mut connections = client.reconnect_rx();
    let mut wait = BACKOFF_MS.0;
    loop {
        let mut driver = client.connect();
        loop {
            tokio::select! {
                // Of a failure and a success at once the success is believed: if that is wrong, the
                // next attempt tells.
                biased;
                _ = gone.wait_for(|gone| *gone) => {
                    driver.abort();
                    told.send_replace(State::Closed);
                    return;
                }
                error = errors.recv() => {
                    if let Ok((error, _)) = error {
                        lost(&told, &label, &error);
                    }
                }
                Ok(_) = connections.recv() => {
                    wait = BACKOFF_MS.0;
                    if told.send_replace(State::Up) == State::Down {
                        tracing::info!(node = %label, "connected to Redis again");
                    }
                }
                _ = &mut driver => break,
            }
        }
        // The first attempt failed, or an error that fred takes for final came. To us none is: a
        // server that is no cluster today may be one tomorrow.
        while let Ok((error, _)) = errors.try_recv() {
            lost(&told, &label, &error);
        }
        told.send_replace(State::Down);
        tokio::time::sleep(Duration::from_millis(wait.into())).await;
        wait = (wait * 2).min(BACKOFF_MS.1);
    }
}

/// Tells that a connection is down, and logs it when it was not before.
fn lost(told: &watch::Sender<State>, label: &str, error: &Error) {
    if told.send_replace(State::Down) != State::Down {
        tracing::warn!(node = %label, %error, "no connection to Redis");
    }
}
