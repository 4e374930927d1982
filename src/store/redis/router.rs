//! Routes steps to the nodes that own their keys, and follows Redis's redirects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;

use super::batch::ScriptCall;
use super::batcher::{self, BatchError};
use super::command::PlainCommands;
use super::config::{HostPort, NodeConfig, address_text};
use super::connection::RedisConnection;
use super::error::{CallError, NextAction, Redirect};
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

mod plain;
mod quotas;

/// The most times that one command may be sent. A hash slot may move during redirection, and the new
/// owner may lack the script or a connection. The timeout usually ends the call earlier.
const SENDS_MAX: usize = 16;

/// Pause before a command is sent again to a node that cannot serve it yet, or whose redirect names a
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
    error_reply_logged_at: AtomicU64,
}

/// The data of a node that outlive its departure from the topology, so that they continue when it
/// returns.
#[derive(Debug)]
struct NodeRecord {
    address: String,
    metrics: Arc<NodeMetrics>,
}

/// Where and how a command is sent next.
struct Route {
    node: Arc<RedisNode>,
    mode: SendMode,
}

/// How a command is sent.
#[derive(Clone, Copy)]
enum SendMode {
    /// Sent in one call with other steps for the same node, if it is a step.
    Batched,
    /// Sent in a separate call of its script, which may run where a function fails.
    Single,
    /// Sent in a separate call after `ASKING`, to the node that imports the hash slot.
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
            error_reply_logged_at: AtomicU64::new(0),
        }
    }

    /// Applies `step` to the counter `key`.
    pub(super) async fn apply(&self, key: &CounterKey, step: &Step) -> Result<Outcome, StoreError> {
        let (name, encoded) = (CounterName::of(key), EncodedStep::of(step));
        let mut route = self.route_to_owner(hash_slot(key))?;
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
                    let script = Some(encoded.script);
                    let next = self.next_route(route, hash_slot(key), &error, connection, script);
                    route = Box::pin(next).await?;
                }
            }
        }
        Err(StoreError::ErrorReply)
    }

    /// Deletes the counter `key` with `UNLINK`, and returns whether it existed.
    pub(super) async fn delete(&self, key: &CounterKey) -> Result<bool, StoreError> {
        let name = CounterName::of(key);
        let unlink = PlainCommands::one(&[b"UNLINK", name.as_ref()]);
        let reply = self.plain(hash_slot(key), &unlink, ReplyBound::USUAL).await?;
        reply.number().map(|deleted| deleted > 0).ok_or(StoreError::InvalidReply)
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
        self.node_of_slot(hash_slot(key))
    }

    /// The node that owns `slot`; [`UNKNOWN_NODE`] if none is known.
    pub(super) fn node_of_slot(&self, slot: u16) -> NodeId {
        self.topology().owner(slot).map_or(UNKNOWN_NODE, |node| node.id())
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

    /// The route of the first attempt: to the node that owns `slot`.
    fn route_to_owner(&self, slot: u16) -> Result<Route, StoreError> {
        let owner = self.topology().owner(slot).cloned();
        let node = owner.ok_or(StoreError::Unreachable)?;
        Ok(Route { node, mode: SendMode::Batched })
    }

    /// Counters of one group may share a call: all of them, but in a cluster only those of one hash
    /// slot.
    fn group(&self, key: &CounterKey) -> u16 {
        if self.topology().is_cluster() { hash_slot(key) } else { 0 }
    }

    /// Does what follows `error`, and returns where to send the command again. `slot` is the hash slot
    /// of its keys, and `script` is the one that it calls.
    async fn next_route(
        &self,
        route: Route,
        slot: u16,
        error: &CallError,
        connection: &RedisConnection,
        script: Option<Script>,
    ) -> Result<Route, StoreError> {
        let fail = |error: &CallError| Err(self.log_and_classify(&route.node, error));
        // The batcher passes no error of a call with other steps.
        match NextAction::after(error, true) {
            NextAction::LoadScript => {
                let Some(script) = script else { return fail(error) };
                match connection.load(script).await {
                    Ok(()) => Ok(route),
                    Err(error) => fail(&error),
                }
            }
            // The batcher has loaded the functions several times.
            NextAction::LoadFunctions | NextAction::SendAlone => {
                Ok(Route { mode: SendMode::Single, ..route })
            }
            NextAction::SendToOwner(redirect) => match self.find(redirect, &route.node) {
                Some(node) => {
                    self.set_owner(slot, &node);
                    self.request_refresh();
                    Ok(Route { node, mode: SendMode::Batched })
                }
                None => self.retry_after_refresh(slot).await,
            },
            NextAction::SendAsking(redirect) => match self.find(redirect, &route.node) {
                Some(node) => Ok(Route { node, mode: SendMode::Asking }),
                None => self.retry_after_refresh(slot).await,
            },
            NextAction::SendLater => {
                tokio::time::sleep(RETRY_PAUSE).await;
                Ok(route)
            }
            NextAction::FailAndReconnect(_) => {
                connection.reconnect();
                self.request_refresh();
                fail(error)
            }
            NextAction::FailAndRefresh(_) => {
                self.request_refresh();
                fail(error)
            }
            NextAction::Fail(_) => fail(error),
        }
    }

    /// The store error for `error`. Logs an error reply, because its text names the cause.
    pub(super) fn log_and_classify(&self, node: &RedisNode, error: &CallError) -> StoreError {
        let class = match NextAction::after(error, true) {
            NextAction::Fail(class)
            | NextAction::FailAndRefresh(class)
            | NextAction::FailAndReconnect(class) => class,
            _ => StoreError::ErrorReply,
        };
        let is_reply = matches!(class, StoreError::ErrorReply | StoreError::InvalidReply);
        if is_reply && self.may_log_error_reply() {
            log_error_reply(node, error);
        }
        class
    }

    /// Whether an error reply may be logged now: at most once a second, because thousands of calls
    /// may fail with the same error.
    pub(super) fn may_log_error_reply(&self) -> bool {
        let (now, relaxed) = (self.now().0, Ordering::Relaxed);
        let logged_at = &self.error_reply_logged_at;
        let last = logged_at.load(relaxed);
        now.saturating_sub(last) >= Micros::SECOND.0
            && logged_at.compare_exchange(last, now, relaxed, relaxed).is_ok()
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

    /// Requests a refresh, pauses, and routes by the topology that is known then.
    async fn retry_after_refresh(&self, slot: u16) -> Result<Route, StoreError> {
        self.request_refresh();
        tokio::time::sleep(RETRY_PAUSE).await;
        self.route_to_owner(slot)
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
