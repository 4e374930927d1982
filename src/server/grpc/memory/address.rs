//! What the calls of one client address hold, over all its connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::atomic_count::AtomicCount;
use crate::client_address::ClientAddress;

/// Bytes that the calls of one client address hold, in the parts of the budget that refuse calls.
#[derive(Debug, Default)]
pub(in crate::server::grpc) struct AddressMemory {
    waiting: AtomicCount,
    deciding: AtomicCount,
}

/// A part of the budget that calls hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallPart {
    Waiting,
    Deciding,
}

impl AddressMemory {
    /// What the calls hold of `part`.
    pub(super) fn held(&self, part: CallPart) -> &AtomicCount {
        match part {
            CallPart::Waiting => &self.waiting,
            CallPart::Deciding => &self.deciding,
        }
    }
}

/// The memory of each address with an open connection. A connection keeps the memory of its address,
/// so its calls need no lock.
#[derive(Debug, Default)]
pub(super) struct AddressTable(Mutex<HashMap<ClientAddress, OpenAddress>>);

#[derive(Debug, Default)]
struct OpenAddress {
    connections: usize,
    memory: Arc<AddressMemory>,
}

impl AddressTable {
    /// Adds a connection of `address`. Returns what all its connections share.
    pub(super) fn add(&self, address: ClientAddress) -> Arc<AddressMemory> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = table.entry(address).or_default();
        open.connections += 1;
        Arc::clone(&open.memory)
    }

    /// Removes a connection of `address`, which [`add`](Self::add) added.
    pub(super) fn remove(&self, address: ClientAddress) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = table.get_mut(&address) {
            open.connections -= 1;
            if open.connections == 0 {
                table.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::IpAddr;

    #[test]
    fn an_address_is_known_while_it_is_connected() {
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|ip| IpAddr::from(ip).into());
        let table = AddressTable::default();
        let (first, second, third) = (table.add(one), table.add(one), table.add(other));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &third));
        table.remove(one);
        assert!(Arc::ptr_eq(&first, &table.add(one)), "a connection is still open");
        table.remove(one);
        table.remove(one);
        table.remove(other);
        assert!(table.0.lock().unwrap().is_empty());
    }
}
