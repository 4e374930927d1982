//! One node of Redis: its address, its clock, and the connections to it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use fred::types::config::{Config, ServerConfig};
use tokio::sync::watch;

use super::lane::Lane;
use super::offset;
use crate::store::PartId;
use crate::time::Micros;

/// Says that a node's clock was never measured.
const UNMEASURED: i64 = i64::MIN;

/// One node: a primary of a cluster, a lone server, or whatever Sentinel says is the primary.
#[derive(Debug)]
pub(super) struct Node {
    /// Tells apart the nodes of all stores of this process.
    serial: u64,
    /// The part of the store that lives there.
    part: PartId,
    label: String,
    /// How it is reached.
    config: Config,
    /// Connections per core.
    lanes: usize,
    /// Its clock less ours in microseconds, or [`UNMEASURED`].
    offset: AtomicI64,
    /// No longer part of the topology: its connections close, and so they do when this is dropped.
    gone: watch::Sender<bool>,
}

/// The present thread's connections to one node.
struct Lanes {
    node: u64,
    lanes: Vec<Arc<Lane>>,
    /// The one whose turn it is.
    next: usize,
}

thread_local! {
    /// The present thread's connections. Each core serves its calls on connections of its own, so
    /// that no call is handed from one thread to another: measured, that more than halves the CPU
    /// time of a call and its latency.
    static LANES: RefCell<Vec<Lanes>> = const { RefCell::new(Vec::new()) };
}

impl Node {
    /// A node that nothing is known of but how to reach it. `label` is for people.
    pub(super) fn new(part: PartId, label: String, config: Config, lanes: usize) -> Node {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        Node {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            part,
            label,
            config,
            lanes: lanes.max(1),
            offset: AtomicI64::new(UNMEASURED),
            gone: watch::Sender::new(false),
        }
    }

    /// A node that is not there.
    #[cfg(test)]
    pub(super) fn for_testing(label: &str) -> Node {
        Node::new(PartId(0), label.to_owned(), Config::default(), 1)
    }

    /// The part of the store that lives here.
    pub(super) fn part(&self) -> PartId {
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
        (offset != UNMEASURED).then(|| offset::shift(local, offset))
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
    pub(super) fn connect(&self) -> Option<Arc<Lane>> {
        Lane::open(&self.config, &self.label, self.gone.subscribe())
    }

    /// The present core's connection whose turn it is, opened when there is none yet.
    pub(super) fn lane(&self) -> Option<Arc<Lane>> {
        LANES.with_borrow_mut(|known| {
            if let Some(found) = known.iter_mut().find(|lanes| lanes.node == self.serial) {
                found.next = (found.next + 1) % found.lanes.len();
                return Some(found.lanes[found.next].clone());
            }
            // Nodes come and go for years; a core keeps connections only to those in use.
            known.retain(|lanes| lanes.lanes.iter().any(|lane| !lane.is_closed()));
            let lanes: Vec<_> = (0..self.lanes).map_while(|_| self.connect()).collect();
            let first = lanes.first()?.clone();
            known.push(Lanes { node: self.serial, lanes, next: 0 });
            Some(first)
        })
    }
}
