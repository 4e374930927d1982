//! Counters in Redis: a step is one atomic call of a script or a function on the node that owns its
//! key. So is a settlement of a quota.
//!
//! Each worker has its own connections to each node, and each connection has its own task, so a
//! node that fails delays no call to another node. Whatever bytes a server sends, a connection keeps
//! a bounded number of them (`reply.rs`). `docs/design/redis-client.md` has the reasons for this
//! client.
//!
//! **Invariant:** a call that may have run is never sent again. A call is repeated only after a
//! reply of the node that shows that it did not run.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{NodeAware, NodeId, QuotaStore, SharedStore, StoreError, detach, with_timeout};
use crate::key::{CounterKey, RuleId};
use crate::quota::{LedgerSnapshot, Settlement};
use crate::settings::RedisSettings;
use crate::step::{Outcome, Step};
use crate::time::{Micros, SystemClock};

pub mod batch;
mod batcher;
mod command;
mod config;
mod connection;
mod discovery;
mod error;
mod function_use;
#[cfg(feature = "fuzz")]
pub mod fuzz_harness;
mod metrics;
mod name;
mod node;
mod plain_command;
pub mod quota;
mod quota_rules;
mod reply;
mod router;
pub(crate) mod rtt_samples;
pub mod script;
mod sentinel;
mod session;
mod topology;

pub use self::config::RedisConfigError;
pub(crate) use batcher::FLUSHERS_MAX;
pub use metrics::NodeSnapshot;
pub(crate) use name::{HASH_TAGS, NAME_BYTES};
pub use plain_command::{CommandBound, RedisValue};
pub use quota_rules::QUOTA_RULES_MAX;

use self::config::RedisConfig;
use command::PlainCommands;
use name::{CounterName, hash_slot, hash_slot_of};
use router::Router;

/// Counters in Redis. Dropping it closes its connections.
#[derive(Debug)]
pub struct RedisStore {
    router: Arc<Router>,
    /// Ends discovery when dropped.
    _discovery: oneshot::Sender<()>,
}

