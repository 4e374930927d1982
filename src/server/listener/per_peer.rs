//! The limit on open connections per client address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of open connections by address. It has an entry only for addresses with a connection.
#[derive(Clone, Debug)]
pub(in crate::server) struct PerPeerLimit {
    /// The largest number of connections per address; `None` for no limit.
    max: Option<usize>,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// Counts one connection of an address until it is dropped.
#[derive(Debug)]
pub(in crate::server) struct PerPeerPermit {
    address: IpAddr,
    open: Option<Arc<Mutex<HashMap<IpAddr, usize>>>>,
}

impl PerPeerLimit {
    /// A limit of `max` connections per address; `None` for no limit.
    pub(in crate::server) fn new(max: Option<usize>) -> PerPeerLimit {
        PerPeerLimit { max, open: Arc::default() }
    }

    /// A permit for one more connection of `address`; `None` if it has reached the limit.
    pub(in crate::server) fn try_acquire(&self, address: IpAddr) -> Option<PerPeerPermit> {
        // A dual-stack socket reports an IPv4 client as `::ffff:a.b.c.d`. Both forms are one
        // client.
        let address = address.to_canonical();
        let Some(max) = self.max else { return Some(PerPeerPermit { address, open: None }) };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(PerPeerPermit { address, open: Some(Arc::clone(&self.open)) })
    }
}

impl Drop for PerPeerPermit {
    fn drop(&mut self) {
        let Some(open) = &self.open else { return };
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_an_address_share_one_limit() {
        let peers = PerPeerLimit::new(Some(2));
        let ip = |text: &str| text.parse().unwrap();
        let first = peers.try_acquire(ip("10.0.0.1")).unwrap();
        let _second = peers.try_acquire(ip("::ffff:10.0.0.1")).unwrap();
        assert!(peers.try_acquire(ip("10.0.0.1")).is_none());
        let other = peers.try_acquire(ip("10.0.0.2")).unwrap();
        drop((first, other));
        let _third = peers.try_acquire(ip("10.0.0.1")).unwrap();
        assert_eq!(peers.open.lock().unwrap().len(), 1);
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let peers = PerPeerLimit::new(None);
        let taken: Vec<_> = (0..100).map(|_| peers.try_acquire("::1".parse().unwrap())).collect();
        assert!(taken.iter().all(Option::is_some) && peers.open.lock().unwrap().is_empty());
    }
}
