//! The connection slots of a listener: its limits on open connections, in total and per client
//! address.
//!
//! A connection waits until its client has sent what comes next: TLS and the HTTP/2 preface on the
//! gRPC listener, a request on the other listeners. At a limit, the connection that has waited
//! longest is evicted, and the new one gets its slot. So clients that connect and stay silent do
//! not keep other clients out. If no connection waits, the new one is refused.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::client_address::ClientAddress;
use crate::server::metrics::{ListenerMetrics, ServerMetrics};

/// The slots of one listener. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::server) struct ConnectionSlots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    metrics: Arc<ServerMetrics>,
    of_listener: fn(&ServerMetrics) -> &ListenerMetrics,
}

/// The slot of one connection. Dropping it frees it.
#[derive(Debug)]
pub(in crate::server) struct Slot {
    id: u64,
    evict: Arc<Notify>,
    shared: Arc<Shared>,
}

impl ConnectionSlots {
    /// Slots for `max` connections, of which one client address gets at most `max_per_peer`.
    pub(in crate::server) fn new(
        max: usize,
        max_per_peer: Option<usize>,
        metrics: Arc<ServerMetrics>,
        of_listener: fn(&ServerMetrics) -> &ListenerMetrics,
    ) -> ConnectionSlots {
        let table = Mutex::new(Table { max, max_per_peer, ..Table::default() });
        ConnectionSlots(Arc::new(Shared { table, metrics, of_listener }))
    }

    /// A slot for a new connection of `peer`; `None` if no slot is free and none can be freed. The
    /// connection waits for its client.
    pub(in crate::server) fn try_acquire(&self, peer: ClientAddress) -> Option<Slot> {
        let listener = self.0.listener();
        let admitted = self.0.change(|table| table.admit(peer));
        let Admitted { id, evict, evicted } = match admitted {
            Ok(admitted) => admitted,
            Err(Refusal::Total) => {
                listener.refused_total.add();
                return None;
            }
            Err(Refusal::Peer) => {
                listener.refused_peer.add();
                return None;
            }
        };
        if let Some(evicted) = evicted {
            listener.evicted.add();
            evicted.notify_one();
        }
        listener.open.add();
        Some(Slot { id, evict, shared: Arc::clone(&self.0) })
    }
}

impl Slot {
    /// Returns when another connection has got the slot. This connection must then close.
    pub(in crate::server) async fn evicted(&self) {
        self.evict.notified().await;
    }

    /// Records that the client has sent what the connection waited for. Returns false if the
    /// connection was evicted before.
    pub(in crate::server) fn end_wait(&self) -> bool {
        self.shared.change(|table| table.set_waiting(self.id, false))
    }

    /// Records that the connection waits for its client again.
    pub(in crate::server) fn begin_wait(&self) {
        self.shared.change(|table| table.set_waiting(self.id, true));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.change(|table| table.remove(self.id));
        self.shared.listener().open.subtract();
    }
}

impl Shared {
    fn listener(&self) -> &ListenerMetrics {
        (self.of_listener)(&self.metrics)
    }

    /// Changes the table, and updates the gauge of waiting connections.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table: MutexGuard<'_, Table> =
            self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut table);
        self.listener().waiting.set(table.waiting.len() as u64);
        changed
    }
}

/// The connections that have a slot.
#[derive(Debug, Default)]
struct Table {
    max: usize,
    /// The limit per address; `None` for no limit.
    max_per_peer: Option<usize>,
    connections: HashMap<u64, Connection>,
    /// The waiting connections, by the event at which their wait began.
    waiting: BTreeMap<u64, u64>,
    /// One entry for each address with a connection.
    peers: HashMap<ClientAddress, Peer>,
    /// The number of events so far. It orders the waits and numbers the connections.
    events: u64,
}

#[derive(Debug)]
struct Connection {
    peer: ClientAddress,
    /// The event at which the wait began; `None` while it does not wait.
    waits_since: Option<u64>,
    evict: Arc<Notify>,
}

/// The connections of one address.
#[derive(Debug, Default)]
struct Peer {
    open: usize,
    /// The events at which the waits began.
    waiting: BTreeSet<u64>,
}

/// The slot of a new connection, and the connection that had it before.
struct Admitted {
    id: u64,
    evict: Arc<Notify>,
    evicted: Option<Arc<Notify>>,
}

/// The limit that a new connection exceeds.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Total,
    Peer,
}

impl Table {
    fn admit(&mut self, peer: ClientAddress) -> Result<Admitted, Refusal> {
        let at_limit = |peer: &Peer| self.max_per_peer.is_some_and(|max| peer.open >= max);
        let longest = match self.peers.get(&peer) {
            Some(peer) if at_limit(peer) => Some(peer.waiting.first().ok_or(Refusal::Peer)?),
            _ if self.connections.len() >= self.max => {
                Some(self.waiting.keys().next().ok_or(Refusal::Total)?)
            }
            _ => None,
        };
        let victim = longest.and_then(|since| self.waiting.get(since)).copied();
        let evicted = victim.and_then(|id| self.remove(id)).map(|connection| connection.evict);

        let (id, evict) = (self.next_event(), Arc::new(Notify::new()));
        let connection = Connection { peer, waits_since: None, evict: Arc::clone(&evict) };
        self.connections.insert(id, connection);
        self.peers.entry(peer).or_default().open += 1;
        self.set_waiting(id, true);
        Ok(Admitted { id, evict, evicted })
    }

