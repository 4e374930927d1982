//! The table of the connections that have a slot. It selects the one that makes room for a new one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::atomic_count::AtomicCount;
use crate::client_address::ClientAddress;

/// The connections that have a slot.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable {
    max: usize,
    /// The limit per address; `None` for no limit.
    max_per_peer: Option<usize>,
    pub(super) connections: HashMap<u64, ConnectionRecord>,
    /// The waiting connections, by the event at which their wait began.
    pub(super) waiting: BTreeMap<u64, u64>,
    /// One entry for each address with a connection.
    pub(super) peers: HashMap<ClientAddress, Peer>,
    /// The addresses by their number of connections.
    pub(super) by_open: BTreeSet<(usize, ClientAddress)>,
    /// The number of events so far. It orders the waits and numbers the connections.
    events: u64,
}

#[derive(Debug)]
pub(super) struct ConnectionRecord {
    peer: ClientAddress,
    /// The event at which the connection began or ended its wait, or was last seen with new calls.
    since: u64,
    calls: Arc<AtomicCount>,
    /// The number of calls when the connection was last considered for eviction.
    calls_seen: u64,
    evict: Arc<Notify>,
}

/// The connections of one address, by their events.
#[derive(Debug, Default)]
pub(super) struct Peer {
    waiting: BTreeMap<u64, u64>,
    in_use: BTreeMap<u64, u64>,
}

impl Peer {
    fn open(&self) -> usize {
        self.waiting.len() + self.in_use.len()
    }
}

/// The slot of a new connection, and the connection that had it before.
pub(super) struct Admitted {
    pub(super) id: u64,
    pub(super) calls: Arc<AtomicCount>,
    pub(super) evict: Arc<Notify>,
    pub(super) evicted: Option<Arc<Notify>>,
}

/// The limit that a new connection exceeds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Total,
    Peer,
}

impl ConnectionTable {
    /// A table for `max` connections, of which one address gets at most `max_per_peer`.
    pub(super) fn new(max: usize, max_per_peer: Option<usize>) -> ConnectionTable {
        ConnectionTable { max, max_per_peer, ..ConnectionTable::default() }
    }

    /// Gives a slot to a new connection of `peer`, which waits for its client.
    pub(super) fn admit(&mut self, peer: ClientAddress) -> Result<Admitted, Refusal> {
        let victim = self.victim(peer)?;
        let evicted = victim.and_then(|id| self.remove(id)).map(|connection| connection.evict);

        let (id, evict, calls) = (self.next_event(), Arc::new(Notify::new()), Arc::default());
        let connection = ConnectionRecord {
            peer,
            since: id,
            calls: Arc::clone(&calls),
            calls_seen: 0,
            evict: Arc::clone(&evict),
        };
        self.connections.insert(id, connection);
        self.set_waiting(id, true);
        self.reorder(peer, |open| open - 1);
        Ok(Admitted { id, calls, evict, evicted })
    }

    /// The connection that makes room for a new one of `peer`; `None` if there is room.
    fn victim(&mut self, peer: ClientAddress) -> Result<Option<u64>, Refusal> {
        let own = self.peers.get(&peer);
        let open = own.map_or(0, Peer::open);
        let own_wait = own.and_then(|own| own.waiting.values().next()).copied();
        if self.max_per_peer.is_some_and(|max| open >= max) {
            return own_wait.map(Some).ok_or(Refusal::Peer);
        }
        if self.connections.len() < self.max {
            return Ok(None);
        }
        let victim = match self.by_open.last().copied() {
            Some((most, largest)) if most > open + 1 => self.idlest(largest),
            _ => own_wait.or_else(|| self.longest_wait(open)),
        };
        victim.map(Some).ok_or(Refusal::Total)
    }

    /// The connection that has waited longest, if its address has more than `open` connections.
    fn longest_wait(&self, open: usize) -> Option<u64> {
        let id = *self.waiting.values().next()?;
        let peer = self.connections.get(&id)?.peer;
        (self.open(peer) > open).then_some(id)
    }

    fn open(&self, peer: ClientAddress) -> usize {
        self.peers.get(&peer).map_or(0, Peer::open)
    }

    /// Moves `peer` to its place in the order of all addresses. `before` returns the number of its
    /// connections before the change.
    fn reorder(&mut self, peer: ClientAddress, before: fn(usize) -> usize) {
        let open = self.open(peer);
        self.by_open.remove(&(before(open), peer));
        if open > 0 {
            self.by_open.insert((open, peer));
        }
    }

    /// The connection of `peer` that has waited longest. If none waits, the one that has been
    /// without a new call for longest: those with new calls since they were last considered go to
    /// the end of the order.
    fn idlest(&mut self, peer: ClientAddress) -> Option<u64> {
        let Peer { waiting, in_use } = self.peers.get_mut(&peer)?;
        if let Some(id) = waiting.values().next() {
            return Some(*id);
        }
        for _ in 0..in_use.len() {
            let (_, id) = in_use.first_key_value()?;
            let (id, connection) = (*id, self.connections.get_mut(id)?);
            let calls = connection.calls.get();
            if connection.calls_seen == calls {
                break;
            }
            in_use.remove(&connection.since);
            self.events += 1;
            (connection.since, connection.calls_seen) = (self.events, calls);
            in_use.insert(self.events, id);
        }
        in_use.values().next().copied()
    }

    /// Records whether a connection waits. Returns false if it has no slot any more.
    pub(super) fn set_waiting(&mut self, id: u64, waits: bool) -> bool {
        let now = self.next_event();
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let peer = self.peers.entry(connection.peer).or_default();
        for events in [&mut self.waiting, &mut peer.waiting, &mut peer.in_use] {
            events.remove(&connection.since);
        }
        connection.since = now;
        if waits {
            self.waiting.insert(now, id);
            peer.waiting.insert(now, id);
        } else {
            peer.in_use.insert(now, id);
        }
        true
    }

    /// Frees the slot of a connection.
    pub(super) fn remove(&mut self, id: u64) -> Option<ConnectionRecord> {
        let connection = self.connections.remove(&id)?;
        self.waiting.remove(&connection.since);
        if let Some(peer) = self.peers.get_mut(&connection.peer) {
            peer.waiting.remove(&connection.since);
            peer.in_use.remove(&connection.since);
            if peer.open() == 0 {
                self.peers.remove(&connection.peer);
            }
        }
        self.reorder(connection.peer, |open| open + 1);
        Some(connection)
    }

    fn next_event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }
}
