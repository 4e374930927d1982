//! Locks and atomics of the memory store, in one place so that a model checker can replace them.

pub(super) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
pub(super) use std::sync::{Mutex, MutexGuard};
