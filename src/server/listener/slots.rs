//! The connection slots of a listener: its limits on open connections, in total and per client
//! address.
//!
//! A connection waits until its client has sent what comes next: TLS and the HTTP/2 preface on the
//! gRPC listener, a request with its whole body on the other listeners. At a limit, the connection
//! that has waited longest is evicted, and the new one gets its slot. So clients that connect and stay
//! silent do not keep other clients out. If no connection waits, the new one is refused.
//!
//! At the total limit, the address with most connections makes room for those with fewer. If it has
//! more than the address of the new connection would have, the new connection gets the slot of its
//! connection that has waited longest. If none waits, it gets the slot of the one that has been
//! without a call for longest. So a few addresses that fill all slots keep no other out, however busy
//! their connections are. A fleet of proxies behind one address has all slots as long as no other
//! client needs one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::atomic_count::AtomicCount;
use crate::client_address::ClientAddress;
use crate::server::metrics::{ListenerMetrics, ServerMetrics};

mod table;

use table::{Admitted, ConnectionTable, Refusal};

/// The slots of one listener. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::server) struct ConnectionSlots(Arc<SharedSlots>);

#[derive(Debug)]
struct SharedSlots {
    table: Mutex<ConnectionTable>,
    metrics: Arc<ServerMetrics>,
    of_listener: fn(&ServerMetrics) -> &ListenerMetrics,
}

/// The slot of one connection. Dropping it frees it.
#[derive(Debug)]
pub(in crate::server) struct Slot {
    id: u64,
    address: ClientAddress,
    calls: Arc<AtomicCount>,
    evict: Arc<Notify>,
    shared: Arc<SharedSlots>,
}

impl ConnectionSlots {
    /// Slots for `max` connections, of which one client address gets at most `max_per_peer`.
    pub(in crate::server) fn new(
        max: usize,
        max_per_peer: Option<usize>,
        metrics: Arc<ServerMetrics>,
        of_listener: fn(&ServerMetrics) -> &ListenerMetrics,
    ) -> ConnectionSlots {
        let table = Mutex::new(ConnectionTable::new(max, max_per_peer));
        ConnectionSlots(Arc::new(SharedSlots { table, metrics, of_listener }))
    }

    /// A slot for a new connection of `peer`; `None` if no slot is free and none can be freed. The
    /// connection waits for its client.
    pub(in crate::server) fn try_acquire(&self, peer: ClientAddress) -> Option<Slot> {
        let listener = self.0.listener();
        let admitted = self.0.change(|table| table.admit(peer));
        let Admitted { id, calls, evict, evicted } = match admitted {
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
        Some(Slot { id, address: peer, calls, evict, shared: Arc::clone(&self.0) })
    }
}

impl Slot {
    /// The address of the client.
    pub(in crate::server) fn address(&self) -> ClientAddress {
        self.address
    }

    /// The calls of the connection so far, which its owner counts. A connection whose calls have
    /// not changed is evicted before others.
    pub(in crate::server) fn calls(&self) -> &Arc<AtomicCount> {
        &self.calls
    }

    /// Returns when another connection has got the slot. This connection must then close.
    pub(in crate::server) async fn evicted(&self) {
        self.evict.notified().await;
    }

