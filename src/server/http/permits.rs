//! Permits of a listener for bodies and pages that are too large for the memory of one connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};

use crate::client_address::ClientAddress;
use crate::server::metrics::ServerMetrics;

/// Largest body, in bytes, that needs no permit.
pub(super) const SMALL_MAX: usize = 8 << 10;

/// The permits of one listener. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Permits {
    table: Arc<PermitTable>,
    metrics: Arc<ServerMetrics>,
}

#[derive(Debug)]
struct PermitTable(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    free: usize,
    /// The permits of each address that has some.
    taken: HashMap<ClientAddress, usize>,
}

impl PermitTable {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A permit. Dropping it frees it.
#[derive(Debug)]
pub(super) struct Permit {
    address: Option<ClientAddress>,
    table: Arc<PermitTable>,
}

impl Permits {
    /// `max` permits.
    pub(super) fn new(max: usize, metrics: Arc<ServerMetrics>) -> Permits {
        let counts = Counts { free: max, taken: HashMap::new() };
        Permits { table: Arc::new(PermitTable(Mutex::new(counts))), metrics }
    }

    /// A permit for a client of `address`, which gets as many as are left, or for any client. `None`
    /// if there is none: the response is then [`busy`].
    pub(super) fn try_acquire(&self, address: Option<ClientAddress>) -> Option<Permit> {
        let mut counts = self.table.lock();
        let taken = address.and_then(|address| counts.taken.get(&address).copied()).unwrap_or(0);
        if counts.free <= taken {
            self.metrics.http_busy.add();
            return None;
        }
        counts.free -= 1;
        if let Some(address) = address {
            counts.taken.insert(address, taken + 1);
        }
        Some(Permit { address, table: Arc::clone(&self.table) })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.table.lock();
        counts.free += 1;
        let Some(address) = self.address else { return };
        match counts.taken.get(&address).copied() {
            Some(taken) if taken > 1 => counts.taken.insert(address, taken - 1),
            _ => counts.taken.remove(&address),
        };
    }
}

impl Permit {
    /// `bytes`, which have the permit until they are dropped. hyper drops a response when the system
    /// has accepted the last byte of it, or when its connection ends.
    pub(super) fn hold(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(BytesWithPermit { bytes, _permit: self })
    }
}

struct BytesWithPermit<T> {
    bytes: T,
    _permit: Permit,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for BytesWithPermit<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// The response to a request that needs a permit when all are taken.
pub(super) fn busy() -> Response {
    let reason = "too many large requests and responses are open; send the request again later\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], reason).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::IpAddr;

    #[test]
    fn bytes_have_their_permit_until_they_are_dropped() {
        let metrics = Arc::<ServerMetrics>::default();
        let permits = Permits::new(1, Arc::clone(&metrics));
        let held = permits.try_acquire(None).unwrap().hold("page");
        let part = held.slice(1..2);
        drop(held);
        assert!(permits.try_acquire(None).is_none(), "a part of them is left");
        assert_eq!((&part[..], metrics.http_busy.get()), (&b"a"[..], 1));
        drop(part);
        assert!(permits.try_acquire(None).is_some());
    }

    #[test]
    fn an_address_leaves_permits_for_others() {
        let permits = Permits::new(8, Arc::default());
        let address = |host: u8| Some(IpAddr::from([10, 0, 0, host]).into());
        let take = |host| (0..8).map_while(|_| permits.try_acquire(address(host))).collect();
        let [first, second, third]: [Vec<Permit>; 3] = [1, 2, 3].map(take);
        assert_eq!([first.len(), second.len(), third.len()], [4, 2, 1]);
        drop((first, second, third));
        let counts = permits.table.lock();
        assert_eq!((counts.free, counts.taken.len()), (8, 0));
    }
}