    /// Records whether a connection waits. Returns false if it has no slot any more.
    fn set_waiting(&mut self, id: u64, waits: bool) -> bool {
        let now = self.next_event();
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let peer = self.peers.entry(connection.peer).or_default();
        if let Some(since) = connection.waits_since.take() {
            self.waiting.remove(&since);
            peer.waiting.remove(&since);
        }
        if waits {
            connection.waits_since = Some(now);
            self.waiting.insert(now, id);
            peer.waiting.insert(now);
        }
        true
    }

    fn remove(&mut self, id: u64) -> Option<Connection> {
        self.set_waiting(id, false);
        let connection = self.connections.remove(&id)?;
        if let Some(peer) = self.peers.get_mut(&connection.peer) {
            peer.open -= 1;
            if peer.open == 0 {
                self.peers.remove(&connection.peer);
            }
        }
        Some(connection)
    }

    fn next_event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::IpAddr;

    fn slots(max: usize, max_per_peer: Option<usize>) -> (ConnectionSlots, Arc<ServerMetrics>) {
        let metrics = Arc::new(ServerMetrics::default());
        let of_listener: fn(&ServerMetrics) -> &ListenerMetrics = |metrics| &metrics.admin;
        (ConnectionSlots::new(max, max_per_peer, Arc::clone(&metrics), of_listener), metrics)
    }

    fn ip(text: &str) -> ClientAddress {
        text.parse::<IpAddr>().unwrap().into()
    }

    /// Whether the connection must close. Returns true once per eviction.
    fn is_evicted(slot: &Slot) -> bool {
        use futures_util::FutureExt;
        slot.evicted().now_or_never().is_some()
    }

    #[test]
    fn the_longest_wait_is_evicted_first() {
        let (slots, metrics) = slots(3, None);
        let acquire = || slots.try_acquire(ip("10.0.0.1")).unwrap();
        let (first, second, third) = (acquire(), acquire(), acquire());
        // The first one has had a request meanwhile, and waits again.
        assert!(first.end_wait());
        first.begin_wait();
        let fourth = acquire();
        assert!(is_evicted(&second) && !second.end_wait(), "the second has waited longest");
        assert!(![&first, &third, &fourth].into_iter().any(is_evicted));
        let _fifth = acquire();
        assert!(is_evicted(&third));
        let _sixth = acquire();
        assert!(is_evicted(&first));
        let counts = (metrics.admin.open.get(), metrics.admin.waiting.get());
        assert_eq!(counts, (6, 3), "an evicted connection is open until it has closed");
        drop((first, second, third));
        assert_eq!((metrics.admin.open.get(), metrics.admin.evicted.get()), (3, 3));
    }

    #[test]
    fn a_busy_connection_is_never_evicted() {
        let (slots, metrics) = slots(2, None);
        let acquire = || slots.try_acquire(ip("10.0.0.1"));
        let (first, second) = (acquire().unwrap(), acquire().unwrap());
        assert!(first.end_wait() && second.end_wait());
        assert!(acquire().is_none());
        let counts = (metrics.admin.refused_total.get(), metrics.admin.waiting.get());
        assert_eq!(counts, (1, 0));
        second.begin_wait();
        assert!(acquire().is_some() && is_evicted(&second) && !is_evicted(&first));
    }

    #[test]
    fn an_address_at_its_limit_evicts_its_own() {
        let (slots, metrics) = slots(3, Some(2));
        let other = slots.try_acquire(ip("10.0.0.2")).unwrap();
        let first = slots.try_acquire(ip("10.0.0.1")).unwrap();
        // Both forms of an address are one client.
        let second = slots.try_acquire(ip("::ffff:10.0.0.1")).unwrap();
        let third = slots.try_acquire(ip("10.0.0.1")).unwrap();
        assert!(is_evicted(&first) && ![&other, &second, &third].into_iter().any(is_evicted));
        assert!(second.end_wait() && third.end_wait());
        assert!(slots.try_acquire(ip("10.0.0.1")).is_none());
        assert_eq!((metrics.admin.refused_peer.get(), metrics.admin.evicted.get()), (1, 1));
        assert!(slots.try_acquire(ip("10.0.0.2")).is_some() && is_evicted(&other));
    }

    #[test]
    fn dropped_slots_leave_nothing_behind() {
        let (slots, metrics) = slots(100, Some(100));
        let taken: Vec<_> = (0..100).map(|_| slots.try_acquire(ip("::1")).unwrap()).collect();
        taken.iter().step_by(2).for_each(|slot| assert!(slot.end_wait()));
        let evicting = slots.try_acquire(ip("::1")).unwrap();
        drop((taken, evicting));
        let table = slots.0.table.lock().unwrap();
        assert!(table.connections.is_empty() && table.waiting.is_empty());
        assert!(table.peers.is_empty());
        assert_eq!((metrics.admin.open.get(), metrics.admin.waiting.get()), (0, 0));
    }
}
