//! The dealer: hands each accepted connection to the core with the fewest open ones.
//!
//! Envoy opens one long connection per worker thread. Hashing those over ports, as the kernel does
//! with `SO_REUSEPORT`, leaves some cores with several and others idle for hours; counting does not.

use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::counters::Counters;
use super::peers::{Peer, Peers};

/// Connections that may wait for one core to pick them up.
const QUEUE: usize = 1024;

/// A connection on its way to a core, counted there from now until it is dropped.
#[derive(Debug)]
pub(super) struct Dealt {
    pub(super) stream: TcpStream,
    pub(super) seat: Seat,
}

/// One place taken on a core, and one of its peer's. Gives them back when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    core: Arc<AtomicUsize>,
    counters: Arc<Counters>,
    _peer: Peer,
}

impl Seat {
    fn take(core: &Arc<AtomicUsize>, counters: &Arc<Counters>, peer: Peer) -> Seat {
        core.fetch_add(1, Ordering::Relaxed);
        counters.grpc.open.add();
        Seat { core: Arc::clone(core), counters: Arc::clone(counters), _peer: peer }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.core.fetch_sub(1, Ordering::Relaxed);
        self.counters.grpc.open.subtract();
    }
}

/// Deals connections. Dropping it tells every core that no more will come.
#[derive(Debug)]
pub(super) struct Dealer {
    cores: Vec<Core>,
    max: usize,
    peers: Peers,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Core {
    open: Arc<AtomicUsize>,
    queue: mpsc::Sender<Dealt>,
}

impl Dealer {
    /// A dealer to `cores` cores that keeps at most `max` connections open, and of each peer those
    /// that `peers` allows; and each core's queue.
    pub(super) fn new(
        cores: usize,
        max: usize,
        peers: Peers,
        counters: Arc<Counters>,
    ) -> (Dealer, Vec<mpsc::Receiver<Dealt>>) {
        let core = || {
            let (queue, receiver) = mpsc::channel(QUEUE);
            (Core { open: Arc::default(), queue }, receiver)
        };
        let (cores, queues) = (0..cores).map(|_| core()).unzip();
        (Dealer { cores, max, peers, counters }, queues)
    }

    /// Hands `stream` to the core with the fewest open connections that can take it. Closes it, and
    /// says so, when there are too many already.
    pub(super) fn deal(&self, stream: TcpStream, peer: IpAddr) -> bool {
        let port = &self.counters.grpc;
        port.accepted.add();
        let Some(peer) = self.peers.take(peer) else {
            port.peer_full.add();
            return false;
        };
        let dealt = self.seat(stream, peer);
        if !dealt {
            port.full.add();
        }
        dealt
    }

    fn seat(&self, stream: TcpStream, peer: Peer) -> bool {
        let mut order: Vec<(usize, &Core)> = self.cores.iter().map(|c| (c.open(), c)).collect();
        if order.iter().map(|(open, _)| open).sum::<usize>() >= self.max {
            return false;
        }
        order.sort_by_key(|(open, _)| *open);
        let place = order.iter().find_map(|(_, core)| Some((core, core.queue.try_reserve().ok()?)));
        let Some((core, place)) = place else { return false };
        place.send(Dealt { stream, seat: Seat::take(&core.open, &self.counters, peer) });
        true
    }
}

impl Core {
    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn dealer(cores: usize, max: usize) -> (Dealer, Vec<mpsc::Receiver<Dealt>>) {
        Dealer::new(cores, max, Peers::new(None), Arc::default())
    }

    /// Both ends of a new connection; the client's end only has to stay open.
    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn opens(dealer: &Dealer) -> Vec<usize> {
        dealer.cores.iter().map(Core::open).collect()
    }

    #[test]
    fn each_connection_goes_to_the_core_with_the_fewest() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (dealer, mut queues) = dealer(3, 100);
        let mut clients = Vec::new();
        let mut deal = || {
            let (client, stream) = connection(&listener);
            clients.push(client);
            dealer.deal(stream, PEER)
        };
        for _ in 0..7 {
            assert!(deal());
        }
        assert_eq!(opens(&dealer), [3, 2, 2]);

        let gone = [queues[1].try_recv().unwrap(), queues[1].try_recv().unwrap()];
        assert_eq!(opens(&dealer), [3, 2, 2], "picked up is still open");
        drop(gone);
        assert_eq!(opens(&dealer), [3, 0, 2]);
        for _ in 0..3 {
            assert!(deal());
        }
        assert_eq!(opens(&dealer), [3, 3, 2], "the next ones make up for those that left");
    }

    #[test]
    fn a_core_that_is_gone_or_full_is_passed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (dealer, mut queues) = dealer(2, 100);
        drop(queues.remove(0));
        let (_client, stream) = connection(&listener);
        assert!(dealer.deal(stream, PEER));
        assert_eq!(opens(&dealer), [0, 1]);
        drop(queues);
        let (_client, stream) = connection(&listener);
        assert!(!dealer.deal(stream, PEER), "nobody is left to take it");
        assert_eq!(opens(&dealer), [0, 0]);
    }

    #[test]
    fn one_connection_too_many_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (dealer, mut queues) = dealer(2, 2);
        let clients: Vec<_> = (0..2)
            .map(|_| {
                let (client, stream) = connection(&listener);
                assert!(dealer.deal(stream, PEER));
                client
            })
            .collect();
        let (_client, stream) = connection(&listener);
        assert!(!dealer.deal(stream, PEER));
        assert_eq!(dealer.counters.grpc.full.get(), 1);
        drop(queues[0].try_recv().unwrap());
        let (_client, stream) = connection(&listener);
        assert!(dealer.deal(stream, PEER), "the place is free again");
        assert_eq!(dealer.counters.grpc.full.get(), 1);
        drop(clients);
    }
}
