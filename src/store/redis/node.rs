//! One node of Redis: its address, its clock, and the connections to it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fred::types::config::{Config, ServerConfig};
use tokio::sync::watch;

use super::clock_offset;
use super::connection::Connection;
use super::stats::AtomicStats;
use crate::key::Key;
use crate::store::NodeId;
use crate::time::Micros;

/// Says that a node's clock was never measured.
const UNMEASURED: i64 = i64::MIN;

/// One node: a primary of a cluster, a lone server, or whatever Sentinel says is the primary.
#[derive(Debug)]
pub(super) struct RedisNode {
    /// Tells apart the nodes of all stores of this process.
    serial: u64,
    /// The part of the store that lives there.
    part: NodeId,
    label: String,
    /// How it is reached.
    config: Config,
    /// Connections per core.
    connections: usize,
    /// The most steps per call.
    steps_max: usize,
    /// What was sent to it.
    stats: Arc<AtomicStats>,
    /// Its clock less ours in microseconds, or [`UNMEASURED`].
    offset: AtomicI64,
    /// The keeper's connection, which is open before any call is sent here.
    shared: OnceLock<Arc<Connection>>,
    /// No longer part of the topology: its connections close, and so they do when this is dropped.
    gone: watch::Sender<bool>,
}

/// The present thread's connections to one node.
struct ThreadConnections {
    node: u64,
    connections: Vec<Arc<Connection>>,
}

thread_local! {
    /// The present thread's connections. Each core serves its calls on connections of its own, so
    /// that no call is handed from one thread to another: measured, that more than halves the CPU
    /// time of a call and its latency.
    static CONNECTIONS: RefCell<Vec<ThreadConnections>> = const { RefCell::new(Vec::new()) };
}

impl RedisNode {
    /// A node that nothing is known of but how to reach it. `label` is for people.
    pub(super) fn new(
        part: NodeId,
        label: String,
        config: Config,
        (connections, steps_max): (usize, usize),
        stats: Arc<AtomicStats>,
    ) -> RedisNode {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        RedisNode {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            part,
            label,
            config,
            connections: connections.max(1),
            steps_max,
            stats,
            offset: AtomicI64::new(UNMEASURED),
            shared: OnceLock::new(),
            gone: watch::Sender::new(false),
        }
    }

    /// A node that is not there.
    #[cfg(test)]
    pub(super) fn for_testing(label: &str) -> RedisNode {
        RedisNode::new(NodeId(0), label.to_owned(), Config::default(), (1, 1), Arc::default())
    }

    /// The part of the store that lives here.
    pub(super) fn part(&self) -> NodeId {
        self.part
    }

    /// Its address, for people.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// The host that it is reached at; empty where there is none.
    pub(super) fn host(&self) -> String {
        match &self.config.server {
            ServerConfig::Centralized { server } => server.host.to_string(),
            _ => String::new(),
        }
    }

    /// What its clock shows when ours shows `local`; nothing before it was measured.
    pub(super) fn now(&self, local: Micros) -> Option<Micros> {
        let offset = self.offset.load(Ordering::Relaxed);
        (offset != UNMEASURED).then(|| clock_offset::shift(local, offset))
    }

    /// Calls can be sent to it, as far as is known.
    pub(super) fn is_up(&self) -> bool {
        let measured = self.offset.load(Ordering::Relaxed) != UNMEASURED;
        measured && self.shared.get().is_some_and(|connection| connection.is_up())
    }

    /// Takes a newly measured offset.
    pub(super) fn set_offset(&self, offset: i64) {
        self.offset.store(offset, Ordering::Relaxed);
    }

    /// The node is no longer asked: its connections close.
    pub(super) fn leave(&self) {
        self.gone.send_replace(true);
    }

    /// Opens a connection on the present runtime.
    pub(super) fn connect(&self) -> Option<Arc<Connection>> {
        let (gone, stats) = (self.gone.subscribe(), self.stats.clone());
        Connection::open(&self.config, &self.label, gone, self.steps_max, stats)
    }

    /// Opens the keeper's connection, once.
    pub(super) fn connect_shared(&self) -> Option<Arc<Connection>> {
        let connection = self.connect()?;
        Some(self.shared.get_or_init(|| connection).clone())
    }

    /// The connection for a counter's steps: one of the present core's own, always the same one, so
    /// that its steps can leave together. While that one is being opened, and whenever it is down,
    /// the keeper's; it costs a call more, but no wait.
    pub(super) fn connection(&self, key: &Key) -> Option<Arc<Connection>> {
        let own = self.own_connection(key.0[1] as usize);
        if own.as_ref().is_some_and(|connection| connection.is_up()) {
            return own;
        }
        self.shared.get().filter(|connection| connection.is_up()).cloned().or(own)
    }

    fn own_connection(&self, number: usize) -> Option<Arc<Connection>> {
        CONNECTIONS.with_borrow_mut(|known| {
            if let Some(found) =
                known.iter_mut().find(|connections| connections.node == self.serial)
            {
                return Some(found.connections[number % found.connections.len()].clone());
            }
            // Nodes come and go for years; a core keeps connections only to those in use.
            known.retain(|connections| {
                connections.connections.iter().any(|connection| !connection.is_closed())
            });
            let connections: Vec<_> = (0..self.connections).map_while(|_| self.connect()).collect();
            let own = connections.get(number % connections.len().max(1))?.clone();
            known.push(ThreadConnections { node: self.serial, connections });
            Some(own)
        })
    }
}
