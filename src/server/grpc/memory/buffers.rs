//! What each connection buffers, and which connection closes when that is too much.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use super::address::AddressMemory;
use crate::client_address::ClientAddress;

/// What one connection buffers.
#[derive(Debug)]
pub(super) struct Buffers {
    address: ClientAddress,
    calls_of_address: Arc<AddressMemory>,
    bytes: AtomicU64,
    /// The bytes that the open streams need.
    in_use: AtomicU64,
    is_evicted: AtomicBool,
    evicted: Notify,
}

impl Buffers {
    /// The empty buffers of a new connection of `address`.
    pub(super) fn new(address: ClientAddress, calls_of_address: Arc<AddressMemory>) -> Buffers {
        let [bytes, in_use] = [0, 0].map(AtomicU64::new);
        let (is_evicted, evicted) = (AtomicBool::new(false), Notify::new());
        Buffers { address, calls_of_address, bytes, in_use, is_evicted, evicted }
    }

    /// The address of the client.
    pub(super) fn address(&self) -> ClientAddress {
        self.address
    }

    /// The size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What the calls of all connections of the address hold.
    pub(super) fn calls_of_address(&self) -> &Arc<AddressMemory> {
        &self.calls_of_address
    }

    /// Sets the size in bytes, and returns the one before.
    pub(super) fn set_bytes(&self, bytes: u64) -> u64 {
        self.bytes.swap(bytes, Ordering::Relaxed)
    }

    /// Records that the open streams need `bytes`.
    pub(super) fn set_in_use(&self, bytes: u64) {
        self.in_use.store(bytes, Ordering::Relaxed);
    }

    /// The bytes that no open stream needs: memory of streams that have ended, and responses that the
    /// client does not read.
    fn unused(&self) -> u64 {
        self.bytes().saturating_sub(self.in_use.load(Ordering::Relaxed))
    }

    /// Returns when the connection must close.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Whether the connection must close.
    pub(super) fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Relaxed)
    }

    fn evict(&self) {
        self.is_evicted.store(true, Ordering::Relaxed);
        self.evicted.notify_one();
    }
}

/// Evicts connections of `all` until evicted ones have `over` bytes, including those that were evicted
/// before and are still open. Selects the address that holds most, and of its connections the one with
/// the most bytes that no open stream needs.
pub(super) fn evict_largest(all: &HashMap<usize, Arc<Buffers>>, over: u64) {
    let leaving = all.values().filter(|one| one.is_evicted()).map(|one| one.bytes());
    let mut over = over.saturating_sub(leaving.sum());
    let mut of_address: HashMap<ClientAddress, u64> = HashMap::new();
    for one in all.values().filter(|one| !one.is_evicted()) {
        *of_address.entry(one.address).or_default() += one.bytes();
    }
    while over > 0 {
        let staying = all.values().filter(|one| !one.is_evicted() && one.bytes() > 0);
        let largest = staying
            .max_by_key(|one| (of_address.get(&one.address).copied(), one.unused(), one.bytes()));
        let Some(largest) = largest else { return };
        let bytes = largest.bytes();
        over = over.saturating_sub(bytes);
        of_address.entry(largest.address).and_modify(|sum| *sum = sum.saturating_sub(bytes));
        largest.evict();
    }
}
