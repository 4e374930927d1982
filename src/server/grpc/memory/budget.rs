//! The memory budget: a bound on the bytes that the clients of the gRPC listener make the process
//! hold.
//!
//! The budget (`grpc.max_client_memory`) has four parts. A client that fills one part takes nothing
//! from the others:
//!
//! | part | share | for | when it is full |
//! | --- | --- | --- | --- |
//! | connections | 4/8 | a fixed cost of each connection | as at `grpc.max_connections` |
//! | buffers | 2/8 | what a connection buffers in addition | a connection of the address that holds most is closed |
//! | waiting | 1/8 | calls that wait for their client | a further call gets RESOURCE_EXHAUSTED |
//! | deciding | 1/8 | calls that wait for their decision | a further call is decided by the fallback, or gets RESOURCE_EXHAUSTED |
//!
//! No client address takes a part from the others. Of the last two parts, an address may hold as
//! much as is left: half of the part if it is alone, a third beside another address that takes what
//! it can. With a fixed share, a few addresses could fill a part. This rule leaves a share to the next
//! address. One address may hold the first two parts as long as no other address needs them, because
//! a connection can be closed later. A fleet of proxies behind one address counts as one
//! client, and so do all clients on loopback.
//!
//! The sizes are estimates that are rounded up. A call that is answered in its first poll takes
//! nothing, so it changes no counter that threads share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::address::{AddressMemory, AddressTable, CallPart};
use super::buffers::{Buffers, evict_largest};
use crate::client_address::ClientAddress;
use crate::server::metrics::{PartMemory, ServerMetrics};

/// A part of the memory budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryPart {
    Connections,
    Buffers,
    Waiting,
    Deciding,
}

impl MemoryPart {
    const ALL: [MemoryPart; 4] =
        [MemoryPart::Connections, MemoryPart::Buffers, MemoryPart::Waiting, MemoryPart::Deciding];

    /// The share of the part in the budget, in eighths.
    fn eighths(self) -> u64 {
        match self {
            MemoryPart::Connections => 4,
            MemoryPart::Buffers => 2,
            MemoryPart::Waiting | MemoryPart::Deciding => 1,
        }
    }
}

impl From<CallPart> for MemoryPart {
    fn from(part: CallPart) -> MemoryPart {
        match part {
            CallPart::Waiting => MemoryPart::Waiting,
            CallPart::Deciding => MemoryPart::Deciding,
        }
    }
}

/// The memory of all clients, with its maximum. All workers share it.
pub(in crate::server) struct MemoryBudget {
    max: u64,
    metrics: Arc<ServerMetrics>,
    /// The buffers of every open connection, by the address of the value.
    buffers: Mutex<HashMap<usize, Arc<Buffers>>>,
    addresses: AddressTable,
    /// The address of calls without a connection.
    no_address: Arc<AddressMemory>,
}

impl MemoryBudget {
    /// A budget of `max` bytes.
    pub(in crate::server) fn new(max: usize, metrics: Arc<ServerMetrics>) -> MemoryBudget {
        let budget = MemoryBudget {
            max: max as u64,
            metrics,
            buffers: Mutex::default(),
            addresses: AddressTable::default(),
            no_address: Arc::default(),
        };
        for part in MemoryPart::ALL {
            budget.part(part).max.set(budget.max_of(part));
        }
        budget
    }

    /// The metrics of the server, for events beside the bytes.
    pub(super) fn metrics(&self) -> &ServerMetrics {
        &self.metrics
    }

    /// The share of `part` in a budget of `max` bytes.
    pub(super) fn share(max: u64, part: MemoryPart) -> u64 {
        max * part.eighths() / 8
    }

    /// Counts `bytes` of `part`, which something else bounds.
    pub(super) fn add(&self, part: MemoryPart, bytes: u64) {
        self.part(part).held.add_many(bytes);
    }

    /// Returns `bytes` that [`add`](Self::add) counted.
    pub(super) fn subtract(&self, part: MemoryPart, bytes: u64) {
        self.part(part).held.subtract_many(bytes);
    }

    /// Takes `bytes` of `part` for a call of `address`. Returns false, and takes nothing, if the
    /// address would then hold more of the part than is left.
    pub(super) fn take(&self, part: CallPart, bytes: u64, address: &AddressMemory) -> bool {
        let part_held = self.part(part.into()).held.add_many(bytes);
        let address_held = address.held(part).add_many(bytes);
        let fits = part_held.saturating_add(address_held) <= self.max_of(part.into());
        if !fits {
            self.give_back(part, bytes, address);
        }
        fits
    }

