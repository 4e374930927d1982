//! The task of one connection: connects, runs the session, and reconnects until it is closed.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;

use super::ConnectionState;
use super::pipeline::{self, PipelinedCommands, SessionEnd};
use crate::outage_log::OutageLog;
use crate::store::redis::config::{HostPort, NodeConfig, Target};
use crate::store::redis::error::{CallError, ConnectionError};
use crate::store::redis::sentinel;
use crate::store::redis::session::RedisSession;
use crate::time::{Clock, SystemClock};

/// First and longest pause between attempts to connect, in milliseconds.
const BACKOFF_MS: (u64, u64) = (50, 500);

/// Random addition to each pause, in milliseconds, so that a fleet does not reconnect in step.
const JITTER_MS: u64 = 50;

/// The shortest session that a request to reconnect ends. A server that stays a replica must not cause
/// one connection after the other.
const SESSION_MIN: Duration = Duration::from_secs(1);

/// A connection's task.
pub(super) struct Driver {
    config: NodeConfig,
    address: String,
    state: watch::Sender<ConnectionState>,
    reconnect: Arc<Notify>,
    clock: SystemClock,
    log: OutageLog,
    /// Sentinels that the sentinels of the URL know.
    sentinels: Vec<HostPort>,
}

impl Driver {
    /// A task that has not started.
    pub(super) fn new(
        config: NodeConfig,
        address: &str,
        state: watch::Sender<ConnectionState>,
        reconnect: Arc<Notify>,
        clock: SystemClock,
    ) -> Driver {
        let (log, sentinels) = (OutageLog::default(), Vec::new());
        Driver { config, address: address.to_owned(), state, reconnect, clock, log, sentinels }
    }

    /// Runs until `closed` turns true or its sender is dropped, or every sender of commands is
    /// dropped.
    pub(super) async fn run(
        mut self,
        mut queue: mpsc::Receiver<PipelinedCommands>,
        mut closed: watch::Receiver<bool>,
    ) {
        tokio::select! {
            () = self.keep_open(&mut queue) => {}
            () = until_closed(&mut closed) => {}
        }
        self.state.send_replace(ConnectionState::Closed);
        fail_unsent(&mut queue);
    }

    /// Keeps the connection open until every sender of commands is dropped.
    async fn keep_open(&mut self, queue: &mut mpsc::Receiver<PipelinedCommands>) {
        let mut pause = BACKOFF_MS.0;
        loop {
            let error = match self.open().await {
                Err(error) => error,
                Ok(session) => {
                    self.set_up();
                    let SessionEnd { error, answered } = self.serve(session, queue).await;
                    let Some(error) = error else { return };
                    // A server that only accepts connections is not asked faster and faster.
                    if answered {
                        pause = BACKOFF_MS.0;
                    }
                    error
                }
            };
            self.set_down(&error);
            fail_unsent(queue);
            sleep(Duration::from_millis(pause + jitter())).await;
            pause = (2 * pause).min(BACKOFF_MS.1);
        }
    }

    /// Connects and logs in.
    async fn open(&mut self) -> Result<RedisSession, ConnectionError> {
        let access = &self.config.access;
        match &self.config.target {
            Target::Tcp(address) => RedisSession::open(address, access).await,
            Target::Unix(path) => {
                let mut session = RedisSession::connect_unix(path).await?;
                session.log_in(access).await?;
                Ok(session)
            }
            Target::Sentinel(sentinels) => {
                sentinel::open_primary(sentinels, &mut self.sentinels, access).await
            }
        }
    }

    async fn serve(
        &self,
        session: RedisSession,
        queue: &mut mpsc::Receiver<PipelinedCommands>,
    ) -> SessionEnd {
        // A request from the time of the previous session.
        let _ = self.reconnect.notified().now_or_never();
        let asked = async {
            sleep(SESSION_MIN).await;
            self.reconnect.notified().await;
        };
        tokio::select! {
            end = pipeline::run(session, queue) => end,
            () = asked => {
                let error = ConnectionError::new("the node is no longer a primary");
                SessionEnd { error: Some(error), answered: true }
            }
        }
    }

    /// Publishes that the connection is up.
    fn set_up(&mut self) {
        self.state.send_replace(ConnectionState::Up);
        if self.log.up() {
            tracing::info!(node = %self.address, "reconnected to Redis");
        }
    }

    /// Publishes that the connection is down.
    fn set_down(&mut self, error: &ConnectionError) {
        self.state.send_replace(ConnectionState::Down);
        if self.log.down(&error.to_string(), self.clock.now()) {
            tracing::warn!(node = %self.address, %error, "no connection to Redis");
        }
    }
}

async fn until_closed(closed: &mut watch::Receiver<bool>) {
    let _ = closed.wait_for(|closed| *closed).await;
}

/// Fails the commands that were not sent.
fn fail_unsent(queue: &mut mpsc::Receiver<PipelinedCommands>) {
    while let Ok(commands) = queue.try_recv() {
        let _ = commands.reply.send(Err(CallError::NotSent));
    }
}

fn jitter() -> u64 {
    RandomState::new().hash_one(0) % JITTER_MS
}
