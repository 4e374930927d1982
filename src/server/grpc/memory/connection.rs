//! The memory that one connection holds, apart from its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::address::{AddressMemory, CallPart};
use super::budget::{MemoryBudget, MemoryPart};
use super::buffers::Buffers;
use crate::client_address::ClientAddress;

const KIB: u64 = 1024;

/// Bytes of a connection without TLS: 27 kB measured when idle, read and write buffers that were
/// used to their end, and [`ALLOWANCE_BYTES`].
const CONNECTION_BYTES: u64 = 64 * KIB;

/// Bytes of a TLS session: the session, one record in each direction, and the certificates.
const TLS_BYTES: u64 = 32 * KIB;

/// Bytes that the calls of a connection may hold while they wait for their client, in addition to
/// the part `waiting`. So a call that arrives in pieces is served even if other clients have filled
/// that part.
pub(super) const ALLOWANCE_BYTES: u64 = 16 * KIB;

/// Bytes of one stream in h2: its state (360) and the frames of its response (940).
const STREAM_BYTES: u64 = 1536;

/// Bytes of a frame that h2 has received and a call has not read.
const FRAME_BYTES: u64 = 320;

/// The smallest number of streams, or of frames, for which h2 allocates.
const SLOTS_MIN: u64 = 4;

/// Bytes of a connection whose client does not read: the output of TLS.
const STALLED_BYTES: u64 = 64 * KIB;

/// Bytes of the frames of an incomplete header block: h2 accepts six of 16 KiB, and their buffer may
/// be four times as large.
const HEADER_FRAMES_BYTES: u64 = 384 * KIB;

/// Bytes of an incomplete header block per byte of `grpc.max_header_bytes`. 10 are for parsed headers:
/// the setting counts 32 bytes for a header without text, and `HeaderMap` takes up to 300. 5 are for
/// the further frames that h2 accepts if the setting is large.
const BYTES_PER_HEADER_BYTE: u64 = 15;

/// What h2 buffers for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::server::grpc) struct Buffered {
    /// The most streams that were open at the same time. h2 keeps their memory until the connection
    /// ends.
    pub(in crate::server::grpc) streams: u64,
    /// The most received frames that calls had not read at the same time. h2 keeps their slots until
    /// the connection ends.
    pub(in crate::server::grpc) frames: u64,
    /// The bytes of input that h2 keeps for its HPACK table, and after large frames.
    pub(in crate::server::grpc) input: u64,
    /// The bytes of responses that wait for the socket; `None` if no write waits.
    pub(in crate::server::grpc) unsent: Option<u64>,
    /// `grpc.max_header_bytes` while the headers of a call are incomplete.
    pub(in crate::server::grpc) header_block: Option<u32>,
}

impl Buffered {
    fn bytes(self) -> u64 {
        let received =
            bytes_of_streams(self.streams) + slots(self.frames) * FRAME_BYTES + self.input;
        let unsent = self.unsent.map_or(0, |bytes| STALLED_BYTES + bytes);
        let header_block = self
            .header_block
            .map_or(0, |max| HEADER_FRAMES_BYTES + BYTES_PER_HEADER_BYTE * u64::from(max));
        received + unsent + header_block
    }
}

fn bytes_of_streams(streams: u64) -> u64 {
    slots(streams) * STREAM_BYTES
}

/// The slots that h2 has after `used` were in use: its vectors grow by doubling.
fn slots(used: u64) -> u64 {
    match used {
        0 => 0,
        used => used.next_power_of_two().max(SLOTS_MIN),
    }
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

    /// Counts what h2 buffers now, while `open` streams are open. If that exceeds the budget, a
    /// connection of the address that holds most is evicted, which may be this one.
    pub(in crate::server::grpc) fn hold(&self, buffered: Buffered, open: u64) {
        let bytes = buffered.bytes();
        self.buffers.set_in_use(bytes_of_streams(open));
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
    fn buffers_are_counted_by_streams_and_stalls() {
        let none = Buffered::default();
        let table = [
            (none, 0),
            (Buffered { streams: 1, ..none }, 6 * KIB),
            (Buffered { streams: 5, ..none }, 12 * KIB),
            (Buffered { streams: 1024, ..none }, 1536 * KIB),
            (Buffered { frames: 1, ..none }, 1280),
            (Buffered { frames: 1025, ..none }, 640 * KIB),
            (Buffered { input: 100, ..none }, 100),
            (Buffered { unsent: Some(0), ..none }, 64 * KIB),
            (Buffered { unsent: Some(100), ..none }, 64 * KIB + 100),
            (Buffered { header_block: Some(16_384), ..none }, 624 * KIB),
            (Buffered { streams: 1, input: 2, unsent: Some(1), ..none }, 70 * KIB + 3),
        ];
        for (buffered, bytes) in table {
            assert_eq!(buffered.bytes(), bytes, "{buffered:?}");
        }
    }

    #[test]
    fn connections_fill_half_of_the_budget() {
        assert_eq!(most_connections(512 << 20, false), 4096);
        assert_eq!(most_connections(512 << 20, true), 2730);
        assert_eq!(most_connections(0, true), 1, "a listener has one at least");
        let (budget, metrics) = budget(8 * CONNECTION_BYTES);
        let first = connection(&budget, true, 1);
        let second = connection(&budget, false, 1);
        second.hold(Buffered { streams: 1, ..Buffered::default() }, 0);
        let ClientMemory { connections, buffers, .. } = &metrics.client_memory;
        assert_eq!(
            (connections.held.get(), buffers.held.get()),
            (2 * CONNECTION_BYTES + TLS_BYTES, 6 * KIB)
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