impl RedisStore {
    /// Starts to connect and returns at once. Calls fail while there is no connection; reconnecting
    /// never ends. Each of `workers` gets its share of the connections to a node, at least one.
    /// `clock` reads the local instants that callers pass to [`SharedStore::now`].
    ///
    /// # Errors
    /// A file of the settings that cannot be used, or a discovery thread that cannot be started.
    pub fn start(
        settings: &RedisSettings,
        workers: usize,
        clock: SystemClock,
    ) -> Result<RedisStore, RedisConfigError> {
        let config = RedisConfig::new(settings)?;
        let connections = settings.min_connections_per_node.div_ceil(workers.max(1));
        let (batch, label) = (settings.max_batch_size, config.address());
        let router = Arc::new(Router::new(clock, connections, batch, label));
        let (alive, dropped) = oneshot::channel::<()>();
        let discovered = router.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("weir-redis".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = discovery::run(discovered.clone(), config) => {}
                    _ = dropped => {}
                }
                discovered.topology().nodes().iter().for_each(|node| node.close());
            });
        })?;
        Ok(RedisStore { router, _discovery: alive })
    }

    /// Loads the files that `settings` name, as [`RedisStore::start`] does: the password and certificates.
    ///
    /// # Errors
    /// A file that cannot be read or used.
    pub fn check_files(settings: &RedisSettings) -> Result<(), RedisConfigError> {
        RedisConfig::new(settings).map(drop)
    }

    /// Whether at least one node has an open connection.
    pub fn is_reachable(&self) -> bool {
        self.router.topology().nodes().iter().any(|node| node.is_up())
    }

    /// The Redis key of the counter `key`.
    pub fn name_of(&self, key: &CounterKey) -> String {
        String::from_utf8_lossy(CounterName::of(key).as_ref()).into_owned()
    }

    /// The Redis key `weir:{tag}rest`, in the hash slot of the counter `key`.
    pub fn name_beside(key: &CounterKey, rest: &str) -> String {
        name::name_beside(key, rest)
    }

    /// The nodes that own counters, with their addresses. Before the first discovery, the servers of
    /// the settings stand for them.
    pub fn nodes(&self) -> Vec<(NodeId, String)> {
        self.router.nodes()
    }

    /// Sends one command to the node that owns `key`, and follows redirects. It is sent again only
    /// after a reply that shows that it did not run. No breaker bounds such calls;
    /// [`GuardedStore::command`](super::GuardedStore::command) has one.
    ///
    /// # Errors
    /// The reason why there is no reply. [`StoreError::may_have_run`] returns whether the command may
    /// have run. The log has the text of an error reply.
    pub async fn command(
        &self,
        key: &str,
        words: &[&[u8]],
        bound: CommandBound,
    ) -> Result<RedisValue, StoreError> {
        self.send(key, &PlainCommands::one(words), bound).await
    }

    /// Runs `commands` as one transaction on the node that owns `key`, and returns their replies. All of
    /// their keys need the hash tag of `key`. Of an invalid command, none runs.
    ///
    /// # Errors
    /// The errors of [`RedisStore::command`]. [`StoreError::InvalidReply`] also if a command failed when
    /// it ran, for example on a key of another type; the others ran.
    pub async fn transaction(
        &self,
        key: &str,
        commands: &[&[&[u8]]],
        bound: CommandBound,
    ) -> Result<Vec<RedisValue>, StoreError> {
        match self.send(key, &PlainCommands::transaction(commands), bound).await? {
            RedisValue::List(replies) if replies.len() == commands.len() => Ok(replies),
            _ => Err(StoreError::InvalidReply),
        }
    }

    /// Sends one command without a key, such as `SCAN`, to `node`.
    ///
    /// # Errors
    /// The errors of [`RedisStore::command`]; [`StoreError::Unreachable`] also if the node has left.
    pub async fn command_on(
        &self,
        node: NodeId,
        words: &[&[u8]],
        bound: CommandBound,
    ) -> Result<RedisValue, StoreError> {
        let command = PlainCommands::one(words);
        let sent = self.router.plain_on(node, &command, bound.reply());
        RedisValue::of(with_timeout(bound.timeout, sent).await?)
    }

    /// The node that owns the key `name`.
    pub(super) fn node_of(&self, name: &str) -> NodeId {
        self.router.node_of_slot(hash_slot_of(name.as_bytes()))
    }

    async fn send(
        &self,
        key: &str,
        commands: &PlainCommands,
        bound: CommandBound,
    ) -> Result<RedisValue, StoreError> {
        let slot = hash_slot_of(key.as_bytes());
        let sent = self.router.plain(slot, commands, bound.reply());
        RedisValue::of(with_timeout(bound.timeout, sent).await?)
    }

    /// Totals of what was sent to `node`.
    pub fn node_snapshot(&self, node: NodeId) -> NodeSnapshot {
        self.router.node_snapshot(node)
    }
}

impl NodeAware for RedisStore {
    fn node(&self, key: &CounterKey) -> NodeId {
        self.router.node_id(key)
    }

    fn node_address(&self, node: NodeId) -> String {
        self.router.address_of(node)
    }
}

impl SharedStore for RedisStore {
    fn now(&self, key: &CounterKey, local: Micros) -> Result<Micros, StoreError> {
        let topology = self.router.topology();
        let node = topology.owner(hash_slot(key)).ok_or(StoreError::Unreachable)?;
        node.now(local).ok_or(StoreError::Unreachable)
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }

    async fn apply_within(
        &self,
        key: &CounterKey,
        step: &Step,
        timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        let call = self.router.apply(key, step);
        match timeout {
            None => call.await,
            Some(timeout) => with_timeout(timeout, call).await,
        }
    }

    fn apply_detached(&self, key: &CounterKey, step: Step) {
        let (router, key) = (self.router.clone(), *key);
        // Hits that are not given back expire.
        detach(async move { drop(router.apply(&key, &step).await) });
    }

    async fn delete(&self, key: &CounterKey) -> Result<bool, StoreError> {
        self.router.delete(key).await
    }
}

impl QuotaStore for RedisStore {
    async fn settle(
        &self,
        key: &CounterKey,
        settlement: &Settlement,
    ) -> Result<LedgerSnapshot, StoreError> {
        self.router.settle(key, settlement).await
    }

    async fn announce_quota_rules(
        &self,
        rules: &[RuleId],
        local: Micros,
        length: Micros,
    ) -> Result<(), StoreError> {
        self.router.announce_quota_rules(rules, local, length).await
    }

    async fn quota_rules(&self, local: Micros) -> Result<Vec<RuleId>, StoreError> {
        self.router.quota_rules(local).await
    }
}
