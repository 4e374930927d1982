//! The engine that a connection and its calls share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::Engine;

/// The engine of one connection. The tasks of a connection and of its calls run on one thread in
/// weir, so the lock is always free.
#[derive(Clone, Debug)]
pub(super) struct SharedEngine(Arc<Mutex<Engine>>);

impl SharedEngine {
    pub(super) fn new(engine: Engine) -> SharedEngine {
        SharedEngine(Arc::new(Mutex::new(engine)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
