//! The instance names of open streams. A name belongs to one stream per client and domain.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::client_address::ClientAddress;

/// A client, a domain and a name.
type ClaimedName = (ClientAddress, Arc<str>, Arc<str>);

/// The names in use, with their clients and domains. Each open stream has at most one.
#[derive(Debug, Default)]
pub(super) struct InstanceNames(Mutex<HashSet<ClaimedName>>);

impl InstanceNames {
    /// Reserves a name of a client in a domain. Returns whether no open stream has it.
    pub(super) fn claim(&self, client: ClientAddress, domain: &Arc<str>, name: &Arc<str>) -> bool {
        self.lock().insert((client, domain.clone(), name.clone()))
    }

    /// The stream with this name ended.
    pub(super) fn release(&self, client: ClientAddress, domain: &Arc<str>, name: &Arc<str>) {
        self.lock().remove(&(client, domain.clone(), name.clone()));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<ClaimedName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
