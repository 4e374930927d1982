//! The memory that one connection holds, apart from its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::address::{AddressMemory, CallPart};
use super::budget::{MemoryBudget, MemoryPart};
use super::buffers::Buffers;
use crate::client_address::ClientAddress;

const KIB: u64 = 1024;

/// Bytes of a connection without TLS: its task and its socket, the buffers of a usual load
/// ([`BUFFERS_INCLUDED`]), and [`ALLOWANCE_BYTES`].
const CONNECTION_BYTES: u64 = 64 * KIB;

/// Bytes of a TLS session: the session, one record in each direction, and the certificates.
const TLS_BYTES: u64 = 32 * KIB;

/// Bytes that the calls of a connection may hold while they wait for their client, in addition to
/// the part `waiting`. So a call that arrives in pieces is served even if other clients have filled
/// that part.
pub(super) const ALLOWANCE_BYTES: u64 = 16 * KIB;

/// Bytes of the buffers of a connection that [`CONNECTION_BYTES`] has room for.
const BUFFERS_INCLUDED: u64 = 16 * KIB;

/// Sizes of buffers are rounded up to this many bytes, so that the shared counters seldom change.
const BUFFERS_STEP: u64 = 16 * KIB;

/// Bytes of one open stream.
const STREAM_BYTES: u64 = 192;

/// Bytes of a TLS session whose client does not read: its output.
const TLS_STALLED_BYTES: u64 = 64 * KIB;

/// The bytes that count as buffers of a connection that holds `bytes`.
fn bytes_of_buffers(bytes: u64) -> u64 {
    bytes.saturating_sub(BUFFERS_INCLUDED).next_multiple_of(BUFFERS_STEP)
}

/// The most connections of a listener for which a budget of `max` bytes has room.
pub(in crate::server) fn most_connections(max: usize, tls: bool) -> usize {
    let most = MemoryBudget::share(max as u64, MemoryPart::Connections) / cost_of(tls);
    usize::try_from(most).unwrap_or(usize::MAX).max(1)
}

fn cost_of(tls: bool) -> u64 {
    CONNECTION_BYTES + if tls { TLS_BYTES } else { 0 }
}

/// The share of one connection in the budget. Dropping it returns what it holds.
pub(in crate::server::grpc) struct ConnectionMemory {
    budget: Arc<MemoryBudget>,
    fixed: u64,
    buffers: Arc<Buffers>,
    /// Bytes of the calls that wait for their client.
    waiting: AtomicU64,
}

impl ConnectionMemory {
    /// The share of a new connection of `address`. [`most_connections`] bounds their number.
    pub(in crate::server::grpc) fn new(
        budget: &Arc<MemoryBudget>,
        tls: bool,
        address: ClientAddress,
    ) -> ConnectionMemory {
        let fixed = cost_of(tls);
        budget.add(MemoryPart::Connections, fixed);
        let (buffers, waiting) = (budget.add_buffers(address), AtomicU64::new(0));
        ConnectionMemory { budget: Arc::clone(budget), fixed, buffers, waiting }
    }

    /// The address of the client.
    pub(in crate::server::grpc) fn address(&self) -> ClientAddress {
        self.buffers.address()
    }

    pub(super) fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// What the calls of all connections of the address hold.
    pub(super) fn calls_of_address(&self) -> &Arc<AddressMemory> {
        self.buffers.calls_of_address()
    }

    /// Counts the `bytes` that the connection holds now, while `open` streams are open. `is_stalled`
    /// means that a write waits for the client. If all buffers then exceed the budget, a connection of
    /// the address that holds most is evicted, which may be this one.
    pub(in crate::server::grpc) fn hold(&self, bytes: usize, is_stalled: bool, open: u64) {
        let tls = if is_stalled && self.fixed > CONNECTION_BYTES { TLS_STALLED_BYTES } else { 0 };
        let bytes = bytes_of_buffers(bytes as u64 + tls);
        self.buffers.set_in_use(open * STREAM_BYTES);
        if bytes != self.buffers.bytes() {
            self.budget.resize_buffers(&self.buffers, bytes);
        }
    }

    /// Returns when the connection must close, because its address holds most.
    pub(in crate::server::grpc) async fn evicted(&self) {
        self.buffers.evicted().await;
    }

