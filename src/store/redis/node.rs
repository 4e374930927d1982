//! One Redis node: its address, its clock offset and the connections to it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use super::batcher::Batcher;
use super::config::{NodeConfig, Target};
use super::connection::RedisConnection;
use super::function_use::FunctionUse;
use super::metrics::NodeMetrics;
use crate::key::CounterKey;
use crate::store::NodeId;
use crate::time::{ClockOffset, Micros, SystemClock};

/// Marks a clock offset that was never measured.
const UNMEASURED: i64 = i64::MIN;

/// One node: a cluster's primary, a single server, or the primary that Sentinel names.
#[derive(Debug)]
pub(super) struct RedisNode {
    /// Unique among the nodes of all stores of this process.
    serial: u64,
    id: NodeId,
    address: String,
    /// How to connect.
    config: NodeConfig,
    /// The clock of log lines.
    clock: SystemClock,
    /// Connections per worker.
    connections: usize,
    /// The most steps per call.
    steps_max: usize,
    metrics: Arc<NodeMetrics>,
    functions: Arc<FunctionUse>,
    /// The node's clock minus the local clock in microseconds, or [`UNMEASURED`].
    offset: AtomicI64,
    /// The discovery thread's connection, which opens before any call is sent to this node.
    shared: OnceLock<Arc<Batcher>>,
    /// The value `true` closes every connection. Dropping this sender also does.
    closed: watch::Sender<bool>,
}

/// The current thread's connections to one node.
struct ThreadConnections {
    node: u64,
    batchers: Vec<Arc<Batcher>>,
}

thread_local! {
    /// The current thread's connections. Each worker uses its own, so that no call changes threads.
    /// Measurements show that this more than halves a call's CPU time and its latency.
    static CONNECTIONS: RefCell<Vec<ThreadConnections>> = const { RefCell::new(Vec::new()) };
}

impl RedisNode {
    /// A node without connections. `connections` counts per worker, `steps_max` per call.
    pub(super) fn new(
        id: NodeId,
        address: String,
        config: NodeConfig,
        (connections, steps_max): (usize, usize),
        metrics: Arc<NodeMetrics>,
        clock: SystemClock,
    ) -> RedisNode {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let functions = Arc::new(FunctionUse::new(config.access.functions));
        RedisNode {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            id,
            address,
            config,
            clock,
            connections: connections.max(1),
            steps_max,
            metrics,
            functions,
            offset: AtomicI64::new(UNMEASURED),
            shared: OnceLock::new(),
            closed: watch::Sender::new(false),
        }
    }

    /// A node that does not exist.
    #[cfg(test)]
    pub(super) fn for_testing(address: &str) -> RedisNode {
        let target = Target::Tcp((address.to_owned(), 1));
        let config = NodeConfig { target, access: Arc::default() };
        let clock = SystemClock::new();
        RedisNode::new(NodeId(0), address.to_owned(), config, (1, 1), Arc::default(), clock)
    }

    /// The node's number, which stays the same when the node leaves and returns.
    pub(super) fn id(&self) -> NodeId {
        self.id
    }

    /// The node's address, for logs and metrics.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The node's host name; empty without one (a Unix socket, Sentinel).
    pub(super) fn host(&self) -> String {
        match &self.config.target {
            Target::Tcp((host, _)) => host.clone(),
            Target::Unix(_) | Target::Sentinel(_) => String::new(),
        }
    }

    /// The instant on the node's clock when the local clock shows `local`; `None` before the first
    /// measurement.
    pub(super) fn now(&self, local: Micros) -> Option<Micros> {
        let offset = self.offset.load(Ordering::Relaxed);
        (offset != UNMEASURED).then(|| ClockOffset::from_micros(offset).remote(local))
    }

    /// Whether calls can be sent: the node's clock was measured, and the discovery thread's
    /// connection is up.
    pub(super) fn is_up(&self) -> bool {
        let measured = self.offset.load(Ordering::Relaxed) != UNMEASURED;
        measured && self.shared.get().is_some_and(|batcher| batcher.connection().is_up())
    }

    /// What is known about the functions of the node.
    pub(super) fn functions(&self) -> &FunctionUse {
        &self.functions
    }

    /// Sets the newly measured offset of the node's clock.
    pub(super) fn set_offset(&self, offset: ClockOffset) {
        self.offset.store(offset.micros(), Ordering::Relaxed);
    }

    /// Closes the node's connections for good.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Opens the discovery thread's connection, once.
    pub(super) fn connect_shared(&self) -> Arc<RedisConnection> {
        self.shared.get_or_init(|| self.connect()).connection().clone()
    }

    /// The batcher for a counter's steps. It is always the same one per core and counter, so that
    /// the steps are sent together. While its connection is opening or down, returns the discovery
    /// thread's batcher, which costs a change of threads but no wait.
    pub(super) fn batcher(&self, key: &CounterKey) -> Arc<Batcher> {
        self.batcher_by(key.0[1] as usize)
    }

    /// The connection for a command that is no step. Commands of one `number` share a connection.
    pub(super) fn connection(&self, number: usize) -> Arc<RedisConnection> {
        self.batcher_by(number).connection().clone()
    }

    fn batcher_by(&self, number: usize) -> Arc<Batcher> {
        let own = self.own_batcher(number);
        if own.connection().is_up() {
            return own;
        }
        let shared = self.shared.get().filter(|batcher| batcher.connection().is_up());
        shared.cloned().unwrap_or(own)
    }

    fn own_batcher(&self, number: usize) -> Arc<Batcher> {
        CONNECTIONS.with_borrow_mut(|known| {
            if let Some(found) = known.iter().find(|found| found.node == self.serial) {
                return found.batchers[number % found.batchers.len()].clone();
            }
            // Nodes come and go for years: drop connections that are closed for good.
            let is_open = |batcher: &Arc<Batcher>| !batcher.connection().is_closed();
            known.retain(|old| old.batchers.iter().any(is_open));
            let batchers: Vec<_> = (0..self.connections).map(|_| self.connect()).collect();
            let own = batchers[number % batchers.len()].clone();
            known.push(ThreadConnections { node: self.serial, batchers });
            own
        })
    }

    /// Opens a connection on the current runtime.
    fn connect(&self) -> Arc<Batcher> {
        let shared = (self.metrics.clone(), self.functions.clone());
        let closed = self.closed.subscribe();
        let connection =
            RedisConnection::open(&self.config, &self.address, closed, shared, self.clock);
        Arc::new(Batcher::new(connection, self.steps_max))
    }
}
