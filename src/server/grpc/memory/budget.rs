//! The memory budget: a bound on the bytes that the clients of the gRPC listener make the process
//! hold.
//!
//! The budget (`grpc.max_client_memory`) has four parts. A client that fills one part takes nothing
//! from the others:
//!
//! | part | share | for | when it is full |
//! | --- | --- | --- | --- |
//! | connections | 4/8 | a fixed cost of each connection | as at `grpc.max_connections` |
//! | buffers | 2/8 | what h2 buffers for a connection in addition | the connection with the largest buffers is closed |
//! | waiting | 1/8 | calls that wait for their client | a further call gets RESOURCE_EXHAUSTED |
//! | deciding | 1/8 | calls that wait for their decision | a further call gets RESOURCE_EXHAUSTED |
//!
//! The sizes are estimates that are rounded up. A call that is answered in its first poll takes
//! nothing, so it changes no counter that threads share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::server::metrics::{PartMetrics, ServerMetrics};

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

/// The memory of all clients, with its maximum. All workers share it.
pub(in crate::server) struct MemoryBudget {
    max: u64,
    metrics: Arc<ServerMetrics>,
    /// The buffers of every open connection, by the address of the value.
    buffers: Mutex<HashMap<usize, Arc<Buffers>>>,
}

/// What h2 buffers for one connection.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    bytes: AtomicU64,
    is_evicted: AtomicBool,
    evicted: Notify,
}

impl Buffers {
    /// The size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns when the connection must close.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Relaxed)
    }

    fn evict(&self) {
        self.is_evicted.store(true, Ordering::Relaxed);
        self.evicted.notify_one();
    }
}

impl MemoryBudget {
    /// A budget of `max` bytes.
    pub(in crate::server) fn new(max: usize, metrics: Arc<ServerMetrics>) -> MemoryBudget {
        let budget = MemoryBudget { max: max as u64, metrics, buffers: Mutex::default() };
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

    /// Takes `bytes` of `part`. Returns false, and takes nothing, if less is left.
    pub(super) fn take(&self, part: MemoryPart, bytes: u64) -> bool {
        let held = &self.part(part).held;
        let fits = held.add_many(bytes) <= self.max_of(part);
        if !fits {
            held.subtract_many(bytes);
        }
        fits
    }

    /// Returns `bytes` to `part`.
    pub(super) fn give_back(&self, part: MemoryPart, bytes: u64) {
        self.part(part).held.subtract_many(bytes);
    }

    /// The empty buffers of a new connection.
    pub(super) fn add_buffers(&self) -> Arc<Buffers> {
        let buffers = Arc::<Buffers>::default();
        self.all_buffers(|all| all.insert(key(&buffers), Arc::clone(&buffers)));
        buffers
    }

    /// Returns the bytes of `buffers`, whose connection has ended.
    pub(super) fn remove_buffers(&self, buffers: &Arc<Buffers>) {
        self.all_buffers(|all| all.remove(&key(buffers)));
        self.give_back(MemoryPart::Buffers, buffers.bytes.swap(0, Ordering::Relaxed));
    }

    /// Changes the size of `buffers`. If that exceeds the part, the connections with the largest
    /// buffers are evicted until the rest fits.
    pub(super) fn resize_buffers(&self, buffers: &Buffers, bytes: u64) {
        let before = buffers.bytes.swap(bytes, Ordering::Relaxed);
        if bytes <= before {
            return self.give_back(MemoryPart::Buffers, before - bytes);
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

    fn part(&self, part: MemoryPart) -> &PartMetrics {
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

/// Evicts the largest of `all` until `over` bytes are leaving, with those that leave already.
fn evict_largest(all: &HashMap<usize, Arc<Buffers>>, over: u64) {
    let leaving = all.values().filter(|one| one.is_evicted()).map(|one| one.bytes());
    let mut over = over.saturating_sub(leaving.sum());
    while over > 0 {
        let staying = all.values().filter(|one| !one.is_evicted() && one.bytes() > 0);
        let Some(largest) = staying.max_by_key(|one| one.bytes()) else { return };
        over = over.saturating_sub(largest.bytes());
        largest.evict();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures_util::FutureExt;
    use proptest::prelude::*;

    fn budget(max: usize) -> MemoryBudget {
        MemoryBudget::new(max, Arc::default())
    }

    fn held(budget: &MemoryBudget, part: MemoryPart) -> u64 {
        budget.part(part).held.get()
    }

    #[test]
    fn the_parts_are_the_whole_budget() {
        let budget = budget(8000);
        let maxima = MemoryPart::ALL.map(|part| budget.part(part).max.get());
        assert_eq!(maxima, [4000, 2000, 1000, 1000]);
    }

    #[test]
    fn a_full_part_refuses_and_leaves_the_others() {
        let budget = budget(8000);
        assert!(budget.take(MemoryPart::Waiting, 1000));
        assert!(!budget.take(MemoryPart::Waiting, 1), "the part is full");
        assert_eq!(held(&budget, MemoryPart::Waiting), 1000, "what is refused is not held");
        assert!(budget.take(MemoryPart::Deciding, 1000), "another part has its whole share");
        budget.give_back(MemoryPart::Waiting, 1);
        assert!(budget.take(MemoryPart::Waiting, 1));
    }

    #[test]
    fn the_largest_buffers_are_evicted() {
        let budget = budget(8000);
        let all: Vec<_> = (0..4).map(|_| budget.add_buffers()).collect();
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
        let (small, large) = (budget.add_buffers(), budget.add_buffers());
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
            let mut all: Vec<Arc<Buffers>> = (0..6).map(|_| budget.add_buffers()).collect();
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
                    all[index] = budget.add_buffers();
                }
            }
            all.iter().for_each(|buffers| budget.remove_buffers(buffers));
            prop_assert_eq!(held(&budget, MemoryPart::Buffers), 0);
        }
    }
}
