//! Locks and atomics of the memory store, in one place so that a model checker can replace them.

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