    /// Takes `bytes` for calls that wait for their client. The first bytes come from the allowance
    /// of the connection. Returns false, and takes nothing, if less is left.
    pub(super) fn take_waiting(&self, bytes: u64) -> bool {
        let before = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        let more = over_allowance(before + bytes) - over_allowance(before);
        let fits = more == 0 || self.budget.take(CallPart::Waiting, more, self.calls_of_address());
        if !fits {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Returns `bytes` that [`take_waiting`](Self::take_waiting) took.
    pub(super) fn give_back_waiting(&self, bytes: u64) {
        let before = self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        match over_allowance(before) - over_allowance(before - bytes) {
            0 => {}
            less => self.budget.give_back(CallPart::Waiting, less, self.calls_of_address()),
        }
    }
}

impl Drop for ConnectionMemory {
    fn drop(&mut self) {
        self.budget.remove_buffers(&self.buffers);
        self.budget.subtract(MemoryPart::Connections, self.fixed);
    }
}

fn over_allowance(bytes: u64) -> u64 {
    bytes.saturating_sub(ALLOWANCE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::IpAddr;

    use proptest::prelude::*;

    use crate::server::metrics::{ClientMemory, ServerMetrics};

    fn budget(max: u64) -> (Arc<MemoryBudget>, Arc<ServerMetrics>) {
        let metrics = Arc::<ServerMetrics>::default();
        (Arc::new(MemoryBudget::new(max as usize, metrics.clone())), metrics)
    }

    /// A connection from the address 10.0.0.`host`.
    fn connection(budget: &Arc<MemoryBudget>, tls: bool, host: u8) -> ConnectionMemory {
        ConnectionMemory::new(budget, tls, IpAddr::from([10, 0, 0, host]).into())
    }

    #[test]
    fn buffers_over_those_of_a_usual_load_count() {
        let (budget, metrics) = budget(64 * CONNECTION_BYTES);
        let held = || metrics.client_memory.buffers.held.get() / KIB;
        let [plain, tls] = [false, true].map(|tls| connection(&budget, tls, 1));
        for (kib, counted) in [(0, 0), (16, 0), (17, 16), (32, 16), (33, 32), (1, 0)] {
            plain.hold(kib * 1024, false, 0);
            assert_eq!(held(), counted, "{kib} KiB");
        }
        plain.hold(20 * 1024, true, 0);
        assert_eq!(held(), 16, "its output is in what it holds");
        tls.hold(20 * 1024, true, 0);
        assert_eq!(held(), 16 + 80, "and the output of TLS");
    }

    #[test]
    fn connections_fill_half_of_the_budget() {
        assert_eq!(most_connections(512 << 20, false), 4096);
        assert_eq!(most_connections(512 << 20, true), 2730);
        assert_eq!(most_connections(0, true), 1, "a listener has one at least");
        let (budget, metrics) = budget(8 * CONNECTION_BYTES);
        let first = connection(&budget, true, 1);
        let second = connection(&budget, false, 1);
        second.hold(17 * 1024, false, 0);
        let ClientMemory { connections, buffers, .. } = &metrics.client_memory;
        assert_eq!(
            (connections.held.get(), buffers.held.get()),
            (2 * CONNECTION_BYTES + TLS_BYTES, 16 * KIB)
        );
        drop(second);
        assert_eq!((connections.held.get(), buffers.held.get()), (CONNECTION_BYTES + TLS_BYTES, 0));
        drop(first);
        assert_eq!(connections.held.get(), 0);
    }

    #[test]
    fn every_connection_has_its_allowance() {
        let (budget, metrics) = budget(8 * CONNECTION_BYTES);
        let [greedy, modest] = [1, 1].map(|host| connection(&budget, false, host));
        let other = connection(&budget, false, 2);
        let half = CONNECTION_BYTES / 2;
        assert!(greedy.take_waiting(ALLOWANCE_BYTES + half), "its allowance and half of the part");
        assert!(!greedy.take_waiting(1));
        assert!(modest.take_waiting(ALLOWANCE_BYTES));
        assert!(!modest.take_waiting(1), "both connections are of one address");
        assert!(other.take_waiting(ALLOWANCE_BYTES + half / 2), "another has half of the rest");
        assert_eq!(metrics.client_memory.waiting.held.get(), half + half / 2);
        other.give_back_waiting(ALLOWANCE_BYTES + half / 2);
        greedy.give_back_waiting(1);
        assert!(modest.take_waiting(1));
        modest.give_back_waiting(ALLOWANCE_BYTES + 1);
        greedy.give_back_waiting(ALLOWANCE_BYTES + half - 1);
        assert_eq!(metrics.client_memory.waiting.held.get(), 0);
    }

    proptest! {
        /// Any order of takes and returns leaves nothing behind, and never holds over the maximum.
        #[test]
        fn waiting_bytes_come_back(
            steps in prop::collection::vec((0..3_usize, 0..40_000_u64), 1..100)
        ) {
            let (budget, metrics) = budget(16 * CONNECTION_BYTES);
            let connections: Vec<ConnectionMemory> =
                [1, 1, 2].map(|host| connection(&budget, false, host)).into();
            let mut taken: Vec<(usize, u64)> = Vec::new();
            for (index, bytes) in steps {
                if connections[index].take_waiting(bytes) {
                    taken.push((index, bytes));
                } else if let Some((index, bytes)) = taken.pop() {
                    connections[index].give_back_waiting(bytes);
                }
                prop_assert!(metrics.client_memory.waiting.held.get() <= 2 * CONNECTION_BYTES);
            }
            for (index, bytes) in taken {
                connections[index].give_back_waiting(bytes);
            }
            prop_assert_eq!(metrics.client_memory.waiting.held.get(), 0);
        }
    }
}
