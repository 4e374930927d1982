//! Routes steps to the nodes that own their keys, and follows Redis's redirects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;

use super::batch::ScriptCall;
use super::batcher::{self, BatchError, Batcher};
use super::config::{HostPort, NodeConfig, address_text};
use super::error::{CallError, Redirect, RedisError};
use super::function_use::CallForm;
use super::metrics::{NodeMetrics, NodeSnapshot};
use super::name::{CounterName, hash_slot};
use super::node::RedisNode;
use super::reply::ReplyBound;
use super::script::{self, EncodedStep, Script};
use super::topology::Topology;
use crate::key::CounterKey;
use crate::step::{Outcome, Step};
use crate::store::{NodeId, StoreError};
use crate::time::{Clock, Micros, SystemClock};

/// The most times that one step may be sent. A hash slot may move during redirection, and the new
/// owner may lack the script or a connection. The timeout usually ends the call earlier.
const SENDS_MAX: usize = 16;

/// Pause before a step is sent again to a node that cannot serve it yet, or whose redirect names a
/// node that discovery has not connected to.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Addresses from redirects that wait for discovery.
const REDIRECT_TARGETS_MAX: usize = 64;

/// Addresses of nodes since the process started. It bounds what a server can make weir store.
const RECORDS_MAX: usize = 16_384;

/// The node that stands for the servers of the settings while the owner of a counter is unknown.
/// Without a cluster it is the only node.
const UNKNOWN_NODE: NodeId = NodeId(0);

/// State that callers and the discovery thread share: the topology, and a record of each node.
#[derive(Debug)]
pub(super) struct Router {
    clock: SystemClock,
    topology: ArcSwap<Topology>,
    /// Wakes discovery, because the topology changed or may have.
    refresh: Notify,
    /// Connections per node and worker.
    connections: usize,
    /// The most steps per call.
    steps_max: usize,
    /// Addresses that redirects named and discovery has not taken yet.
    redirect_targets: Mutex<Vec<HostPort>>,
    /// The servers of the settings, and every node that was ever discovered, by [`NodeId`].
    records: Mutex<Vec<NodeRecord>>,
    /// When an error reply was last logged, by `clock` in microseconds.
    refusal_logged_at: AtomicU64,
}

/// The data of a node that outlive its departure from the topology, so that they continue when it
/// returns.
#[derive(Debug)]
struct NodeRecord {
    address: String,
    metrics: Arc<NodeMetrics>,
}

/// Where and how a step is sent next.
struct Route {
    node: Arc<RedisNode>,
    mode: SendMode,
}

/// How a step is sent.
#[derive(Clone, Copy)]
enum SendMode {
    /// Sent in one call with other steps for the same node.
    Batched,
    /// Sent in a separate call of its script, which runs where a function may be refused.
    Single,
    /// Sent as a single step after `ASKING`, to the node that imports the hash slot.
    Asking,
}

impl Router {
    /// A router without nodes. `address` is the address in the settings, which stands for the nodes
    /// until they are discovered. A call carries at most `batch` steps, at least one.
    pub(super) fn new(
        clock: SystemClock,
        connections: usize,
        batch: usize,
        address: String,
    ) -> Router {
        Router {
            clock,
            topology: ArcSwap::from_pointee(Topology::unknown()),
            refresh: Notify::new(),
            connections,
            steps_max: batch.max(1),
            redirect_targets: Mutex::default(),
            records: Mutex::new(vec![NodeRecord { address, metrics: Arc::default() }]),
            refusal_logged_at: AtomicU64::new(0),
        }
    }

    /// Applies `step` to the counter `key`.
    pub(super) async fn apply(&self, key: &CounterKey, step: &Step) -> Result<Outcome, StoreError> {
        let (name, encoded) = (CounterName::of(key), EncodedStep::of(step));
        let mut route = Route { node: self.owner(key)?, mode: SendMode::Batched };
        for _ in 0..SENDS_MAX {
            let batcher = route.node.batcher(key);
            let connection = batcher.connection();
            connection.ready().await?;
            let single = || ScriptCall::single(name, &encoded, ());
            // The rare ways are boxed, because every step would have room for their futures.
            let result = match route.mode {
                SendMode::Batched => batcher.apply(self.group(key), name, encoded.clone()).await?,
                SendMode::Single => {
                    let call = single();
                    batcher::single(Box::pin(connection.call(&call, CallForm::Script)).await)
                }
                SendMode::Asking => {
                    batcher::single(Box::pin(connection.call_asking(&single())).await)
                }
            };
            match result {
                Ok(bytes) => {
                    return script::decode(step, &bytes).map_err(|_| StoreError::InvalidReply);
                }
                Err(BatchError::Reply) => return Err(StoreError::InvalidReply),
                Err(BatchError::RetryAlone) => route.mode = SendMode::Single,
                Err(BatchError::Redis(error)) => {
                    let next = self.next_route(route, key, &error, &batcher, encoded.script);
                    route = Box::pin(next).await?;
                }
            }
        }
        Err(StoreError::ErrorReply)
    }

