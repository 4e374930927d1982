//! One pipelined connection to one node, on the runtime that opened it.
//!
//! fred reconnects without end. [`Connection`] tracks whether the connection is up, so that no
//! caller waits for one that is down.

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
use super::script::Script;
use super::stats::AtomicStats;
use crate::store::StoreError;

/// Timeout for connecting and for the commands that set the connection up. A live server needs far
/// less; operators wait longer after a failover.
const CONNECT: Duration = Duration::from_secs(2);

/// How long a reply may be missing before the connection is closed. One end may have lost the
/// connection without the other noticing. The callers' timeouts are far shorter.
const UNRESPONSIVE: Duration = Duration::from_secs(2);

/// How often fred checks for unresponsive connections.
const UNRESPONSIVE_CHECK: Duration = Duration::from_millis(500);

/// First and longest pause between attempts to connect, in milliseconds.
const BACKOFF_MS: (u32, u32) = (50, 500);

/// Random addition to each pause, in milliseconds, so that a fleet does not reconnect in step.
const JITTER_MS: u32 = 50;

/// One connection to one node.
#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    calls: WithOptions<Client>,
    state: watch::Receiver<ConnectionState>,
    stats: Arc<AtomicStats>,
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

impl Connection {
    /// Starts to connect, and reconnects until `closed` turns true or its sender is dropped.
    /// Returns `None` if the settings are invalid.
    pub(super) fn open(
        config: &Config,
        label: &str,
        closed: watch::Receiver<bool>,
        stats: Arc<AtomicStats>,
    ) -> Option<Arc<Connection>> {
        let client = client(config.clone())?;
        let (state_sender, state) = watch::channel(ConnectionState::Opening);
        tokio::spawn(drive(client.clone(), state_sender, closed, label.to_owned()));
        // One attempt, because a call on a lost connection may have run. No attempt without a
        // connection, because the call would run long after its caller left.
        let options = Options { max_attempts: Some(1), fail_fast: true, ..Options::default() };
        let calls = client.with_options(&options);
        Some(Arc::new(Connection { client, calls, state, stats }))
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

    /// Calls a script and returns its reply. Takes the arguments out of `call`.
    pub(super) async fn call<K: AsRef<[u8]>, T>(
        &self,
        call: &mut ScriptCall<K, T>,
    ) -> Result<Bytes, Error> {
        self.stats.count(call.steps(), call.combined());
        let keys: Vec<fred::types::Key> = call.keys().map(|key| key.as_ref().into()).collect();
        let arguments: Vec<Value> =
            call.take_arguments().map(|argument| Value::Bytes(argument.into())).collect();
        reply_bytes(self.calls.evalsha(hash(call.script()), keys, arguments).await?)
    }

    /// Calls a script after `ASKING`, which a node that imports the hash slot requires.
    pub(super) async fn call_asking<K: AsRef<[u8]>, T>(
        &self,
        call: &mut ScriptCall<K, T>,
    ) -> Result<Bytes, Error> {
        self.stats.count(call.steps(), call.combined());
        let pipeline = self.client.pipeline();
        let asking = CustomCommand::new_static("ASKING", ClusterHash::FirstKey, false);
        let _: () = pipeline.custom(asking, Vec::<Value>::new()).await?;
        let evalsha = CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
        let mut words = vec![Value::String(hash(call.script()))];
        let keys: Vec<Value> =
            call.keys().map(|key| Value::Bytes(Bytes::copy_from_slice(key.as_ref()))).collect();
        words.push(Value::Integer(i64::try_from(keys.len()).unwrap_or(i64::MAX)));
        words.extend(keys);
        words.extend(call.take_arguments().map(|argument| Value::Bytes(argument.into())));
        let _: () = pipeline.custom(evalsha, words).await?;
        reply_bytes(pipeline.last().await?)
    }

    /// Drops the connection and opens a new one.
    pub(super) fn reconnect(&self) {
        let client = self.client.clone();
        tokio::spawn(async move { client.force_reconnection().await });
    }

    /// Loads a script on the node.
    pub(super) async fn load(&self, source: &'static str) -> Result<(), Error> {
        let _: Value = self.calls.script_load(source).await?;
        Ok(())
    }

    /// Sends a command that is not routed by a key.
    pub(super) async fn command(
        &self,
        words: &'static str,
        arguments: Vec<Value>,
    ) -> Result<Value, Error> {
        let command = CustomCommand::new_static(words, ClusterHash::FirstKey, false);
        self.calls.custom(command, arguments).await
    }
}

/// The script's SHA-1, by which `EVALSHA` names it.
fn hash(script: Script) -> Str {
    static HASHES: LazyLock<[Str; 4]> =
        LazyLock::new(|| Script::ALL.map(|script| script.sha1().into()));
    HASHES[script as usize].clone()
}

/// The string that a script replies.
fn reply_bytes(value: Value) -> Result<Bytes, Error> {
    match value {
        Value::Bytes(bytes) => Ok(bytes),
        Value::String(text) => Ok(text.into_inner()),
        _ => Err(Error::new(ErrorKind::Parse, "not the reply of a script of this version")),
    }
}

/// A client that is not connected yet. Returns `None` if the settings are invalid.
pub(super) fn client(config: Config) -> Option<Client> {
    let mut builder = Builder::from_config(config);
    builder.with_connection_config(|connection| {
        connection.connection_timeout = CONNECT;
        connection.internal_command_timeout = CONNECT;
        connection.max_command_attempts = 1;
        // The router follows redirects. fred would stop all other calls while it does.
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

/// Drives a connection until it is closed, and publishes its state.
async fn drive(
    client: Client,
    state: watch::Sender<ConnectionState>,
    mut closed: watch::Receiver<bool>,
    label: String,
) {
    let mut errors = client.error_rx();
    let mut connections = client.reconnect_rx();
    let mut pause = BACKOFF_MS.0;
    loop {
        let mut driver = client.connect();
        loop {
            tokio::select! {
                // If a failure and a success are ready together, the success wins. If that is
                // wrong, the next attempt shows it.
                biased;
                _ = closed.wait_for(|closed| *closed) => {
                    driver.abort();
                    state.send_replace(ConnectionState::Closed);
                    return;
                }
                error = errors.recv() => {
                    if let Ok((error, _)) = error {
                        set_down(&state, &label, &error);
                    }
                }
                Ok(_) = connections.recv() => {
                    pause = BACKOFF_MS.0;
                    if state.send_replace(ConnectionState::Up) == ConnectionState::Down {
                        tracing::info!(node = %label, "reconnected to Redis");
                    }
                }
                _ = &mut driver => break,
            }
        }
        // The first attempt failed, or an error occurred that fred treats as final. No error is
        // final here: a server that is not a cluster now may become one.
        while let Ok((error, _)) = errors.try_recv() {
            set_down(&state, &label, &error);
        }
        state.send_replace(ConnectionState::Down);
        tokio::time::sleep(Duration::from_millis(pause.into())).await;
        pause = (pause * 2).min(BACKOFF_MS.1);
    }
}

/// Publishes that the connection is down, and logs the change.
fn set_down(state: &watch::Sender<ConnectionState>, label: &str, error: &Error) {
    if state.send_replace(ConnectionState::Down) != ConnectionState::Down {
        tracing::warn!(node = %label, %error, "no connection to Redis");
    }
}