    /// Frees the slot for another connection, while this one stays open. Another bound must apply to it.
    pub(in crate::server) fn leave(&self) {
        self.shared.change(|table| table.remove(self.id));
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

impl SharedSlots {
    fn listener(&self) -> &ListenerMetrics {
        (self.of_listener)(&self.metrics)
    }

    /// Changes the table, and updates the gauge of waiting connections.
    fn change<T>(&self, change: impl FnOnce(&mut ConnectionTable) -> T) -> T {
        let mut table: MutexGuard<'_, ConnectionTable> =
            self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut table);
        self.listener().waiting.set(table.waiting.len() as u64);
        changed
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
    fn a_connection_that_left_has_no_slot() {
        let (slots, metrics) = slots(1, Some(1));
        let first = slots.try_acquire(ip("10.0.0.1")).unwrap();
        assert!(first.end_wait());
        first.leave();
        let second = slots.try_acquire(ip("10.0.0.1")).unwrap();
        assert!(second.end_wait() && !first.end_wait());
        assert_eq!(metrics.admin.open.get(), 2);
        drop(first);
        assert!(slots.try_acquire(ip("10.0.0.1")).is_none(), "the second one has the slot");
        drop(second);
        assert_eq!(metrics.admin.open.get(), 0);
        assert!(slots.try_acquire(ip("10.0.0.1")).is_some());
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
        // The address at its limit has more than a third one would have.
        assert!(slots.try_acquire(ip("10.0.0.3")).is_some() && is_evicted(&second));
        assert!(!is_evicted(&other));
    }

    #[test]
    fn an_address_with_most_slots_gives_way() {
        let (slots, metrics) = slots(8, None);
        let take = |address: &str| slots.try_acquire(ip(address));
        // Addresses of one /64 are one client.
        let flood: Vec<Slot> =
            (1..=8).map(|host| take(&format!("2001:db8::{host}")).unwrap()).collect();
        assert!(flood[..7].iter().all(Slot::end_wait));
        flood[0].calls().add();
        let evicted = || -> Vec<usize> { (0..8).filter(|one| is_evicted(&flood[*one])).collect() };
        let honest = |number: usize| -> Vec<Slot> {
            let taken: Vec<Slot> = (0..number).map(|_| take("10.0.0.1").unwrap()).collect();
            assert!(taken.iter().all(Slot::end_wait));
            taken
        };
        let first = honest(1);
        assert_eq!(evicted(), [7], "the one that waits");
        let more = honest(2);
        assert_eq!(evicted(), [1, 2], "the first has had a call");
        flood.iter().for_each(|slot| slot.calls().add());
        let last = honest(1);
        assert_eq!(evicted(), [3], "all have had calls, so the oldest");
        assert!(take("10.0.0.1").is_none(), "neither has more");
        assert!(take("2001:db8::1").is_none());
        assert!(!first.iter().chain(&more).chain(&last).any(is_evicted));
        let counts = (metrics.admin.evicted.get(), metrics.admin.refused_total.get());
        assert_eq!(counts, (4, 2));
    }

    #[test]
    fn an_address_with_most_slots_refuses_its_own() {
        let (slots, _) = slots(4, None);
        let take = |address: &str| slots.try_acquire(ip(address));
        let _honest = take("10.0.0.2").unwrap();
        let flood: Vec<Slot> = (0..3).map(|_| take("10.0.0.1").unwrap()).collect();
        assert!(flood.iter().all(Slot::end_wait));
        assert!(take("10.0.0.1").is_none(), "the connection of the other address waits");
        assert!(take("10.0.0.3").is_some());
    }

    #[test]
    fn few_addresses_do_not_keep_others_out() {
        let (slots, metrics) = slots(6, None);
        let take = |address: &str| slots.try_acquire(ip(address));
        let busy = |address: &str| {
            let slot = take(address).unwrap();
            assert!(slot.end_wait());
            slot
        };
        let flood = ["10.0.0.1", "10.0.0.2"].repeat(3);
        let flood: Vec<Slot> = flood.into_iter().map(busy).collect();
        let honest = [busy("10.0.0.3"), busy("10.0.0.3")];
        assert_eq!(flood.iter().filter(|slot| is_evicted(slot)).count(), 2);
        assert!(take("10.0.0.3").is_none(), "each has two");
        let fourth = busy("10.0.0.4");
        assert_eq!(honest.iter().chain(&flood).filter(|slot| is_evicted(slot)).count(), 1);
        assert!(!is_evicted(&fourth));
        assert_eq!((metrics.admin.evicted.get(), metrics.admin.refused_total.get()), (3, 1));
    }

    #[test]
    fn the_wait_of_a_smaller_address_is_not_ended() {
        let (slots, _) = slots(4, None);
        let take = |address: &str| slots.try_acquire(ip(address));
        let small = take("10.0.0.1").unwrap();
        let large = [take("10.0.0.2").unwrap(), take("10.0.0.2").unwrap()];
        let other = take("10.0.0.3").unwrap();
        assert!(large.iter().chain([&other]).all(Slot::end_wait));
        assert!(take("10.0.0.2").is_none() && !is_evicted(&small));
        assert!(take("10.0.0.4").is_some() && !is_evicted(&small));
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
        assert!(table.peers.is_empty() && table.by_open.is_empty());
        assert_eq!((metrics.admin.open.get(), metrics.admin.waiting.get()), (0, 0));
    }
}