    /// Deletes the counter `key` with `UNLINK`, and returns whether it existed. While a hash slot moves,
    /// Redis may report the key as absent; that is an error here, and the call can be repeated
    /// later.
    pub(super) async fn delete(&self, key: &CounterKey) -> Result<bool, StoreError> {
        let name = CounterName::of(key);
        let mut node = self.owner(key)?;
        for _ in 0..SENDS_MAX {
            let batcher = node.batcher(key);
            batcher.connection().ready().await?;
            let words: [&[u8]; 2] = [b"UNLINK", name.as_ref()];
            let error = match batcher.connection().command(&words, ReplyBound::USUAL).await {
                Ok(reply) => return reply.number().map(|n| n > 0).ok_or(StoreError::InvalidReply),
                Err(error) => error,
            };
            match RedisError::classify(&error) {
                RedisError::Moved(redirect) => match self.find(redirect, &node) {
                    Some(owner) => {
                        self.set_owner(hash_slot(key), &owner);
                        node = owner;
                    }
                    None => node = self.retry_after_refresh(key).await?.node,
                },
                RedisError::Final(_) => return Err(self.log_refusal(&node, &error)),
                _ => return Err(StoreError::ErrorReply),
            }
        }
        Err(StoreError::ErrorReply)
    }

    /// The nodes and hash slots as last discovered.
    pub(super) fn topology(&self) -> Guard<Arc<Topology>> {
        self.topology.load()
    }

    /// Replaces the topology.
    pub(super) fn set_topology(&self, topology: Topology) {
        self.topology.store(Arc::new(topology));
    }

    /// Requests a refresh of the topology.
    pub(super) fn request_refresh(&self) {
        self.refresh.notify_one();
    }

    /// Waits for [`Router::request_refresh`].
    pub(super) async fn refresh_requested(&self) {
        self.refresh.notified().await;
    }

