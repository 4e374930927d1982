//! One node of Redis: its address, its clock, and the connections to it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fred::types::config::{Config, ServerConfig};
use tokio::sync::watch;

use super::lane::Lane;
use super::offset;
use super::tally::Tally;
use crate::key::Key;
use crate::store::NodeId;
use crate::time::Micros;

/// Says that a node's clock was never measured.
const UNMEASURED: i64 = i64::MIN;

/// One node: a primary of a cluster, a lone server, or whatever Sentinel says is the primary.
#[derive(Debug)]
pub(super) struct Node {
    /// Tells apart the nodes of all stores of this process.
    serial: u64,
    /// The part of the store that lives there.
    part: NodeId,
    label: String,
    /// How it is reached.
    config: Config,
    /// Connections per core.
    lanes: usize,
    /// The most steps per call.
    steps_max: usize,
    /// What was sent to it.
    tally: Arc<Tally>,
    /// Its clock less ours in microseconds, or [`UNMEASURED`].
    offset: AtomicI64,
    /// The keeper's connection, which is open before any call is sent here.
    shared: OnceLock<Arc<Lane>>,
    /// No longer part of the topology: its connections close, and so they do when this is dropped.
    gone: watch::Sender<bool>,
}

/// The present thread's connections to one node.
struct Lanes {
    node: u64,
    lanes: Vec<Arc<Lane>>,
}

thread_local! {
    /// The present thread's connections. Each core serves its calls on connections of its own, so
    /// that no call is handed from one thread to another: measured, that more than halves the CPU
    /// time of a call and its latency.
    static LANES: RefCell<Vec<Lanes>> = const { RefCell::new(Vec::new()) };
}

impl Node {
    /// A node that nothing is known of but how to reach it. `label` is for people.
    pub(super) fn new(
        part: NodeId,
        label: String,
        config: Config,
        (lanes, steps_max): (usize, usize),
        tally: Arc<Tally>,
    ) -> Node {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        Node {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            part,
            label,
            config,
            lanes: lanes.max(1),
            steps_max,
            tally,
            offset: AtomicI64::new(UNMEASURED),
            shared: OnceLock::new(),
            gone: watch::Sender::new(false),
        }
    }

    /// A node that is not there.
    #[cfg(test)]
    pub(super) fn for_testing(label: &str) -> Node {
        Node::new(NodeId(0), label.to_owned(), Config::default(), (1, 1), Arc::default())
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
        (offset != UNMEASURED).then(|| offset::shift(local, offset))
    }

    /// Calls can be sent to it, as far as is known.
    pub(super) fn is_up(&self) -> bool {
        let measured = self.offset.load(Ordering::Relaxed) != UNMEASURED;
        measured && self.shared.get().is_some_and(|lane| lane.is_up())
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
        let (gone, tally) = (self.gone.subscribe(), self.tally.clone());
        Lane::open(&self.config, &self.label, gone, self.steps_max, tally)
    }

    /// Opens the keeper's connection, once.
    pub(super) fn connect_keeper(&self) -> Option<Arc<Lane>> {
        let lane = self.connect()?;
        Some(self.shared.get_or_init(|| lane).clone())
    }

    /// The connection for a counter's steps: one of the present core's own, always the same one, so
    /// that its steps can leave together. While that one is being opened, and whenever it is down,
    /// the keeper's; it costs a call more, but no wait.
    pub(super) fn lane(&self, key: &Key) -> Option<Arc<Lane>> {
        let own = self.own_lane(key.0[1] as usize);
        if own.as_ref().is_some_and(|lane| lane.is_up()) {
            return own;
        }
        self.shared.get().filter(|lane| lane.is_up()).cloned().or(own)
    }

    fn own_lane(&self, number: usize) -> Option<Arc<Lane>> {
        LANES.with_borrow_mut(|known| {
            if let Some(found) = known.iter_mut().find(|lanes| lanes.node == self.serial) {
                return Some(found.lanes[number % found.lanes.len()].clone());
            }
            // Nodes come and go for years; a core keeps connections only to those in use.
            known.retain(|lanes| lanes.lanes.iter().any(|lane| !lane.is_closed()));
            let lanes: Vec<_> = (0..self.lanes).map_while(|_| self.connect()).collect();
            let own = lanes.get(number % lanes.len().max(1))?.clone();
            known.push(Lanes { node: self.serial, lanes });
            Some(own)
        })
    }
}