    /// Returns `bytes` that [`take`](Self::take) took.
    pub(super) fn give_back(&self, part: CallPart, bytes: u64, address: &AddressMemory) {
        address.held(part).subtract_many(bytes);
        self.part(part.into()).held.subtract_many(bytes);
    }

    /// The address of calls without a connection.
    pub(in crate::server::grpc) fn no_address(&self) -> &Arc<AddressMemory> {
        &self.no_address
    }

    /// The empty buffers of a new connection of `address`.
    pub(super) fn add_buffers(&self, address: ClientAddress) -> Arc<Buffers> {
        let buffers = Arc::new(Buffers::new(address, self.addresses.add(address)));
        self.all_buffers(|all| all.insert(key(&buffers), Arc::clone(&buffers)));
        buffers
    }

    /// Returns the bytes of `buffers`, whose connection has ended.
    pub(super) fn remove_buffers(&self, buffers: &Arc<Buffers>) {
        self.all_buffers(|all| all.remove(&key(buffers)));
        self.addresses.remove(buffers.address());
        self.subtract(MemoryPart::Buffers, buffers.set_bytes(0));
    }

    /// Changes the size of `buffers`. If that exceeds the part, connections are evicted until the
    /// rest fits: of the address that holds most, the one with the most bytes that no open stream
    /// needs.
    pub(super) fn resize_buffers(&self, buffers: &Buffers, bytes: u64) {
        let before = buffers.set_bytes(bytes);
        if bytes <= before {
            return self.subtract(MemoryPart::Buffers, before - bytes);
        }
        let held = self.part(MemoryPart::Buffers).held.add_many(bytes - before);
        let over = held.saturating_sub(self.max_of(MemoryPart::Buffers));
        if over > 0 {
            self.all_buffers(|all| evict_largest(all, over));
        }
    }

