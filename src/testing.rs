//! Parts that tests of several modules share: a random number generator, a fake store, a simulated
//! network of Redis nodes, a simulated bucket of an Envoy, edges of calendar windows, and generated pages.

mod calendar_edges;
mod fake_store;
pub(crate) mod generated_page;
pub(crate) mod network;
mod rng;
pub(crate) mod simulated_bucket;
pub(crate) mod simulated_node;
pub(crate) mod simulated_store;

pub(crate) use calendar_edges::{CalendarEdge, MARCH, calendar_edges};
pub(crate) use fake_store::{FakeResult, FakeStore};
pub(crate) use rng::Rng;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. No panic leaves its content half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
