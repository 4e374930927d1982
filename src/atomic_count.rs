//! A count that threads change and read: for metrics, and for limits.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count. Its order with other memory is not defined.
#[derive(Debug, Default)]
pub struct AtomicCount(AtomicU64);

impl AtomicCount {
    /// Adds one.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds `number`, and returns the sum.
    pub(crate) fn add_many(&self, number: u64) -> u64 {
        self.0.fetch_add(number, Ordering::Relaxed).wrapping_add(number)
    }

    /// Subtracts one.
    pub(crate) fn subtract(&self) {
        self.subtract_many(1);
    }

    /// Subtracts `number`.
    pub(crate) fn subtract_many(&self, number: u64) {
        self.0.fetch_sub(number, Ordering::Relaxed);
    }

    /// Sets the count.
    pub(crate) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
