//! The locks and atomics of the memory store; under test a model checker replaces them.

#[cfg(all(test, feature = "shuttle"))]
pub(super) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(all(test, feature = "shuttle")))]
pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
