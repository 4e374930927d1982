//! The instance names of open streams. A name belongs to one stream per domain.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The names in use, with their domains. Each open stream has at most one.
#[derive(Debug, Default)]
pub(super) struct InstanceNames(Mutex<HashSet<(Arc<str>, Arc<str>)>>);

impl InstanceNames {
    /// Reserves a name in a domain. Returns whether no open stream has it.
    pub(super) fn claim(&self, domain: &Arc<str>, name: &Arc<str>) -> bool {
        self.lock().insert((domain.clone(), name.clone()))
    }

    /// The stream with this name ended.
    pub(super) fn release(&self, domain: &Arc<str>, name: &Arc<str>) {
        self.lock().remove(&(domain.clone(), name.clone()));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(Arc<str>, Arc<str>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
