//! A bound on what clients hold, of which no client address takes the whole: streams, or buckets.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::lingering::Lingering;
use crate::client_address::ClientAddress;
use crate::time::Micros;

/// What all clients hold together, and each of their addresses. An address may hold as much as is
/// left: half of the bound if it is alone, a third beside another address that takes what it can. So
/// the next address always finds a part.
///
/// Buckets of ended streams whose assignments may still be in use count for their address, because the
/// ledgers have their holders: a client that opens and closes streams cannot add more.
#[derive(Debug)]
pub(super) struct ClientBudget {
    max: u64,
    held: Mutex<HeldByClients>,
}

#[derive(Debug)]
struct HeldByClients {
    total: u64,
    /// Of each address that holds something. Their number is at most `total`.
    by_address: HashMap<ClientAddress, u64>,
    /// What has ended, and is part of the numbers above.
    lingering: Lingering<ClientAddress>,
}

/// Why a client may not hold more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetFull {
    /// All clients hold as much as the bound.
    ForAll,
    /// The address holds as much as is left.
    ForAddress,
}

impl ClientBudget {
    /// At most `max` of all clients.
    pub(super) fn new(max: usize) -> ClientBudget {
        let (by_address, lingering) = (HashMap::new(), Lingering::new());
        let held = Mutex::new(HeldByClients { total: 0, by_address, lingering });
        ClientBudget { max: max as u64, held }
    }

    /// Counts one more of `client`.
    ///
    /// # Errors
    ///
    /// The bound does not permit it.
    pub(super) fn reserve(&self, client: ClientAddress) -> Result<(), BudgetFull> {
        let mut held = self.lock();
        let own = held.by_address.get(&client).copied().unwrap_or(0);
        let free = self.max.saturating_sub(held.total);
        if free == 0 {
            return Err(BudgetFull::ForAll);
        }
        if own >= free {
            return Err(BudgetFull::ForAddress);
        }
        held.total += 1;
        held.by_address.insert(client, own + 1);
        Ok(())
    }

    /// One of `client` ended, and does not count any longer.
    pub(super) fn release(&self, client: ClientAddress) {
        self.lock().remove(client, 1);
    }

    /// One of `client` ended, and counts until `until`.
    pub(super) fn release_at(&self, client: ClientAddress, until: Micros) {
        self.lock().lingering.add(until, client);
    }

    /// Frees what does not count any longer.
    pub(super) fn expire(&self, now: Micros) {
        let mut held = self.lock();
        while let Some((client, number)) = held.lingering.take_expired(now) {
            held.remove(client, number);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HeldByClients> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldByClients {
    fn remove(&mut self, client: ClientAddress, number: u64) {
        self.total -= number;
        let Some(own) = self.by_address.get_mut(&client) else { return };
        *own -= number;
        if *own == 0 {
            self.by_address.remove(&client);
            if self.by_address.len() < self.by_address.capacity() / 4 {
                let room = 2 * self.by_address.len();
                self.by_address.shrink_to(room);
            }
        }
    }
}

#[cfg(test)]
mod tests;