    /// Removes and returns the addresses that redirects named since the last time.
    pub(super) fn take_redirect_targets(&self) -> Vec<HostPort> {
        let mut targets = self.redirect_targets.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *targets)
    }

    /// The present instant of the clock that node clocks are compared with.
    pub(super) fn now(&self) -> Micros {
        self.clock.now()
    }

    /// A node at `address`. A node that returns keeps its id, and so its breaker and its metrics.
    /// Returns `None` for a new one when [`RECORDS_MAX`] is reached.
    pub(super) fn new_node(&self, address: String, config: NodeConfig) -> Option<Arc<RedisNode>> {
        let mut records = self.records();
        let known = records.iter().position(|record| record.address == address);
        if known.is_none() && records.len() >= RECORDS_MAX {
            return None;
        }
        let index = known.unwrap_or_else(|| {
            records.push(NodeRecord { address: address.clone(), metrics: Arc::default() });
            records.len() - 1
        });
        let metrics = records[index].metrics.clone();
        let id = NodeId(u32::try_from(index).unwrap_or(u32::MAX));
        let limits = (self.connections, self.steps_max);
        Some(Arc::new(RedisNode::new(id, address, config, limits, metrics, self.clock)))
    }

    /// The nodes, with their addresses; before the first discovery, the servers of the settings.
    pub(super) fn nodes(&self) -> Vec<(NodeId, String)> {
        let topology = self.topology();
        if topology.nodes().is_empty() {
            return vec![(UNKNOWN_NODE, self.address_of(UNKNOWN_NODE))];
        }
        topology.nodes().iter().map(|node| (node.id(), node.address().to_owned())).collect()
    }

    /// The node that owns `key`; [`UNKNOWN_NODE`] if none is known.
    pub(super) fn node_id(&self, key: &CounterKey) -> NodeId {
        self.topology().owner(hash_slot(key)).map_or(UNKNOWN_NODE, |node| node.id())
    }

    /// Totals of what was sent to `node`; zeros for an unknown one.
    pub(super) fn node_snapshot(&self, node: NodeId) -> NodeSnapshot {
        let records = self.records();
        records.get(node.0 as usize).map(|record| record.metrics.snapshot()).unwrap_or_default()
    }

    /// The address of `node`; empty for an unknown one.
    pub(super) fn address_of(&self, node: NodeId) -> String {
        let records = self.records();
        records.get(node.0 as usize).map(|record| record.address.clone()).unwrap_or_default()
    }

    fn records(&self) -> MutexGuard<'_, Vec<NodeRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self, key: &CounterKey) -> Result<Arc<RedisNode>, StoreError> {
        self.topology().owner(hash_slot(key)).cloned().ok_or(StoreError::Unreachable)
    }

    /// Counters of one group may share a call: all of them, but in a cluster only those of one hash
    /// slot.
    fn group(&self, key: &CounterKey) -> u16 {
        if self.topology().is_cluster() { hash_slot(key) } else { 0 }
    }

    /// Where to send a step again after a reply that shows that it did not run.
    async fn next_route(
        &self,
        route: Route,
        key: &CounterKey,
        error: &CallError,
        batcher: &Batcher,
        script: Script,
    ) -> Result<Route, StoreError> {
        match RedisError::classify(error) {
            RedisError::NoScript => match batcher.connection().load(script).await {
                Ok(()) => Ok(route),
                Err(error) => Err(self.log_refusal(&route.node, &error)),
            },
            // The batcher has loaded the functions several times.
            RedisError::NoFunction => Ok(Route { mode: SendMode::Single, ..route }),
            RedisError::Moved(redirect) => match self.find(redirect, &route.node) {
                Some(node) => {
                    self.set_owner(hash_slot(key), &node);
                    self.request_refresh();
                    Ok(Route { node, mode: SendMode::Batched })
                }
                None => self.retry_after_refresh(key).await,
            },
            RedisError::Ask(redirect) => match self.find(redirect, &route.node) {
                Some(node) => Ok(Route { node, mode: SendMode::Asking }),
                None => self.retry_after_refresh(key).await,
            },
            RedisError::TryAgain | RedisError::Loading => {
                tokio::time::sleep(RETRY_PAUSE).await;
                Ok(route)
            }
            RedisError::ReadOnly => {
                // The primary was demoted. A sentinel names the new one to a new connection.
                batcher.connection().reconnect();
                self.request_refresh();
                Err(self.log_refusal(&route.node, error))
            }
            RedisError::Final(class @ (StoreError::ConnectionLost | StoreError::Unreachable)) => {
                self.request_refresh();
                Err(class)
            }
            RedisError::ClusterDown => {
                self.request_refresh();
                Err(self.log_refusal(&route.node, error))
            }
            RedisError::NoWrites | RedisError::Final(_) => {
                Err(self.log_refusal(&route.node, error))
            }
        }
    }

    /// The store error for `error`. Logs an error reply, because its text names the cause.
    pub(super) fn log_refusal(&self, node: &RedisNode, error: &CallError) -> StoreError {
        let class = match RedisError::classify(error) {
            RedisError::Final(class) => class,
            _ => StoreError::ErrorReply,
        };
        let is_reply = matches!(class, StoreError::ErrorReply | StoreError::InvalidReply);
        if is_reply && self.may_log_refusal() {
            log_error_reply(node, error);
        }
        class
    }

    /// Whether an error reply may be logged now: at most once a second, because thousands of calls
    /// may fail with the same error.
    pub(super) fn may_log_refusal(&self) -> bool {
        let (now, relaxed) = (self.now().0, Ordering::Relaxed);
        let last = self.refusal_logged_at.load(relaxed);
        now.saturating_sub(last) >= Micros::SECOND.0
            && self.refusal_logged_at.compare_exchange(last, now, relaxed, relaxed).is_ok()
    }

    /// The node that `redirect` from `sender` names. Discovery is given an unknown one's address.
    fn find(&self, redirect: Redirect, sender: &RedisNode) -> Option<Arc<RedisNode>> {
        let host = if redirect.host.is_empty() { sender.host() } else { redirect.host };
        let address = (host, redirect.port);
        let text = address_text(&address);
        let topology = self.topology();
        let found = topology.nodes().iter().find(|node| node.address() == text).cloned();
        if found.is_none() {
            let mut targets = self.redirect_targets.lock().unwrap_or_else(PoisonError::into_inner);
            if targets.len() < REDIRECT_TARGETS_MAX && !targets.contains(&address) {
                targets.push(address);
            }
        }
        found
    }

    /// Requests a refresh, pauses, and routes the step by the topology that is known then.
    async fn retry_after_refresh(&self, key: &CounterKey) -> Result<Route, StoreError> {
        self.request_refresh();
        tokio::time::sleep(RETRY_PAUSE).await;
        Ok(Route { node: self.owner(key)?, mode: SendMode::Batched })
    }

    /// Records that `node` owns `hash_slot`.
    fn set_owner(&self, hash_slot: u16, node: &Arc<RedisNode>) {
        self.topology.rcu(|topology| match topology.owner(hash_slot) {
            Some(owner) if Arc::ptr_eq(owner, node) => topology.clone(),
            _ => Arc::new(topology.moved(hash_slot, node.clone())),
        });
    }
}

fn log_error_reply(node: &RedisNode, error: &CallError) {
    tracing::warn!(node = %node.address(), %error, "Redis replied with an error");
}