    fn all_buffers<T>(&self, act: impl FnOnce(&mut HashMap<usize, Arc<Buffers>>) -> T) -> T {
        act(&mut self.buffers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn max_of(&self, part: MemoryPart) -> u64 {
        MemoryBudget::share(self.max, part)
    }

    fn part(&self, part: MemoryPart) -> &PartMemory {
        let parts = &self.metrics.client_memory;
        match part {
            MemoryPart::Connections => &parts.connections,
            MemoryPart::Buffers => &parts.buffers,
            MemoryPart::Waiting => &parts.waiting,
            MemoryPart::Deciding => &parts.deciding,
        }
    }
}

fn key(buffers: &Arc<Buffers>) -> usize {
    Arc::as_ptr(buffers).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::IpAddr;

    use futures_util::FutureExt;
    use proptest::prelude::*;

    fn budget(max: usize) -> MemoryBudget {
        MemoryBudget::new(max, Arc::default())
    }

    fn held(budget: &MemoryBudget, part: MemoryPart) -> u64 {
        budget.part(part).held.get()
    }

    fn address(last: u8) -> ClientAddress {
        IpAddr::from([10, 0, 0, last]).into()
    }

    #[test]
    fn the_parts_are_the_whole_budget() {
        let budget = budget(8000);
        let maxima = MemoryPart::ALL.map(|part| budget.part(part).max.get());
        assert_eq!(maxima, [4000, 2000, 1000, 1000]);
    }

    #[test]
    fn an_address_holds_as_much_as_is_left() {
        let budget = budget(8000);
        let address = AddressMemory::default();
        let take = |part, bytes| budget.take(part, bytes, &address);
        assert!(take(CallPart::Waiting, 500) && !take(CallPart::Waiting, 1), "half of the part");
        assert_eq!(held(&budget, MemoryPart::Waiting), 500, "what is refused is not held");
        assert!(take(CallPart::Deciding, 500), "another part has its whole share");
        budget.give_back(CallPart::Waiting, 1, &address);
        assert!(take(CallPart::Waiting, 1));
    }

    #[test]
    fn no_address_takes_a_part_from_the_others() {
        let budget = budget(8000);
        let floods: Vec<AddressMemory> = (0..4).map(|_| AddressMemory::default()).collect();
        // Calls end and begin again, so the shares become equal.
        for flood in floods.iter().cycle().take(1000) {
            let held = flood.held(CallPart::Deciding).get();
            budget.give_back(CallPart::Deciding, held.min(10), flood);
            while budget.take(CallPart::Deciding, 1, flood) {}
        }
        let held = floods.iter().map(|flood| flood.held(CallPart::Deciding).get());
        assert_eq!(held.collect::<Vec<_>>(), [200; 4], "a fifth each");
        let honest = AddressMemory::default();
        assert!(budget.take(CallPart::Deciding, 100, &honest), "a fifth is left");
    }

    #[test]
    fn the_address_that_holds_most_is_evicted() {
        let budget = budget(8000);
        let add = |from: u8, bytes: u64, in_use: u64| {
            let buffers = budget.add_buffers(address(from));
            buffers.set_in_use(in_use);
            budget.resize_buffers(&buffers, bytes);
            buffers
        };
        let honest = add(1, 800, 0);
        let flood = [(300, 0), (300, 290), (400, 400), (200, 0)].map(|(b, used)| add(2, b, used));
        let evicted = |all: &[&Arc<Buffers>]| -> Vec<bool> {
            all.iter().map(|buffers| buffers.evicted().now_or_never().is_some()).collect()
        };
        let all: Vec<_> = flood.iter().chain([&honest]).collect();
        assert_eq!(evicted(&all), [false; 5], "2000 bytes fit");
        budget.resize_buffers(&flood[3], 201);
        assert_eq!(evicted(&all), [true, false, false, false, false], "no call needs its bytes");
        budget.resize_buffers(&honest, 1101);
        let second = [false, false, false, false, true];
        assert_eq!(evicted(&all), second, "its address holds most now");
    }

    #[test]
    fn the_largest_buffers_are_evicted() {
        let budget = budget(8000);
        let all: Vec<_> = (0..4).map(|_| budget.add_buffers(address(1))).collect();
        for (buffers, bytes) in all.iter().zip([100, 900, 600, 400]) {
            budget.resize_buffers(buffers, bytes);
        }
        let evicted = || -> Vec<bool> {
            all.iter().map(|buffers| buffers.evicted().now_or_never().is_some()).collect()
        };
        assert_eq!(evicted(), [false; 4], "2000 bytes fit");
        budget.resize_buffers(&all[0], 101);
        assert_eq!(evicted(), [false, true, false, false]);
        // 900 bytes are leaving, so another 800 evict nothing.
        budget.resize_buffers(&all[0], 900);
        assert_eq!(evicted(), [false; 4]);
        budget.resize_buffers(&all[0], 1600);
        assert_eq!(evicted(), [true, false, false, false], "the one that grew is the largest");
        for buffers in &all {
            budget.remove_buffers(buffers);
        }
        assert_eq!(held(&budget, MemoryPart::Buffers), 0);
        assert!(budget.buffers.lock().unwrap().is_empty());
    }

    #[test]
    fn a_single_connection_over_the_part_is_evicted() {
        let budget = budget(8000);
        let [small, large] = [1, 1].map(|last| budget.add_buffers(address(last)));
        budget.resize_buffers(&large, 1 << 40);
        assert!(large.evicted().now_or_never().is_some());
        assert!(small.evicted().now_or_never().is_none(), "empty buffers are of no use");
    }

    proptest! {
        /// Connections grow, shrink and end in any order. Those that are not evicted fit together,
        /// and at the end nothing is held.
        #[test]
        fn connections_that_stay_fit_together(
            steps in prop::collection::vec((0..6_usize, 0..1500_u64), 1..200)
        ) {
            let budget = budget(8000);
            let of = |index: usize| address(u8::try_from(index / 2).unwrap());
            let mut all: Vec<Arc<Buffers>> =
                (0..6).map(|index| budget.add_buffers(of(index))).collect();
            for (index, bytes) in steps {
                budget.resize_buffers(&all[index], bytes);
                let staying = all.iter().filter(|buffers| !buffers.is_evicted());
                let sum: u64 = staying.map(|buffers| buffers.bytes()).sum();
                prop_assert!(sum <= 2000, "{} bytes stay", sum);
                let whole: u64 = all.iter().map(|buffers| buffers.bytes()).sum();
                prop_assert_eq!(held(&budget, MemoryPart::Buffers), whole);
                // An evicted connection ends, and its client connects again.
                if all[index].is_evicted() {
                    budget.remove_buffers(&all[index]);
                    all[index] = budget.add_buffers(of(index));
                }
            }
            all.iter().for_each(|buffers| budget.remove_buffers(buffers));
            prop_assert_eq!(held(&budget, MemoryPart::Buffers), 0);
        }
    }
}
