//! Assignment of each accepted connection to the worker with the fewest open connections.
//!
//! Envoy opens one long-lived connection per worker thread. With `SO_REUSEPORT`, the kernel's
//! hashing can leave some workers with several of them and others idle for hours. Counting avoids
//! that.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::slots::{ConnectionSlots, Slot};
use crate::client_address::ClientAddress;
use crate::server::metrics::ServerMetrics;

/// Connections that may wait in the queue of one worker.
const QUEUE: usize = 1024;

/// A connection for a worker. It counts as open until its guard is dropped.
#[derive(Debug)]
pub(in crate::server) struct Accepted {
    pub(in crate::server) stream: TcpStream,
    pub(in crate::server) guard: ConnectionGuard,
}

/// Counts one open connection of a worker, and holds its slot, until it is dropped.
#[derive(Debug)]
pub(in crate::server) struct ConnectionGuard {
    worker: Arc<AtomicUsize>,
    /// The slot of the connection. It waits until TLS and the HTTP/2 preface are complete.
    pub(in crate::server) slot: Slot,
}

impl ConnectionGuard {
    fn new(worker: &Arc<AtomicUsize>, slot: Slot) -> ConnectionGuard {
        worker.fetch_add(1, Ordering::Relaxed);
        ConnectionGuard { worker: Arc::clone(worker), slot }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.worker.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Assigns connections to workers. Dropping it closes the queues of all workers.
#[derive(Debug)]
pub(in crate::server) struct LeastConnections {
    workers: Vec<Worker>,
    slots: ConnectionSlots,
    metrics: Arc<ServerMetrics>,
}

#[derive(Debug)]
struct Worker {
    open: Arc<AtomicUsize>,
    queue: mpsc::Sender<Accepted>,
}

impl LeastConnections {
    /// A balancer for `workers` workers, and the queue of each worker. At most `max` connections
    /// are open in total, and at most `max_per_peer` per client address.
    pub(in crate::server) fn new(
        workers: usize,
        max: usize,
        max_per_peer: Option<usize>,
        metrics: Arc<ServerMetrics>,
    ) -> (LeastConnections, Vec<mpsc::Receiver<Accepted>>) {
        let worker = || {
            let (queue, receiver) = mpsc::channel(QUEUE);
            (Worker { open: Arc::default(), queue }, receiver)
        };
        let (workers, queues) = (0..workers).map(|_| worker()).unzip();
        let slots =
            ConnectionSlots::new(max, max_per_peer, Arc::clone(&metrics), |metrics| &metrics.grpc);
        (LeastConnections { workers, slots, metrics }, queues)
    }

    /// Sends `stream` to the worker with the fewest open connections whose queue has room. Returns
    /// false if no queue has room or no slot is free; the connection is then closed.
    pub(in crate::server) fn assign(&self, stream: TcpStream, peer: ClientAddress) -> bool {
        let listener = &self.metrics.grpc;
        listener.accepted.add();
        let mut order: Vec<(usize, &Worker)> =
            self.workers.iter().map(|worker| (worker.open(), worker)).collect();
        order.sort_by_key(|(open, _)| *open);
        let room =
            order.iter().find_map(|(_, worker)| Some((worker, worker.queue.try_reserve().ok()?)));
        // Before the slot: a connection without a worker must not evict another one.
        let Some((worker, room)) = room else {
            listener.refused_total.add();
            return false;
        };
        let Some(slot) = self.slots.try_acquire(peer) else { return false };
        room.send(Accepted { stream, guard: ConnectionGuard::new(&worker.open, slot) });
        true
    }
}

impl Worker {
    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, TcpListener};

    fn peer() -> ClientAddress {
        IpAddr::V4(Ipv4Addr::LOCALHOST).into()
    }

    fn balancer(workers: usize, max: usize) -> (LeastConnections, Vec<mpsc::Receiver<Accepted>>) {
        LeastConnections::new(workers, max, None, Arc::default())
    }

    /// Both ends of a new connection. The client's end only has to stay open.
    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn opens(balancer: &LeastConnections) -> Vec<usize> {
        balancer.workers.iter().map(Worker::open).collect()
    }

    #[test]
    fn each_connection_goes_to_the_least_loaded_worker() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (balancer, mut queues) = balancer(3, 100);
        let mut clients = Vec::new();
        let mut assign = || {
            let (client, stream) = connection(&listener);
            clients.push(client);
            balancer.assign(stream, peer())
        };
        for _ in 0..7 {
            assert!(assign());
        }
        assert_eq!(opens(&balancer), [3, 2, 2]);

        let taken = [queues[1].try_recv().unwrap(), queues[1].try_recv().unwrap()];
        assert_eq!(opens(&balancer), [3, 2, 2], "connections taken from the queue count as open");
        drop(taken);
        assert_eq!(opens(&balancer), [3, 0, 2]);
        for _ in 0..3 {
            assert!(assign());
        }
        assert_eq!(opens(&balancer), [3, 3, 2], "new connections go to the worker with the fewest");
    }

    #[test]
    fn a_stopped_or_full_worker_is_skipped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (balancer, mut queues) = balancer(2, 100);
        drop(queues.remove(0));
        let (_client, stream) = connection(&listener);
        assert!(balancer.assign(stream, peer()));
        assert_eq!(opens(&balancer), [0, 1]);
        drop(queues);
        let (_client, stream) = connection(&listener);
        assert!(!balancer.assign(stream, peer()), "no worker is left");
        assert_eq!(opens(&balancer), [0, 0]);
    }

    #[test]
    fn a_connection_over_the_maximum_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (balancer, mut queues) = balancer(2, 2);
        let mut clients = Vec::new();
        let mut assign = || {
            let (client, stream) = connection(&listener);
            clients.push(client);
            balancer.assign(stream, peer())
        };
        assert!(assign() && assign());
        let [first, second] = [0, 1].map(|worker: usize| queues[worker].try_recv().unwrap());
        assert!(first.guard.slot.end_wait() && second.guard.slot.end_wait());
        assert!(!assign());
        assert_eq!(balancer.metrics.grpc.refused_total.get(), 1);
        drop(first);
        assert!(assign(), "the closed connection does not count");
        assert!(assign(), "the connection that is not open yet is evicted");
        assert_eq!(balancer.metrics.grpc.refused_total.get(), 1);
        assert_eq!(balancer.metrics.grpc.evicted.get(), 1);
    }
}
